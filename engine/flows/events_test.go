package flows_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// eventText describes an event of a run or of the job of a step.
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
		page, next, err := n.jobs.ListEvents(t.Context(), q)
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

// TestEventsOfRun checks that the events of a run and of the jobs of its steps tell when it was
// queued, when a worker began, and when it waited for an answer, in a list and in a watch.
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

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var watched []string
	request := &progressorv1.WatchJobEventsRequest{
		Namespace: "pull", Filter: `type != enqueued AND run_id = r`, Cursor: "0.0",
	}
	err := n.jobs.WatchEvents(ctx, request, func(r *progressorv1.WatchJobEventsResponse) error {
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
