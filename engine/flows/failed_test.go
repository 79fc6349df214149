package flows_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// jobsIn returns the IDs of the jobs with a status, in order.
func (n *node) jobsIn(t testing.TB, status string) (list string) {
	t.Helper()
	err := n.DB.QueryRow(context.Background(),
		`SELECT coalesce(string_agg(process_id, ' ' ORDER BY process_id), '') FROM processes WHERE kind = 'job'
			AND status = $1::process_status`, status).Scan(&list)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// awaitJobs waits until exactly the jobs inError are in ERROR, and exactly the jobs cancelled are
// CANCELLED.
func (n *node) awaitJobs(t testing.TB, inError, cancelled string) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, fmt.Sprintf("%q are in ERROR and %q are CANCELLED", inError, cancelled),
		func() bool {
			return n.jobsIn(t, "ERROR") == inError && n.jobsIn(t, "CANCELLED") == cancelled
		})
}

// TestFailedJobsOfStepsThatAreDoneAgain checks that no job stays in ERROR if it needs no operator.
// A failed job stays in ERROR while its run is FAILED. The retry of the run sets the job to
// CANCELLED.
func TestFailedJobsOfStepsThatAreDoneAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "again", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["0.001s"]}},
		"steps": [
		{"step_id": "ship", "job": {}},
		{"step_id": "each", "job": {}, "for_each": {"items": "payload", "max_failures": 1}}]}`)
	n.run(t, "pull", "again", "r1", `["a", "b"]`)
	n.answer(t, n.lease(t, "ship"), "", "broken")
	n.answer(t, n.lease(t, "ship"), "", "broken")
	n.ended(t, "pull", "r1")
	n.awaitJobs(t, "~job/r1/ship~2", "~job/r1/ship")

	_, err := n.Retry(context.Background(), &progressorv1.RetryRunRequest{Namespace: "pull", RunId: "r1"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.awaitJobs(t, "", "~job/r1/ship ~job/r1/ship~2")
	n.answer(t, n.lease(t, "ship"), "", "")
	// Too many items fail, and the items run again. Then one item fails, which is allowed. The job
	// of this item stays in ERROR until the run has succeeded.
	n.answer(t, n.lease(t, "each"), "", "broken")
	n.answer(t, n.lease(t, "each"), "", "broken")
	n.answer(t, n.lease(t, "each"), "", "broken")
	n.awaitJobs(t, "~job/r1/each.0~4", "~job/r1/each.0~3 ~job/r1/each.1~3 ~job/r1/ship ~job/r1/ship~2")
	n.answer(t, n.lease(t, "each"), "", "")
	same(t, runSummary(n.ended(t, "pull", "r1")), "SUCCEEDED: ship SUCCEEDED 3 each SUCCEEDED 2")
	n.awaitJobs(t, "", "~job/r1/each.0~3 ~job/r1/each.0~4 ~job/r1/each.1~3 ~job/r1/ship ~job/r1/ship~2")
}

// TestFailedJobsThatAreIgnored checks that ignored failed jobs are CANCELLED as soon as their run
// continues.
func TestFailedJobsThatAreIgnored(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ignores", "steps": [{"step_id": "a", "job": {}, "ignore_failure": true},
		{"step_id": "b", "job": {}}]}`)
	n.run(t, "pull", "ignores", "r1", "")
	n.answer(t, n.lease(t, "a"), "", "broken")
	n.awaitJobs(t, "", "~job/r1/a")

	// The failure of a job is also ignored if an operator has skipped the step of the job in the
	// meantime.
	n.run(t, "pull", "ignores", "r2", "")
	l := n.lease(t, "a")
	_, err := n.Skip(context.Background(), &progressorv1.SkipStepRequest{
		Namespace: "pull", RunId: "r2", StepId: "a",
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.answer(t, l, "", "broken")
	n.awaitJobs(t, "", "~job/r1/a ~job/r2/a")
}
