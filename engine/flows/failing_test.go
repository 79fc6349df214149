package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestFailingRunIsReported checks that a run whose own task has failed for more than a minute is
// reported until the task succeeds.
func TestFailingRunIsReported(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "join", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}},
		{"step_id": "c", "job": {}, "depends_on": ["a", "b"], "input": "${steps.a.result}"}]}`)
	n.run(t, "pull", "join", "r", "")
	a, b := n.lease(t, "a"), n.lease(t, "b")
	n.answer(t, a, `"of a"`, "")
	n.until(t, "pull", "r", "RUNNING: a SUCCEEDED b RUNNING")
	lock := storagetest.Begin(t, n.DB, "LOCK TABLE flow_steps")
	n.answer(t, b, `"of b"`, "")
	enginetest.Eventually(t, testTimeout, "the run's task fails", func() bool {
		storagetest.Exec(t, n.DB, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ReadSteps%'`)
		return n.Count(t, "SELECT count(*) FROM failed_attempts WHERE process_id = '~flow/r'") > 0
	})
	report := func() string {
		t.Helper()
		tasks, err := insight.ListFailingTasks(t.Context(), n.DB, time.Minute, 10)
		if err != nil {
			t.Fatal(err)
		}
		list := ""
		for _, f := range tasks {
			list += fmt.Sprintf("%s %s %s ", f.Key.Namespace, f.Key.ProcessID, f.Type)
		}
		return list
	}
	same(t, report(), "")
	storagetest.Exec(t, n.DB, "UPDATE failed_attempts SET failed_time = failed_time - interval '1 minute'")
	same(t, report(), "pull ~flow/r NOTIFY ")
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "c"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r")), "SUCCEEDED: a SUCCEEDED b SUCCEEDED c SUCCEEDED")
	same(t, report(), "")
}
