package explain_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// spansOf returns the spans of a process, such as "processing 1 0-1".
func spansOf(s explain.State) []string {
	var list []string
	for _, span := range explain.Explain(s).Spans {
		to := ""
		if !span.To.IsZero() {
			to = fmt.Sprintf("%g", span.To.Sub(at(0)).Seconds())
		}
		list = append(list, fmt.Sprintf("%s %d %g-%s", span.What, span.TaskID, span.From.Sub(at(0)).Seconds(), to))
	}
	return list
}

// A call whose response was deferred has waited for its reply, and the process was not busy in the
// meantime.
func TestSpansOfDeferredCalls(t *testing.T) {
	t.Parallel()
	fired := ran(4, process.TaskTimeout, 50, 50, 51)
	cancelled := ran(3, process.TaskCall, 20, 20, 60)
	cancelled.Status = process.TaskStatusCancelled
	behind := call(5, "", 55)
	behind.Status, behind.Finished = process.TaskStatusCancelled, at(60)
	failed := ran(6, process.TaskNotify, 59, 59, 60)
	got := spansOf(state(ended(ran(2, process.TaskCall, 10, 10, 51), cancelled, fired, behind, failed)))
	want := []string{"processing 1 0-1", "time 4 1-50", "reply 2 10-51", "reply 3 20-60", "processing 4 50-51",
		"idle 0 51-55", "process 5 55-60", "processing 6 59-60", "idle 0 60-"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// The last task of a process may be a call that was cancelled with the process. If the call lasted
// longer than an attempt may take, it has waited for its reply. Otherwise, it ran.
func TestSpansOfTheLastDeferredCall(t *testing.T) {
	t.Parallel()
	for end, want := range map[float64][]string{
		60: {"processing 1 0-1", "idle 0 1-60", "reply 2 10-60"},
		15: {"processing 1 0-1", "idle 0 1-10", "processing 2 10-15"},
	} {
		last := ran(2, process.TaskCall, 10, 10, end)
		last.Status = process.TaskStatusCancelled
		if got := spansOf(state(status(process.StatusCancelled, end), ended(last))); !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}
