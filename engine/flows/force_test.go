package flows_test

import (
	"context"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	storedflows "github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (n *node) force(t testing.TB, runID string) *progressorv1.Run {
	t.Helper()
	r, err := n.Cancel(context.Background(), &progressorv1.CancelRunRequest{
		Namespace: "pull", RunId: runID, Reason: "stuck", Force: true,
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestForceCancel ends runs that would not end otherwise: a run whose compensation no worker takes,
// a run with a step that is not cancelable, and a run whose process is in ERROR. A run whose
// compensation was cancelled can be retried.
func TestForceCancel(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "undo", "cancel_policy": {"supported": false}, "steps": [
		{"step_id": "a", "job": {}, "compensation": {"name": "undo_a"}},
		{"step_id": "b", "job": {}, "compensation": {"name": "undo_b"}},
		{"step_id": "c", "job": {}, "cancelable": false}]}`)
	n.run(t, "pull", "undo", "r1", "")
	for _, step := range []string{"a", "b"} {
		n.answer(t, n.lease(t, step), "", "")
	}
	n.answer(t, n.lease(t, "c"), "", "broken")
	n.until(t, "pull", "r1", "COMPENSATING")
	r := n.force(t, "r1")
	same(t, runSummary(r)+" "+r.GetFailure().GetReason(),
		"FAILED: a SUCCEEDED b SUCCEEDED undo CANCELLED c FAILED broken")
	n.awaitJobs(t, "~job/r1/c", "~job/r1/b.undo")

	_, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{Namespace: "pull", RunId: "r1"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "c"), "", "broken")
	n.answer(t, n.lease(t, "undo_b"), "", "")
	n.answer(t, n.lease(t, "undo_a"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r1")),
		"FAILED: a SUCCEEDED undo SUCCEEDED b SUCCEEDED undo SUCCEEDED c FAILED 2")

	n.put(t, "pull", `{"type": "deaf", "cancel_policy": {"supported": false},
		"steps": [{"step_id": "d", "job": {}, "cancelable": false}]}`)
	for _, runID := range []string{"r2", "r3"} {
		n.run(t, "pull", "deaf", runID, "")
		n.lease(t, "d")
		if runID == "r3" {
			n.breaks(t, runID)
		}
		same(t, runSummary(n.force(t, runID)), "CANCELLED: d CANCELLED")
	}
}

// breaks sets the process of a run to ERROR, as a failure of the engine does.
func (n *node) breaks(t testing.TB, runID string) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE processes SET status = 'ERROR', attention = 'ERROR', attention_time = statement_timestamp(),
			corrupted_by = 1,
			detail = 'broken' WHERE process_id = '~flow/` + runID + `'`,
		`INSERT INTO status_counts (namespace, status, n) VALUES ('pull', 'RUNNING', -1), ('pull', 'ERROR', 1)
			ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n`,
	} {
		if _, err := n.DB.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLateEndLeavesReopenedRun reopens a run for a retry while a job of the last attempt still
// runs. The end of that job does not end the run again before the retry arrives.
func TestLateEndLeavesReopenedRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "deaf", "steps": [{"step_id": "d", "job": {}, "cancelable": false}]}`)
	n.run(t, "pull", "deaf", "r", "")
	late := n.lease(t, "d")
	same(t, runSummary(n.force(t, "r")), "CANCELLED: d CANCELLED")

	reopened, err := storedflows.Reopen(t.Context(), n.Store, "pull", "r")
	if err != nil || !reopened {
		t.Fatal(reopened, err)
	}
	n.answer(t, late, "", "")
	enginetest.Eventually(t, testTimeout, "the run handles the end of the job", func() bool {
		return n.ask(t, `SELECT (count(*) > 0)::text FROM task_list WHERE process_id = '~flow/r'
			AND task_type = 'NOTIFY' AND finished_time IS NOT NULL`) == "true"
	})
	if _, err := n.Call(t.Context(), engine.CallParams{
		Key:  process.Key{Namespace: "pull", ProcessID: "~flow/r"},
		Args: []byte(`{"method": "RetryRun"}`), Internal: true,
	}); err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "d"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "SUCCEEDED: d SUCCEEDED 2")
}

// TestTimeoutOfCompensation checks that an attempt of a compensation is bounded by the timeout in
// its own options, or by the default of 30 s, and not by the timeout of its step.
func TestTimeoutOfCompensation(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "undo", "steps": [
		{"step_id": "a", "timeout": "3600s", "job": {}, "compensation": {"name": "undo_a"}},
		{"step_id": "b", "timeout": "3600s", "job": {}, "compensation": {"name": "undo_b",
		"options": {"timeout": "0.5s", "max_retry": 0, "max_takeovers": 0}}},
		{"step_id": "c", "job": {}}]}`)
	n.run(t, "pull", "undo", "r", "")
	n.answer(t, n.lease(t, "a"), "", "")
	n.answer(t, n.lease(t, "b"), "", "")
	n.answer(t, n.lease(t, "c"), "", "broken")
	n.lease(t, "undo_b") // its worker does not answer
	l := n.lease(t, "undo_a")
	if limit := l.GetRequest().GetDeadline().AsTime().Sub(l.GetLeasedTime().AsTime()); limit != 30*time.Second {
		t.Errorf("an attempt of the compensation of a may take %v", limit)
	}
	n.answer(t, l, "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "FAILED: a SUCCEEDED undo SUCCEEDED b SUCCEEDED undo FAILED c FAILED")
}
