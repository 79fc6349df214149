package flows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// row is the expected result of a verb on a run or a step in one status. want is one of these:
//
//   - the final status of the run and of its steps
//   - "another: ", and the status of the run that the verb has started
//   - the reason of the error, a colon, and the message, if the verb is rejected and the run does
//     not change
type row struct{ status, verb, want string }

// situation is a run in a certain status, to which a verb is applied.
type situation struct {
	n       *node
	id      string // ID of the run and its template; the names of its jobs contain this ID and the step
	target  string // step to which the verb applies; "" means the first one
	index   *int32
	token   string
	starts  int               // number of starts that verbs requested in the scope of the run
	another *progressorv1.Run // run that a verb started
	request *progressorv1.StartRunRequest
}

// The verbs for runs and for steps.
var (
	runVerbs = []string{
		"start", "start again", "start with its key", "start in its scope", "cancel", "retry", "retry newest", "repeat",
		"remove",
	}
	stepVerbs = []string{"skip", "complete", "fail", "acknowledge", "report"}
)

func (s *situation) do(ctx context.Context, verb string) (err error) {
	n, id := s.n, s.id
	step := s.target
	if step == "" {
		step = "a"
	}
	start := func(change func(*progressorv1.StartRunRequest)) error {
		r := proto.CloneOf(s.request)
		change(r)
		resp, err := n.Start(ctx, r, kim)
		if resp.GetRun().GetRunId() != id {
			s.another = resp.GetRun()
		}
		return err
	}
	complete := func(r *progressorv1.CompleteStepRequest) error {
		r.Namespace, r.RunId, r.StepId, r.Index, r.Token = "pull", id, step, s.index, s.token
		_, err := n.Complete(ctx, r, kim)
		return err
	}
	switch verb {
	case "start":
		return start(func(r *progressorv1.StartRunRequest) { r.IdempotencyKey = "" })
	case "start again":
		return start(func(r *progressorv1.StartRunRequest) {})
	case "start with its key":
		return start(func(r *progressorv1.StartRunRequest) { r.ScopeId += " of another client" })
	case "start in its scope":
		s.starts++
		return start(func(r *progressorv1.StartRunRequest) {
			r.RunId, r.IdempotencyKey = fmt.Sprint(id, "-", s.starts), ""
		})
	case "cancel":
		_, err = n.Cancel(ctx, &progressorv1.CancelRunRequest{Namespace: "pull", RunId: id, Reason: "enough"}, kim)
	case "retry", "retry newest":
		_, err = n.Retry(ctx, &progressorv1.RetryRunRequest{
			Namespace: "pull", RunId: id, NewestVersion: verb == "retry newest",
		}, kim)
	case "repeat":
		s.another, err = n.Repeat(ctx, &progressorv1.RepeatRunRequest{Namespace: "pull", RunId: id}, kim)
	case "remove":
		err = n.RemoveProcess(ctx, process.Key{Namespace: "pull", ProcessID: "~flow/" + id}, kim)
	case "skip":
		_, err = n.Skip(ctx, &progressorv1.SkipStepRequest{
			Namespace: "pull", RunId: id, StepId: step, Index: s.index, Reason: "by hand",
		}, kim)
	case "complete":
		return complete(result(nil))
	case "fail":
		return complete(&progressorv1.CompleteStepRequest{
			Outcome: &progressorv1.CompleteStepRequest_Failure{Failure: &progressorv1.Failure{Reason: "broken"}},
		})
	case "acknowledge":
		return complete(&progressorv1.CompleteStepRequest{
			Outcome: &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}},
		})
	case "report":
		_, err = n.Report(ctx, &progressorv1.ReportStepRequest{
			Namespace: "pull", RunId: id, StepId: step, Index: s.index, Token: s.token,
		}, kim)
	}
	return err
}

// refusal returns the reason of an error, as clients see it.
func refusal(err error) string {
	var status *flows.StatusError
	var scope *flows.ScopeError
	var template *flows.TemplateError
	var invalid *process.InvalidError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &status) && status.Cancel:
		return "NOT_CANCELLABLE: " + status.Message
	case errors.As(err, &status):
		return "STATUS: " + status.Message
	case errors.As(err, &scope):
		return "SAME_SCOPE: " + scope.RunID
	case errors.As(err, &template):
		return "TEMPLATE: " + template.Message
	case errors.As(err, &invalid):
		return "INVALID: " + invalid.Field
	case errors.Is(err, process.ErrRunExists):
		return "RUN_EXISTS:"
	case errors.Is(err, process.ErrRunNotFound), errors.Is(err, process.ErrProcessNotFound):
		return "NOT_FOUND:"
	case errors.Is(err, process.ErrStepNotFound):
		return "STEP_NOT_FOUND:"
	case errors.Is(err, process.ErrIdempotencyMismatch):
		return "KEY_REUSED:"
	}
	return err.Error()
}

// now returns the current summary of the run with the numbers of items by status, or "gone" if the
// run was removed.
func (s *situation) now(t testing.TB) string {
	t.Helper()
	r, err := s.n.Get(context.Background(), "pull", s.id, 0)
	if errors.Is(err, process.ErrRunNotFound) {
		return "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	text := runSummary(r)
	for _, step := range r.GetSteps() {
		if items := step.GetItemsByStatus(); len(items) > 0 {
			text += " " + strings.TrimPrefix(fmt.Sprint(items), "map")
		}
	}
	return text
}

// lease leases the job of a step in the run.
func (s *situation) lease(t testing.TB, step string) *progressorv1.Lease {
	t.Helper()
	return s.n.lease(t, s.id+"-"+step)
}

// TestMatrix applies every verb to a run or a step in every status, and compares the results with
// the table matrix.
func TestMatrix(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	byStatus := map[string][]row{}
	for _, r := range matrix {
		if _, ok := situations[r.status]; !ok {
			t.Fatalf("no action leads to the status %q", r.status)
		}
		byStatus[r.status] = append(byStatus[r.status], r)
	}
	for status, make := range situations {
		verbs := runVerbs
		if strings.HasPrefix(status, "step ") {
			verbs = stepVerbs
		}
		for _, verb := range verbs {
			if !slices.ContainsFunc(byStatus[status], func(r row) bool { return r.verb == verb }) {
				t.Errorf("the table has no row for %q in %q", verb, status)
			}
		}
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			for i, r := range byStatus[status] {
				s := &situation{n: n, id: strings.Map(letterOrDigit, status) + fmt.Sprint(i)}
				make(t, s)
				s.check(t, r)
			}
		})
	}
}

func letterOrDigit(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
		return r
	}
	return '_'
}

// check applies the verb of a row to the run and checks the result.
func (s *situation) check(t testing.TB, r row) {
	t.Helper()
	was := s.now(t)
	err := s.do(context.Background(), r.verb)
	if got := refusal(err); got != "" {
		if got = strings.ReplaceAll(got, s.id, "<run>"); got != r.want {
			t.Errorf("%q, %q\n refused %s\n want    %s", r.status, r.verb, got, r.want)
		}
		if is := s.now(t); is != was {
			t.Errorf("%q, %q was rejected, but the run changed to\n %s\nit was\n %s", r.status, r.verb, is, was)
		}
		return
	}
	got := ""
	look := func() bool {
		if got = s.now(t); s.another != nil {
			other := &situation{n: s.n, id: s.another.GetRunId()}
			got = "another: " + other.now(t)
		}
		return got == r.want
	}
	if !waitUntil(look) {
		t.Fatalf("%q, %q\n got  %s\n want %s", r.status, r.verb, got, r.want)
	}
}
