package explain_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// A call whose response was deferred has waited for its reply, and the process was not busy in the
// meantime.
func TestSpansOfDeferredCalls(t *testing.T) {
	t.Parallel()
	fired := ran(4, process.TaskTimeout, 50, 50, 51)
	cancelled := call(3, "", 20)
	cancelled.Status, cancelled.Attempt, cancelled.Finished = process.TaskStatusCancelled, 1, at(60)
	behind := call(5, "", 55)
	behind.Status, behind.Finished = process.TaskStatusCancelled, at(60)
	failed := ran(6, process.TaskNotify, 59, 59, 60)
	e := explain.Explain(state(ended(ran(2, process.TaskCall, 10, 10, 51), cancelled, fired, behind, failed)))
	var got []string
	for _, s := range e.Spans {
		to := ""
		if !s.To.IsZero() {
			to = fmt.Sprintf("%g", s.To.Sub(at(0)).Seconds())
		}
		got = append(got, fmt.Sprintf("%s %d %g-%s", s.What, s.TaskID, s.From.Sub(at(0)).Seconds(), to))
	}
	want := []string{"processing 1 0-1", "time 4 1-50", "reply 2 10-51", "reply 3 20-60", "processing 4 50-51",
		"idle 0 51-55", "process 5 55-60", "processing 6 59-60", "idle 0 60-"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
