package flows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for a condition. It is much longer than usual, because the
// machine may be busy.
const testTimeout = time.Minute

var kim = process.Actor{Name: "kim", Source: "10.0.0.7:4711"}

// node is an engine that runs flows in a test. It pushes the jobs of namespace "ns" to the
// processor obey. Workers poll the jobs of namespace "pull".
type node struct {
	*enginetest.Node
	*flows.Flows
}

func start(t testing.TB, dsn string, with ...enginetest.Option) *node {
	t.Helper()
	return startWith(t, dsn, processor.Func(obey), with...)
}

// startWith starts an engine with another processor for namespace "ns".
func startWith(t testing.TB, dsn string, p processor.Processor, with ...enginetest.Option) *node {
	t.Helper()
	n := enginetest.Start(t, dsn, p, append(with, enginetest.Kinds)...)
	n.Put(t, enginetest.Pull("pull"))
	return &node{n, n.Flows}
}

// obey executes a job or a process. With the args {"fail": {"NAME": "why"}}, a job with this name
// fails. Any other job succeeds with its name and its args as the result.
func obey(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	var args struct {
		Fail map[string]string `json:"fail"` // by job name
	}
	_ = json.Unmarshal(r.GetArgs(), &args) // other args are ignored
	if why := args.Fail[r.GetJobName()]; why != "" {
		return nil, processor.Fail("broken", "%s", why).NonRetryable()
	}
	if r.GetJobName() == "" {
		return processor.Result().JSONResponse(map[string]string{
			"process": r.GetProcess().GetProcessId(),
		}).Complete().Done()
	}
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
		JobResult: structpb.NewStringValue(r.GetJobName() + " " + string(r.GetArgs())),
	}}}, nil
}

// put stores a template, given as JSON, in a namespace.
func (n *node) put(t testing.TB, namespace, text string) *progressorv1.Template {
	t.Helper()
	m := &progressorv1.Template{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	m.Namespace = namespace
	r, err := n.PutTemplate(context.Background(), &progressorv1.PutTemplateRequest{Template: m})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetTemplate()
}

// run starts a run of a template with a payload given as JSON.
func (n *node) run(t testing.TB, namespace, templateType, runID, payload string) *progressorv1.Run {
	t.Helper()
	r, err := n.Start(context.Background(), &progressorv1.StartRunRequest{
		Namespace: namespace, Type: templateType, RunId: runID, Payload: value(t, payload),
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetRun()
}

func value(t testing.TB, text string) *structpb.Value {
	t.Helper()
	if text == "" {
		return nil
	}
	v := &structpb.Value{}
	if err := protojson.Unmarshal([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

// ended waits for the end of a run and returns it.
func (n *node) ended(t testing.TB, namespace, runID string) *progressorv1.Run {
	t.Helper()
	r, err := n.Get(context.Background(), namespace, runID, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if r.GetFinishedTime() == nil {
		t.Fatalf("the run has not ended: %s", runSummary(r))
	}
	return r
}

// until waits until the summary of a run begins with want, and returns the run.
func (n *node) until(t testing.TB, namespace, runID, want string) *progressorv1.Run {
	t.Helper()
	var r *progressorv1.Run
	enginetest.Eventually(t, testTimeout, runID+" is "+want, func() bool {
		var err error
		if r, err = n.Get(context.Background(), namespace, runID, 0); err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(runSummary(r), want)
	})
	return r
}

// runSummary returns the status of a run, and the statuses of its steps with their attempts.
func runSummary(r *progressorv1.Run) string {
	s := strings.TrimPrefix(r.GetStatus().String(), "RUN_STATUS_") + ":"
	for _, step := range r.GetSteps() {
		s += fmt.Sprintf(" %s %s", step.GetStepId(), strings.TrimPrefix(step.GetStatus().String(), "STEP_STATUS_"))
		if step.GetAttempt() > 1 {
			s += fmt.Sprintf(" %d", step.GetAttempt())
		}
		if step.CompensationStatus != nil {
			s += " undo " + strings.TrimPrefix(step.GetCompensationStatus().String(), "STEP_STATUS_")
		}
	}
	return s
}

func same(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// lease leases one job of namespace "pull" with one of these names, or with any name if there are
// none.
func (n *node) lease(t testing.TB, names ...string) *progressorv1.Lease {
	t.Helper()
	leases, err := n.Poll(context.Background(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", JobNames: names, Max: 1, Wait: testTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != 1 {
		t.Fatalf("%d leases, want 1", len(leases))
	}
	return leases[0]
}

// answer ends a lease. It fails the job if there is a reason.
func (n *node) answer(t testing.TB, l *progressorv1.Lease, result, reason string) {
	t.Helper()
	resp := &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{JobResult: value(t, result)}},
	}
	if reason != "" {
		resp.Outcome = &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{Reason: reason, Message: "as asked"},
		}
	}
	if err := n.CompleteLease(context.Background(), l.GetLeaseToken(), engine.LeaseAnswer{Response: resp}); err != nil {
		t.Fatal(err)
	}
}

func seconds(n int64) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }

// acknowledge waits until the worker is asked to stop, and then ends the lease as such a worker
// does.
func (n *node) acknowledge(t testing.TB, l *progressorv1.Lease) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "the worker gets the cancel", func() bool {
		d, err := n.BeatLeases(context.Background(), &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: l.GetLeaseToken()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d[0].GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL
	})
	if err := n.CompleteLease(context.Background(), l.GetLeaseToken(),
		engine.LeaseAnswer{Acknowledged: new(string)}); err != nil {
		t.Fatal(err)
	}
}
