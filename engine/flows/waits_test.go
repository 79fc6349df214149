package flows_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// token returns the token of a wait, as ListOpenWaits shows it.
func (n *node) token(t testing.TB, runID, stepID string) (token string) {
	t.Helper()
	err := n.DB.QueryRow(context.Background(),
		"SELECT coalesce(token, '') FROM flow_steps WHERE run_id = $1 AND step_id = $2 AND index = -1", runID,
		stepID).Scan(&token)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func result(v *structpb.Value) *progressorv1.CompleteStepRequest {
	return &progressorv1.CompleteStepRequest{Outcome: &progressorv1.CompleteStepRequest_Result{Result: v}}
}

func (n *node) complete(runID, stepID, token string, r *progressorv1.CompleteStepRequest) (*progressorv1.Run, error) {
	r.Namespace = "pull"
	return n.completeIn(runID, stepID, token, r)
}

func (n *node) completeIn(runID, stepID, token string, r *progressorv1.CompleteStepRequest) (*progressorv1.Run, error) {
	r.RunId, r.StepId, r.Token, r.WorkerId = runID, stepID, token, "outside"
	return n.Complete(context.Background(), r, kim)
}

// TestExternalWait checks that a wait accepts one answer, only with its token and only if the
// answer matches the schema.
func TestExternalWait(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ask", "steps": [
		{"step_id": "outside", "wait": {"title": "for ${payload.who}", "result_schema": {"type": "object",
		"required": ["ok"]}}, "input": "${payload.who}"},
		{"step_id": "sign", "wait": {"kind": "KIND_HUMAN", "assignees": ["kim"]}}]}`)
	n.run(t, "pull", "ask", "w1", `{"who": "ada"}`)
	same(t, runSummary(n.until(t, "pull", "w1", "WAITING_WORKER")), "WAITING_WORKER: outside RUNNING sign PENDING")
	token := n.token(t, "w1", "outside")

	var status *flows.StatusError
	var wrong *process.InvalidError
	if _, err := n.complete("w1", "outside", "guessed", result(value(t, `{"ok": true}`))); !errors.As(err, &status) {
		t.Fatalf("a wrong token: %v", err)
	}
	if _, err := n.complete("w1", "sign", "", result(nil)); !errors.As(err, &status) {
		t.Fatalf("a wait that is not open: %v", err)
	}
	if _, err := n.complete("w1", "outside", token, result(value(t, `{"no": true}`))); !errors.As(err, &wrong) ||
		wrong.Field != "result.ok" {
		t.Fatalf("a result that does not match the schema: %v", err)
	}
	d, err := n.Report(context.Background(), &progressorv1.ReportStepRequest{
		Namespace: "pull", RunId: "w1", StepId: "outside", Token: token,
		Progress: &progressorv1.Progress{Percent: 50, Summary: "half"}, Due: seconds(3600),
	}, kim)
	if err != nil || d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Fatalf("report: %v, %v", d, err)
	}
	r := n.until(t, "pull", "w1", "WAITING_WORKER")
	if r.GetProgress().GetPercent() != 25 || r.GetProgress().GetSummary() != "half" {
		t.Fatalf("progress %v", r.GetProgress())
	}
	if _, err := n.complete("w1", "outside", "", result(nil)); !errors.As(err, &wrong) || wrong.Field != "token" {
		t.Fatalf("no token: %v", err)
	}
	if r, err = n.complete("w1", "outside", token, result(value(t, `{"ok": true}`))); err != nil ||
		r.GetProgress().GetSummary() != "" {
		t.Fatalf("%v; the progress of the step must not be shown for the next step: %v", err, r.GetProgress())
	}
	if _, err := n.complete("w1", "outside", token, result(value(t, `{"ok": 1}`))); !errors.As(err, &status) ||
		!strings.Contains(err.Error(), "step outside is succeeded: it has already ended with another outcome") {
		t.Fatalf("another answer: %v", err)
	}
	if _, err := n.complete("w1", "sign", "", result(value(t, `"kim"`))); err != nil {
		t.Fatal(err)
	}
	r = n.ended(t, "pull", "w1")
	same(t, runSummary(r)+" "+r.GetResult().GetStringValue()+" "+r.GetSteps()[0].GetWorkerId(),
		"SUCCEEDED: outside SUCCEEDED sign SUCCEEDED kim outside")
}

// TestClaim checks that a report records who works on a wait, and that an answer records who gave
// it.
func TestClaim(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ask", "steps": [{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`)
	n.run(t, "pull", "ask", "r", "null")
	claim := func(by *string) {
		t.Helper()
		if _, err := n.Report(t.Context(), &progressorv1.ReportStepRequest{
			Namespace: "pull", RunId: "r", StepId: "ask", Due: seconds(3600), WorkerId: by,
		}, kim); err != nil {
			t.Fatal(err)
		}
	}
	claimed := func(want string) {
		t.Helper()
		page, _, err := n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{Namespace: "pull"})
		if err != nil || len(page) != 1 || page[0].GetWorkerId() != want {
			t.Fatalf("want a wait of %q, got %v, %v", want, page, err)
		}
	}
	claimed("")
	claim(proto.String("ann"))
	claim(nil)
	claimed("ann")
	claim(proto.String("bob"))
	claimed("bob")
	claim(proto.String(""))
	claimed("")
	r, err := n.Complete(t.Context(), &progressorv1.CompleteStepRequest{
		Namespace: "pull", RunId: "r", StepId: "ask", Outcome: &progressorv1.CompleteStepRequest_Result{},
	}, kim)
	if err != nil || r.GetSteps()[0].GetWorkerId() != kim.Name {
		t.Fatalf("want the answer of %s, got %v, %v", kim.Name, r.GetSteps(), err)
	}
}

// TestAnswerIsRepeated checks that a repeated answer returns the run, before and after the end of
// the run. A different answer is rejected.
func TestAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "repeat", "step_order": "STEP_ORDER_GRAPH",
		"steps": [{"step_id": "list", "for_each": {"items": "[1, 2]", "max_failures": 2}, "wait": {}},
		{"step_id": "a", "wait": {}}, {"step_id": "b", "ignore_failure": true, "wait": {"kind": "KIND_HUMAN"}},
		{"step_id": "last", "wait": {"kind": "KIND_HUMAN"}}]}`)
	n.run(t, "pull", "repeat", "r1", "")
	failure := func(reason string) *progressorv1.CompleteStepRequest {
		return &progressorv1.CompleteStepRequest{
			Outcome: &progressorv1.CompleteStepRequest_Failure{
				Failure: &progressorv1.Failure{Reason: reason, Message: "no <b>"},
			},
		}
	}
	item := func(index int32, r *progressorv1.CompleteStepRequest) *progressorv1.CompleteStepRequest {
		r.Index = &index
		return r
	}
	token, itemToken := n.token(t, "r1", "a"), ""
	if err := n.DB.QueryRow(context.Background(),
		`SELECT token FROM flow_steps WHERE run_id = 'r1' AND step_id = 'list'
			AND index = 1`).Scan(&itemToken); err != nil {
		t.Fatal(err)
	}
	answers := func() {
		t.Helper()
		for n, err := range []error{
			errOf(n.complete("r1", "a", token, result(value(t, `{"n": 100, "text": "<b>"}`)))),
			errOf(n.complete("r1", "b", "", failure("no"))),
			errOf(n.complete("r1", "list", itemToken, item(1, failure("item")))),
		} {
			if err != nil {
				t.Errorf("answer %d: %v", n, err)
			}
		}
	}
	answers()
	answers()
	if _, err := n.complete("r1", "list", itemToken, item(0, failure("item"))); err == nil {
		t.Error("the answer of another item was accepted")
	}
	itemToken0 := ""
	if err := n.DB.QueryRow(context.Background(),
		`SELECT token FROM flow_steps WHERE run_id = 'r1' AND step_id = 'list'
			AND index = 0`).Scan(&itemToken0); err != nil {
		t.Fatal(err)
	}
	if _, err := n.complete("r1", "list", itemToken0, item(0, result(nil))); err != nil {
		t.Fatal(err)
	}
	if _, err := n.complete("r1", "last", "", result(nil)); err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(n.ended(t, "pull", "r1")), "SUCCEEDED: list SUCCEEDED a SUCCEEDED b FAILED last SUCCEEDED")
	answers()
	if r, err := n.complete("r1", "last", "", result(nil)); err != nil ||
		r.GetStatus() != progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		t.Errorf("a repetition of the last answer: %v, %v", r.GetStatus(), err)
	}
	for _, other := range []error{
		errOf(n.complete("r1", "a", token, result(value(t, `{"n": 101, "text": "<b>"}`)))),
		errOf(n.complete("r1", "a", token, failure("no"))),
		errOf(n.complete("r1", "b", "", failure("other"))), errOf(n.complete("r1", "last", "", result(value(t, `1`)))),
	} {
		if other == nil || !strings.Contains(other.Error(), "it has already ended with another outcome") {
			t.Errorf("another answer: %v", other)
		}
	}
}

func errOf(_ *progressorv1.Run, err error) error { return err }

// TestWaitIsCancelled checks that a cancelled wait accepts only an acknowledgement. The wait of a
// person is cancelled immediately.
func TestWaitIsCancelled(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "two", "step_order": "STEP_ORDER_GRAPH", "steps": [{"step_id": "outside", "wait": {}},
		{"step_id": "person", "wait": {"kind": "KIND_HUMAN"}}]}`)
	n.run(t, "pull", "two", "c1", "")
	token := n.token(t, "c1", "outside")
	same(t, runSummary(n.cancel(t, "pull", "c1")), "CANCEL_REQUESTED: outside RUNNING person CANCELLED")
	d, err := n.Report(context.Background(), &progressorv1.ReportStepRequest{
		Namespace: "pull", RunId: "c1", StepId: "outside", Token: token,
	}, kim)
	if err != nil || d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CANCEL ||
		d.GetCancelReason() != "not needed" {
		t.Fatalf("report: %v, %v", d, err)
	}
	var status *flows.StatusError
	if _, err := n.complete("c1", "outside", token, result(nil)); !errors.As(err, &status) {
		t.Fatalf("a result after the cancel: %v", err)
	}
	r, err := n.complete("c1", "outside", token, &progressorv1.CompleteStepRequest{
		Outcome: &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(r), "CANCELLED: outside CANCELLED person CANCELLED")
}

// TestWaitIgnoresCancel checks that a wait is cancelled when its grace period expires, with an
// event.
func TestWaitIgnoresCancel(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "deaf", "cancel_policy": {"grace": "0.1s"},
		"steps": [{"step_id": "outside", "wait": {}}]}`)
	n.run(t, "pull", "deaf", "d1", "")
	n.cancel(t, "pull", "d1")
	same(t, runSummary(n.ended(t, "pull", "d1")), "CANCELLED: outside CANCELLED")
	var events int
	err := n.DB.QueryRow(context.Background(),
		`SELECT count(*) FROM job_events WHERE job_id = 'd1' AND step_id = 'outside'
			AND type = 'cancel_grace_expired'`).Scan(&events)
	if err != nil || events != 1 {
		t.Fatalf("%d events cancel_grace_expired, %v", events, err)
	}
}

// TestWaitIsOverdue checks the action of the template at the due time.
func TestWaitIsOverdue(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "due", "steps": [
		{"step_id": "skips", "wait": {"due": "0.01s", "due_action": "DUE_ACTION_SKIP"}},
		{"step_id": "succeeds", "wait": {"due": "0.01s", "due_action": "DUE_ACTION_SUCCEED", "due_result": "late"}},
		{"step_id": "fails", "wait": {"due": "0.01s"}}]}`)
	n.run(t, "pull", "due", "o1", "")
	r := n.ended(t, "pull", "o1")
	same(t, runSummary(r), "FAILED: skips SKIPPED succeeds SUCCEEDED fails FAILED")
	same(t, r.GetSteps()[1].GetResult().GetStringValue()+" "+r.GetFailure().GetReason(), "late timeout")
}

// TestSkip checks that the steps that depend on a skipped step continue.
func TestSkip(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "skip", "steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}},
		{"step_id": "c", "job": {}, "input": "${steps.a.result}"}]}`)
	n.run(t, "pull", "skip", "k1", "")
	l := n.lease(t, "a")
	skip := func(step string) (*progressorv1.Run, error) {
		return n.Skip(context.Background(), &progressorv1.SkipStepRequest{
			Namespace: "pull", RunId: "k1", StepId: step, Result: value(t, `"by hand"`), Reason: "known",
		}, kim)
	}
	if _, err := skip("b"); err != nil {
		t.Fatal(err)
	}
	r, err := skip("a")
	if err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(r), "QUEUED: a SKIPPED b SKIPPED c PENDING")
	n.acknowledge(t, l)
	var status *flows.StatusError
	if _, err := skip("a"); !errors.As(err, &status) {
		t.Fatalf("a step that has ended: %v", err)
	}
	if _, err := skip("nothing"); !errors.Is(err, process.ErrStepNotFound) {
		t.Fatalf("a step that does not exist: %v", err)
	}
	c := n.lease(t, "c")
	same(t, c.GetJob().GetArgs().GetStringValue(), "by hand")
	n.answer(t, c, "", "")
	same(t, runSummary(n.ended(t, "pull", "k1")), "SUCCEEDED: a SKIPPED b SKIPPED c SUCCEEDED")
}
