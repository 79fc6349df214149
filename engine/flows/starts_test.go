package flows_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// stepEvents returns the events of the steps of a run that match a condition, in order.
func (n *node) stepEvents(t *testing.T, runID, condition string) (events string) {
	t.Helper()
	row := n.DB.QueryRow(context.Background(),
		`SELECT coalesce(string_agg(concat_ws(' ', step_id, type, to_status, worker_id), ', ' ORDER BY event_id), '')
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
		row := n.DB.QueryRow(context.Background(), "SELECT running_time FROM running WHERE process_id = $1",
			"~job/"+runID+"/a")
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
	if k := n.Count(t, "SELECT count(*) FROM flow_steps WHERE worker_id = 'w'"); k != 2 {
		t.Errorf("%d rows have the worker", k)
	}
}

// TestTimeoutCountsFromFirstStep checks that the timeout of a run counts from the start of its
// first step, not from StartRun.
func TestTimeoutCountsFromFirstStep(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "short", "timeout": "0.2s", "cancel_policy": {"grace": "0s"},
		"steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "short", "short", "")
	enginetest.Eventually(t, testTimeout, "the timer of the run has fired twice", func() bool {
		return enginetest.Count(t, n.DB,
			"SELECT count(*) FROM tasks WHERE process_id = '~flow/short' AND task_type = 'TIMEOUT'") >= 2
	})
	same(t, runSummary(n.until(t, "pull", "short", "QUEUED")), "QUEUED: a PENDING")
	n.lease(t)
	same(t, runSummary(n.ended(t, "pull", "short")), "EXPIRED: a CANCELLED")
}

// TestCancelEventsOfSteps checks that the events of a run show how the cancels of its jobs ended.
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

// began returns the attempts of a run and its steps. Each is followed by + if it has a start time,
// and by - otherwise.
func began(r *progressorv1.Run) string {
	one := func(attempt int32, at *timestamppb.Timestamp) string {
		if at == nil {
			return fmt.Sprintf("%d -", attempt)
		}
		return fmt.Sprintf("%d +", attempt)
	}
	s := one(r.GetAttempt(), r.GetRunningTime())
	for _, step := range r.GetSteps() {
		s += ", " + step.GetStepId() + " " + one(step.GetAttempt(), step.GetRunningTime())
	}
	return s
}

// viewedSteps returns the steps in the format of began, from the view step_list.
func (n *node) viewedSteps(t *testing.T, runID string) string {
	t.Helper()
	rows, err := n.DB.Query(t.Context(),
		`SELECT step_id || ' ' || attempt || CASE WHEN running_time IS NULL THEN ' -' ELSE ' +' END
		FROM step_list WHERE namespace = 'pull' AND run_id = $1 ORDER BY ord`, runID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, ", ")
}

// leasedTime returns when a worker took the job of a step.
func (n *node) leasedTime(t *testing.T, jobID string) (leased time.Time) {
	t.Helper()
	row := n.DB.QueryRow(t.Context(), "SELECT running_time FROM running WHERE process_id = $1", jobID)
	if err := row.Scan(&leased); err != nil {
		t.Fatal(err)
	}
	return leased
}

// sameTime reports whether a time of a view is equal to the time of the API.
func sameTime(a *time.Time, b *timestamppb.Timestamp) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Equal(b.AsTime())
}

// TestRunStartsWithItsFirstWorker checks that a run and its steps have no start time and no attempt
// before a worker takes the job of a step. They then get the start time and the attempt of that
// worker.
func TestRunStartsWithItsFirstWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "two", "steps": [
		{"step_id": "a", "job": {"options": {"max_retry": 1, "backoff": {"steps": ["3600s"]}}}},
		{"step_id": "b", "job": {}}]}`)
	looks := func(want string) *progressorv1.Run {
		t.Helper()
		r, err := n.Get(t.Context(), "pull", "r", 0)
		if err != nil {
			t.Fatal(err)
		}
		same(t, began(r), want)
		_, steps, _ := strings.Cut(want, ", ")
		same(t, n.viewedSteps(t, "r"), steps)
		return r
	}
	same(t, began(n.run(t, "pull", "two", "r", "")), "0 -, a 0 -, b 0 -")
	looks("0 -, a 0 -, b 0 -")
	l := n.lease(t)
	first := n.leasedTime(t, "~job/r/a")
	r := looks("1 +, a 1 +, b 0 -")
	a := r.GetSteps()[0]
	if !r.GetRunningTime().AsTime().Equal(first) || !a.GetRunningTime().AsTime().Equal(first) ||
		a.GetWorkerId() != "w" {
		t.Errorf("the worker took the job at %v, but the run has %v and its step %v", first, r.GetRunningTime(), a)
	}
	n.answer(t, l, "", "broken")
	looks("1 -, a 1 -, b 0 -") // the job waits for its next attempt
	if _, err := n.Jobs.Retry(t.Context(), process.Key{
		Namespace: "pull", ProcessID: "~job/r/a",
	}, false, kim); err != nil {
		t.Fatal(err)
	}
	l = n.lease(t)
	second := n.leasedTime(t, "~job/r/a")
	n.answer(t, l, "1", "")
	enginetest.Eventually(t, testTimeout, "b begins", func() bool {
		return n.Count(t, "SELECT count(*) FROM flow_steps WHERE step_id = 'b'") == 1
	})
	if r = looks("1 +, a 1 +, b 0 -"); !r.GetRunningTime().AsTime().Equal(second) {
		t.Errorf("the run began at %v, want %v", r.GetRunningTime().AsTime(), second)
	}
	n.answer(t, n.lease(t), "1", "")
	n.ended(t, "pull", "r")
	if r = looks("1 +, a 1 +, b 1 +"); !r.GetRunningTime().AsTime().Equal(second) {
		t.Errorf("the run that has ended began at %v, want %v", r.GetRunningTime().AsTime(), second)
	}
}

// TestStepWithoutAttempt checks that a step ends without a start time and without an attempt if no
// worker took its job. A step that ends before its job keeps the start time of the job.
func TestStepWithoutAttempt(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}]}`)
	n.run(t, "pull", "one", "cancelled", "")
	n.cancel(t, "pull", "cancelled")
	same(t, began(n.ended(t, "pull", "cancelled")), "1 -, a 0 -")
	same(t, n.stepEvents(t, "cancelled", "to_status = 'cancelled' AND from_status = 'pending'"),
		"a step_status_changed cancelled")
	if _, err := n.Retry(t.Context(), &progressorv1.RetryRunRequest{
		Namespace: "pull", RunId: "cancelled",
	}, kim); err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t), "1", "")
	same(t, began(n.ended(t, "pull", "cancelled")), "1 +, a 1 +")

	n.run(t, "pull", "one", "skipped", "")
	n.lease(t)
	leased := n.leasedTime(t, "~job/skipped/a")
	if _, err := n.Skip(t.Context(), &progressorv1.SkipStepRequest{
		Namespace: "pull", RunId: "skipped", StepId: "a",
	}, kim); err != nil {
		t.Fatal(err)
	}
	r := n.ended(t, "pull", "skipped")
	same(t, began(r), "1 +, a 1 +")
	if at := r.GetSteps()[0].GetRunningTime().AsTime(); !at.Equal(leased) {
		t.Errorf("the step began at %v, want %v", at, leased)
	}
}

// TestStepsUpdateTheirRun checks that a step changes the updated_time of its run only if the row of
// the run was written more than a minute ago, so that the row is not written for each step.
func TestStepsUpdateTheirRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "three", "steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}},
		{"step_id": "c", "job": {}}]}`)
	n.run(t, "pull", "three", "r", "")
	updated := func() time.Time {
		t.Helper()
		r, err := n.Get(t.Context(), "pull", "r", 0)
		if err != nil {
			t.Fatal(err)
		}
		return r.GetUpdatedTime().AsTime()
	}
	// step sets the creation time of the run, ends the current step and waits for the next one.
	step := func(created, next string) {
		t.Helper()
		storagetest.Exec(t, n.DB, `UPDATE processes SET aux_state = convert_to(
			jsonb_set(convert_from(aux_state, 'UTF8')::jsonb, '{created}', to_jsonb($1::text))::text, 'UTF8')
			WHERE process_id = '~flow/r'`, created)
		n.answer(t, n.lease(t), "1", "")
		enginetest.Eventually(t, testTimeout, next+" begins", func() bool {
			return n.Count(t, "SELECT count(*) FROM flow_steps WHERE step_id = $1", next) == 1
		})
	}
	before := updated()
	step("2100-01-01T00:00:00Z", "b")
	if at := updated(); !at.Equal(before) {
		t.Errorf("a step changed the updated_time of the run by %v", at.Sub(before))
	}
	step("2026-01-01T00:00:00Z", "c")
	if at := updated(); !at.After(before) {
		t.Error("a step did not change the updated_time of its run, which was older than a minute")
	}
}
