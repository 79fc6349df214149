package flows_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/streams"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// eventText describes an event of a run or a step's job.
func eventText(e *progressorv1.JobEvent) string {
	words := []string{e.GetStepId(), e.GetType(), e.GetFrom(), "to", e.GetTo(), e.GetWorkerId()}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// runEvents returns the events that the filter run_id finds, oldest first, without the enqueues.
func (n *node) runEvents(t *testing.T, runID string) (list []string) {
	t.Helper()
	q := &progressorv1.ListJobEventsRequest{
		Namespace: "pull", Filter: `type != enqueued AND run_id = "` + runID + `"`, PageSize: 3,
	}
	for {
		page, next, err := n.Jobs.ListEvents(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			list = append(list, eventText(e))
		}
		if q.PageToken = next; next == "" {
			slices.Reverse(list)
			return list
		}
	}
}

// TestEventsOfRun checks that the events of a run and its step jobs show when the run was queued,
// when a worker began, and when the run waited for an answer. A list and a watch return the same
// events.
func TestEventsOfRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "all", "steps": [{"step_id": "a", "job": {}},
		{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}},
		{"step_id": "pause", "delay": {"duration": "0.01s"}}, {"step_id": "z", "job": {"options": {"max_retry": 0}}}]}`)
	n.run(t, "pull", "all", "r", "")
	n.run(t, "pull", "all", "r2", "")
	n.answer(t, n.lease(t), "1", "")
	n.until(t, "pull", "r", "WAITING_WORKER")
	if _, err := n.complete("r", "ask", "", result(nil)); err != nil {
		t.Fatal(err)
	}
	n.answer(t, n.lease(t, "z"), "", "broken")
	n.ended(t, "pull", "r")
	want := []string{
		"a step_queued to", "status_changed to queued",
		"a started available to running w", "a succeeded running to succeeded w",
		"a step_status_changed running to succeeded w", "ask step_status_changed pending to running",
		"status_changed running to waiting_worker",
		"ask step_status_changed running to succeeded outside", "pause step_status_changed pending to running",
		"status_changed waiting_worker to running",
		"pause step_status_changed running to succeeded", "z step_queued to", "status_changed running to queued",
		"z started available to running w", "z attempt_failed running to failed w",
		"z step_status_changed running to failed w", "status_changed running to failed",
	}
	same(t, strings.Join(n.runEvents(t, "r"), "\n"), strings.Join(want, "\n"))
	same(t, strings.Join(n.runEvents(t, "r2"), "\n"), "a step_queued to\nstatus_changed to queued")
	events, _, err := n.Jobs.ListEvents(t.Context(),
		&progressorv1.ListJobEventsRequest{Namespace: "pull", Filter: "run_id = r AND to = failed"})
	if err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	for _, e := range events { // those of the run, the step and its job
		same(t, e.GetMessage(), "broken: as asked")
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var watched []string
	request := &progressorv1.WatchJobEventsRequest{
		Namespace: "pull", Filter: `type != enqueued AND run_id = r`, Cursor: "0.0",
	}
	err = n.Jobs.WatchEvents(ctx, request, func(r *progressorv1.WatchJobEventsResponse) error {
		if watched = append(watched, eventText(r.GetEvent())); len(watched) == len(want) {
			stop()
		}
		return nil
	})
	if ctx.Err() == nil {
		t.Fatal(err)
	}
	same(t, strings.Join(watched, "\n"), strings.Join(want, "\n"))
}

// TestEventsOfFailedRun checks that the events of a run do not repeat the failure of a step while
// other steps still run.
func TestEventsOfFailedRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "late", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "job": {"options": {"max_retry": 0}}},
		{"step_id": "z", "depends_on": ["a"], "join_rule": "JOIN_RULE_ALL_ENDED", "job": {}}]}`)
	n.run(t, "pull", "late", "r", "")
	n.answer(t, n.lease(t), "", "broken")
	n.answer(t, n.lease(t, "z"), "1", "")
	n.ended(t, "pull", "r")
	events, _, err := n.Jobs.ListEvents(t.Context(),
		&progressorv1.ListJobEventsRequest{Namespace: "pull", Filter: "run_id = r AND type = status_changed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if failed := e.GetTo() == "failed"; failed != (e.GetMessage() != "") {
			t.Errorf("%s: %q", e.GetTo(), e.GetMessage())
		}
	}
}

// changesOf returns the changes that a client receives when it watches one kind of changes of
// namespace "pull".
func (n *node) changesOf(t *testing.T, kind progressorv1.ChangeKind, processID string) string {
	t.Helper()
	var lines []string
	request := &progressorv1.WatchChangesRequest{
		Namespace: "pull", Kinds: []progressorv1.ChangeKind{kind}, ProcessId: processID, Stop: true,
		FromTime: timestamppb.New(time.Unix(0, 0)),
	}
	err := streams.New(n.Engine, n.Store).Watch(t.Context(), request, func(r *progressorv1.WatchChangesResponse) error {
		for _, c := range r.GetChanges() {
			words := []string{
				c.GetProcessId(), c.GetDetails().GetFields()["step_id"].GetStringValue(), c.GetType(), c.GetToStatus(),
			}
			lines = append(lines, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestChangesOfRun checks that the changes of a run, of its steps and items, and of their jobs are
// recorded with their kinds and IDs, although a job has the same ID as the run.
func TestChangesOfRun(t *testing.T) {
	t.Parallel()
	const job, step, run = progressorv1.ChangeKind_CHANGE_KIND_JOB, progressorv1.ChangeKind_CHANGE_KIND_STEP,
		progressorv1.ChangeKind_CHANGE_KIND_RUN
	n := start(t, storagetest.DSN(t))
	if _, err := n.PutNamespace(t.Context(), &progressorv1.Namespace{
		Namespace: "pull",
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
		},
		Changes: &progressorv1.ChangeSettings{Kinds: []progressorv1.ChangeKind{job, step, run}},
	}); err != nil {
		t.Fatal(err)
	}
	n.put(t, "pull", `{"type": "each", "steps": [{"step_id": "a", "job": {}, "for_each": {"items": "[1]"}},
		{"step_id": "b", "job": {"options": {"max_retry": 0}}}, {"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`)
	sameID := &progressorv1.EnqueueRequest{Namespace: "pull", JobId: "r", Name: "other"}
	if _, err := n.Jobs.Enqueue(t.Context(), sameID, kim); err != nil {
		t.Fatal(err)
	}
	n.run(t, "pull", "each", "r", "")
	n.answer(t, n.lease(t, "a"), "", "")
	n.answer(t, n.lease(t, "b"), "", "broken")
	n.ended(t, "pull", "r")
	n.retry(t, &progressorv1.RetryRunRequest{RunId: "r"})
	n.answer(t, n.lease(t, "b"), "", "")
	n.until(t, "pull", "r", "WAITING_WORKER")
	n.cancel(t, "pull", "r")
	n.ended(t, "pull", "r")
	same(t, n.changesOf(t, run, ""), `~flow/r status_changed running
~flow/r status_changed queued
~flow/r status_changed failed
~flow/r retried
~flow/r status_changed queued
~flow/r status_changed waiting_worker
~flow/r cancel_requested
~flow/r status_changed cancelled`)
	same(t, n.changesOf(t, step, "~flow/r"), `~flow/r a step_status_changed running
~flow/r a step_queued
~flow/r a step_status_changed succeeded
~flow/r a step_status_changed succeeded
~flow/r b step_queued
~flow/r b step_status_changed failed
~flow/r ask step_status_changed cancelled
~flow/r b step_queued
~flow/r b step_status_changed succeeded
~flow/r ask step_status_changed running
~flow/r ask step_status_changed cancelled`)
	same(t, n.changesOf(t, job, "r"), "r enqueued available")
	ofJobs := n.changesOf(t, job, "")
	if strings.Contains(ofJobs, "status_changed") || strings.Contains(ofJobs, "retried") ||
		!strings.Contains(ofJobs, "~job/r/b attempt_failed failed") {
		t.Errorf("changes of jobs:\n%s", ofJobs)
	}
}
