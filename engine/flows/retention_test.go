package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestRunsAreRemovedCompletely checks that the jobs of a run are kept as long as the run and
// removed with it. The jobs of a run whose ID begins with the same text stay.
func TestRunsAreRemovedCompletely(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "whole", "steps": [
		{"step_id": "each", "job": {}, "for_each": {"items": "payload"}},
		{"step_id": "other", "job": {"namespace": "pull"}}, {"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`)
	items := `[0`
	for i := 1; i < 130; i++ { // more than one batch of removals
		items += fmt.Sprintf(",%d", i)
	}
	n.run(t, "ns", "whole", "r", items+"]")
	n.answer(t, n.lease(t), "", "")
	n.run(t, "ns", "whole", "r/2", "[0]")
	n.answer(t, n.lease(t), "", "")
	n.until(t, "ns", "r", "WAITING_WORKER")
	n.until(t, "ns", "r/2", "WAITING_WORKER")
	count := func(what string) (rows int) {
		t.Helper()
		if err := n.DB.QueryRow(ctx, "SELECT count(*) FROM "+what).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	old := func() {
		t.Helper()
		if _, err := n.DB.Exec(ctx, `UPDATE processes SET attention_time = attention_time - interval '1 day',
			status_changed_time = status_changed_time - interval '1 day',
			created_time = created_time - interval '1 day' WHERE attention IS NOT NULL`); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			expired, err := n.Store.Expire(ctx, map[string]storage.Retention{
				"ns":   {Completed: time.Hour, Failed: time.Hour, Cancelled: time.Hour},
				"pull": {Completed: time.Hour, Failed: time.Hour, Cancelled: time.Hour},
			})
			if err != nil {
				t.Fatal(err)
			}
			more = len(expired) > 0
		}
		for more := 1; more > 0; {
			var err error
			if more, err = n.Store.PurgeRemoved(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	old()
	if jobs := count("jobs"); jobs != 130+1+1+1 {
		t.Fatalf("%d jobs are left while their runs continue", jobs)
	}
	answer := result(nil)
	answer.Namespace = "ns"
	if _, err := n.completeIn("r", "ask", "", answer); err != nil {
		t.Fatal(err)
	}
	n.ended(t, "ns", "r")
	old()
	if runs, steps, jobs, processes := count("flow_runs"), count("flow_steps"), count("jobs"),
		count("processes"); runs != 1 || steps != 4 || jobs != 2 || processes != 3 {
		t.Fatalf("%d runs, %d steps, %d jobs and %d processes are left", runs, steps, jobs, processes)
	}
}

// TestRemoveRun checks that RemoveRun removes a run that has ended, its steps and its jobs, but not
// those of a run whose ID begins with the same text.
func TestRemoveRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "whole", "steps": [
		{"step_id": "each", "job": {}, "for_each": {"items": "payload"}},
		{"step_id": "other", "job": {"namespace": "pull"}}]}`)
	n.run(t, "ns", "whole", "r", "[0, 1, 2]")
	n.run(t, "ns", "whole", "r/2", "[0]")
	l := n.lease(t)
	n.answer(t, n.lease(t), "", "")

	var status *flows.StatusError
	unended, removed := "r", "r/2"
	if l.GetJob().GetJobId() == "~job/r/2/other" {
		unended, removed = removed, unended
	}
	if err := n.Remove(ctx, "ns", unended, kim); !errors.As(err, &status) ||
		!strings.Contains(status.Message, "CancelRun") {
		t.Fatalf("a run that has not ended: %v", err)
	}
	n.ended(t, "ns", removed)
	jobs := n.Count(t, "SELECT count(*) FROM jobs")
	if err := n.Remove(ctx, "ns", removed, kim); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(ctx, "ns", removed, kim); !errors.Is(err, process.ErrRunNotFound) {
		t.Fatalf("a run that was removed: %v", err)
	}
	items := map[string]int{"r": 3, "r/2": 1}
	same(t, fmt.Sprint("jobs: ", n.Count(t, "SELECT count(*) FROM jobs")),
		fmt.Sprint("jobs: ", jobs-items[removed]-1))
	for _, table := range []string{"flow_runs", "flow_steps"} {
		if k := n.Count(t, "SELECT count(*) FROM "+table+" WHERE run_id = '"+removed+"'"); k != 0 {
			t.Errorf("%d rows in %s", k, table)
		}
	}
	same(t, n.audited(t), "kim RemoveRun ~flow/"+removed)
	n.answer(t, l, "", "")
	same(t, runSummary(n.ended(t, "ns", unended)), "SUCCEEDED: each SUCCEEDED other SUCCEEDED")
	n.run(t, "ns", "whole", removed, "[0]") // its ID is free again
	n.answer(t, n.lease(t), "", "")
	same(t, runSummary(n.ended(t, "ns", removed)), "SUCCEEDED: each SUCCEEDED other SUCCEEDED")
}

// audited returns the commands for runs in the audit.
func (n *node) audited(t *testing.T) (commands string) {
	t.Helper()
	row := n.DB.QueryRow(context.Background(),
		`SELECT coalesce(string_agg(concat_ws(' ', actor, method, subject), ', ' ORDER BY audit_id), '')
		FROM audit WHERE method LIKE '%Run'`)
	if err := row.Scan(&commands); err != nil {
		t.Fatal(err)
	}
	return commands
}
