package flows_test

import (
	"context"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// stepEvents returns the events of the steps of a run that match a condition, in order.
func (n *node) stepEvents(t *testing.T, runID, condition string) (events string) {
	t.Helper()
	row := n.db.QueryRow(context.Background(), `SELECT coalesce(string_agg(concat_ws(' ', step_id, type, to_status, worker_id), ', ' ORDER BY event_id), '')
		FROM job_events WHERE job_id = $1 AND step_id IS NOT NULL AND `+condition, runID)
	if err := row.Scan(&events); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestStepNamesItsWorker checks that the row and the event of a step that has ended name the worker
// of its job, and that the row contains the start of the job.
func TestStepNamesItsWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}]}`)
	for _, reason := range []string{"", "broken"} {
		runID, to := "succeeds", "succeeded"
		if reason != "" {
			runID, to = "fails", "failed"
		}
		n.run(t, "pull", "one", runID, "")
		l := n.lease(t)
		var leased time.Time
		row := n.db.QueryRow(context.Background(), "SELECT running_time FROM running WHERE process_id = $1", "~job/"+runID+"/a")
		if err := row.Scan(&leased); err != nil {
			t.Fatal(err)
		}
		n.answer(t, l, "1", reason)
		s := n.ended(t, "pull", runID).GetSteps()[0]
		if s.GetWorkerId() != "w" || !s.GetRunningTime().AsTime().Equal(leased) {
			t.Errorf("%s: by %q since %v, want w since %v", runID, s.GetWorkerId(), s.GetRunningTime().AsTime(), leased)
		}
		same(t, n.stepEvents(t, runID, "to_status = '"+to+"'"), "a step_status_changed "+to+" w")
	}
	if k := enginetest.Count(t, n.db, "SELECT count(*) FROM flow_steps WHERE worker_id = 'w'"); k != 2 {
		t.Errorf("%d rows name the worker", k)
	}
}

// TestTimeoutCountsFromFirstStep checks that the timeout of a run counts from the start of its
// first step, not from StartRun.
func TestTimeoutCountsFromFirstStep(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "short", "timeout": "0.2s", "cancel_policy": {"grace": "0s"}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "short", "short", "")
	enginetest.Eventually(t, testTimeout, "the run looks at its clock twice", func() bool {
		return enginetest.Count(t, n.db, "SELECT count(*) FROM tasks WHERE process_id = '~flow/short' AND task_type = 'TIMEOUT'") >= 2
	})
	same(t, runSummary(n.until(t, "pull", "short", "QUEUED")), "QUEUED: a PENDING")
	n.lease(t)
	same(t, runSummary(n.ended(t, "pull", "short")), "EXPIRED: a CANCELLED")
}

// TestCancelEventsOfSteps checks that the events of a run say how the cancels of its jobs ended.
func TestCancelEventsOfSteps(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	const cancels = "type LIKE 'cancel%'"
	n.put(t, "pull", `{"type": "one", "cancel_policy": {"grace": "3600s"}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "one", "obeys", "")
	l := n.lease(t)
	n.cancel(t, "pull", "obeys")
	n.acknowledge(t, l)
	n.ended(t, "pull", "obeys")
	same(t, n.stepEvents(t, "obeys", cancels), "a cancel_requested, a cancel_acknowledged w")
	n.put(t, "pull", `{"type": "deaf", "cancel_policy": {"grace": "0s"}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "deaf", "deaf", "")
	n.lease(t)
	n.cancel(t, "pull", "deaf")
	n.ended(t, "pull", "deaf")
	same(t, n.stepEvents(t, "deaf", cancels), "a cancel_requested, a cancel_grace_expired")
}
