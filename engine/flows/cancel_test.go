package flows_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// demo is the worked example of the documentation.
const demo = `{"type": "demo_long_task", "concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE",
	"dedupe_keys": ["scope_id", "target"],
	"cancel_policy": {"grace": "30s"}, "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["0.01s"]}}, "steps": [
	{"step_id": "prepare", "job": {}, "timeout": "60s"}, {"step_id": "execute", "job": {}, "timeout": "300s"},
	{"step_id": "finalize", "job": {}, "timeout": "30s", "cancelable": false}]}`

func (n *node) cancel(t testing.TB, namespace, runID string) *progressorv1.Run {
	t.Helper()
	r, err := n.Cancel(context.Background(), &progressorv1.CancelRunRequest{
		Namespace: namespace, RunId: runID, Reason: "not needed",
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWorkedExample executes the worked example line by line.
func TestWorkedExample(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", demo)
	begin := func(id string) {
		n.run(t, "pull", "demo_long_task", id, `{"target": "`+id+`"}`)
		n.answer(t, n.lease(t, "prepare"), "", "")
	}

	// execute fails once, and attempt 2 of the run begins at execute.
	begin("retry")
	n.answer(t, n.lease(t, "execute"), "", "broken")
	n.answer(t, n.lease(t, "execute"), "", "")
	n.answer(t, n.lease(t, "finalize"), "", "")
	r := n.ended(t, "pull", "retry")
	same(t, runSummary(r), "SUCCEEDED: prepare SUCCEEDED execute SUCCEEDED 2 finalize SUCCEEDED")
	if r.GetAttempt() != 2 {
		t.Fatalf("attempt %d", r.GetAttempt())
	}

	// Cancel during execute: CANCEL_REQUESTED, then CANCELLED by the acknowledgement.
	begin("execute")
	l := n.lease(t, "execute")
	same(t, runSummary(n.cancel(t, "pull", "execute")),
		"CANCEL_REQUESTED: prepare SUCCEEDED execute RUNNING finalize CANCELLED")
	same(t, runSummary(n.cancel(t, "pull", "execute")),
		"CANCEL_REQUESTED: prepare SUCCEEDED execute RUNNING finalize CANCELLED")
	n.acknowledge(t, l)
	same(t, runSummary(n.ended(t, "pull", "execute")),
		"CANCELLED: prepare SUCCEEDED execute CANCELLED finalize CANCELLED")

	// Cancel during finalize: the step ends, and the run has succeeded.
	begin("finalize")
	n.answer(t, n.lease(t, "execute"), "", "")
	l = n.lease(t, "finalize")
	same(t, runSummary(n.cancel(t, "pull", "finalize")),
		"CANCEL_REQUESTED: prepare SUCCEEDED execute SUCCEEDED finalize RUNNING")
	n.answer(t, l, `"done"`, "")
	same(t, runSummary(n.ended(t, "pull", "finalize")),
		"SUCCEEDED: prepare SUCCEEDED execute SUCCEEDED finalize SUCCEEDED")

	// Cancel while QUEUED: CANCELLED immediately, and no worker gets the job.
	n.run(t, "pull", "demo_long_task", "queued", `{"target": "queued"}`)
	n.until(t, "pull", "queued", "QUEUED")
	same(t, runSummary(n.cancel(t, "pull", "queued")),
		"CANCELLED: prepare CANCELLED execute CANCELLED finalize CANCELLED")
	if l, err := n.Poll(context.Background(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", Max: 1,
	}); err != nil || len(l) != 0 {
		t.Fatalf("a worker gets %v, %v", l, err)
	}

	// A worker that ignores the cancel: CANCELLED when the grace period expires, with an event.
	n.put(t, "pull", strings.NewReplacer("demo_long_task", "deaf", "30s", "0.1s").Replace(demo))
	n.run(t, "pull", "deaf", "deaf", `{"target": "deaf"}`)
	n.answer(t, n.lease(t, "prepare"), "", "")
	n.lease(t, "execute")
	n.cancel(t, "pull", "deaf")
	same(t, runSummary(n.ended(t, "pull", "deaf")), "CANCELLED: prepare SUCCEEDED execute CANCELLED finalize CANCELLED")
	k := enginetest.Count(t, n.DB,
		`SELECT count(*) FROM job_events WHERE type = 'cancel_grace_expired' AND job_id IN
			('deaf', '~job/deaf/execute')`)
	if k != 2 {
		t.Fatalf("%d events cancel_grace_expired", k)
	}

	// A second run with the same scope and target is rejected.
	n.run(t, "pull", "demo_long_task", "first", `{"target": "same"}`)
	_, err := n.Start(context.Background(), &progressorv1.StartRunRequest{
		Namespace: "pull", Type: "demo_long_task", RunId: "second", Payload: value(t, `{"target": "same"}`),
	}, kim)
	var scope *flows.ScopeError
	if !errors.As(err, &scope) || scope.RunID != "first" {
		t.Fatalf("the second run: %v", err)
	}
}

// TestCancelWhilePending cancels one run before its run_time and another between two attempts.
func TestCancelWhilePending(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "later", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["3600s"]}},
		"steps": [{"step_id": "a", "job": {}}]}`)
	resp, err := n.Start(context.Background(), &progressorv1.StartRunRequest{
		Namespace: "pull", Type: "later", RunId: "later", RunTime: timestamppb.New(time.Now().Add(time.Hour)),
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(resp.GetRun())+" "+resp.GetRun().GetBlockedOn()[:5], "PENDING: a PENDING time:")
	same(t, runSummary(n.cancel(t, "pull", "later")), "CANCELLED: a CANCELLED")
	n.run(t, "pull", "later", "resting", "")
	n.answer(t, n.lease(t), "", "broken")
	r := n.until(t, "pull", "resting", "PENDING: a PENDING")
	same(t, r.GetFailure().GetReason()+" "+r.GetBlockedOn()[:8], "broken backoff:")
	same(t, runSummary(n.cancel(t, "pull", "resting")), "CANCELLED: a CANCELLED")
}

// TestRunExpires checks that a run ends when it exceeds its timeout.
func TestRunExpires(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "short", "timeout": "0.2s", "steps": [{"step_id": "ask", "wait": {}},
		{"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "short", "e1", "")
	r := n.ended(t, "pull", "e1")
	same(t, runSummary(r), "EXPIRED: ask CANCELLED b CANCELLED")
	same(t, r.GetFailure().GetReason(), "timeout")
}

// TestNotCancellable checks that a cancel is rejected if the template does not support it or the
// run has ended.
func TestNotCancellable(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "stubborn", "cancel_policy": {"supported": false},
		"steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "stubborn", "x", "")
	refused := func() {
		t.Helper()
		_, err := n.Cancel(context.Background(), &progressorv1.CancelRunRequest{Namespace: "pull", RunId: "x"}, kim)
		var status *flows.StatusError
		if !errors.As(err, &status) || !status.Cancel {
			t.Fatalf("cancel: %v", err)
		}
	}
	refused()
	n.answer(t, n.lease(t), "", "")
	n.ended(t, "pull", "x")
	refused()
}

// waitingProcess returns a processor whose processes do nothing until they are called or cancelled.
// A call fails. The time that is left to each CANCEL task is sent to cancels.
func waitingProcess(cancels chan<- time.Duration) processor.Func {
	return func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		switch r.GetType() {
		case progressorv1.TaskType_TASK_TYPE_CANCEL:
			cancels <- time.Until(r.GetDeadline().AsTime())
		case progressorv1.TaskType_TASK_TYPE_CALL:
			return nil, processor.Fail("broken", "as asked").NonRetryable()
		default:
		}
		return processor.Result().Done()
	}
}

// TestCancelPolicyOfProcesses checks that the cancel policy of a template applies to the processes
// of its steps.
func TestCancelPolicyOfProcesses(t *testing.T) {
	t.Parallel()
	cancels := make(chan time.Duration, 10)
	n := startWith(t, storagetest.DSN(t), waitingProcess(cancels))
	cancelled := func(id, policy string) {
		t.Helper()
		n.put(t, "ns", `{"type": "`+id+`", "cancel_policy": `+policy+`, "steps": [{"step_id": "p", "process": {}}]}`)
		n.run(t, "ns", id, id, "")
		n.until(t, "ns", id, "RUNNING: p RUNNING")
		enginetest.Eventually(t, testTimeout, "the process is idle", func() bool {
			return enginetest.Count(t, n.DB,
				"SELECT count(*) FROM processes WHERE process_id = '"+id+"/p' AND status = 'RUNNING'") == 1
		})
		n.cancel(t, "ns", id)
		same(t, runSummary(n.ended(t, "ns", id)), "CANCELLED: p CANCELLED")
	}
	cancelled("short", `{"grace": "5s"}`)
	if left := <-cancels; left <= 0 || left > 5*time.Second {
		t.Errorf("the CANCEL task has %v, want at most 5 s", left)
	}
	cancelled("none", `{"mode": "MODE_IMMEDIATE"}`)
	if len(cancels) > 0 {
		t.Error("the processor was called although the cancel policy has no grace period")
	}
}

// TestStopOfSuspendedProcess checks that a run that asks its steps to end does not wait until a
// suspended process is resumed.
func TestStopOfSuspendedProcess(t *testing.T) {
	t.Parallel()
	n := startWith(t, storagetest.DSN(t), waitingProcess(make(chan time.Duration, 10)))
	suspend := func(id string) {
		t.Helper()
		enginetest.Eventually(t, testTimeout, "the process is suspended", func() bool {
			_, err := n.SuspendProcess(context.Background(), process.Key{Namespace: "ns", ProcessID: id}, "look", kim)
			return err == nil
		})
	}
	n.put(t, "ns", `{"type": "one", "cancel_policy": {"grace": "0s"}, "steps": [{"step_id": "p", "process": {}}]}`)
	n.run(t, "ns", "one", "one", "")
	suspend("one/p")
	n.cancel(t, "ns", "one")
	same(t, runSummary(n.ended(t, "ns", "one")), "CANCELLED: p CANCELLED")

	n.put(t, "ns", `{"type": "items", "cancel_policy": {"grace": "0s"},
		"steps": [{"step_id": "p", "for_each": {"items": "[1, 2]"}, "process": {}}]}`)
	n.run(t, "ns", "items", "items", "")
	suspend("items/p.0")
	enginetest.Eventually(t, testTimeout, "the other item fails", func() bool {
		_, err := n.Call(context.Background(), engine.CallParams{
			Key: process.Key{Namespace: "ns", ProcessID: "items/p.1"},
		})
		var failed *engine.TaskError
		return errors.As(err, &failed)
	})
	same(t, runSummary(n.ended(t, "ns", "items")), "FAILED: p FAILED")
	if k := n.Count(t, "SELECT count(*) FROM processes WHERE status = 'SUSPENDED'"); k != 0 {
		t.Errorf("%d processes are suspended", k)
	}
}
