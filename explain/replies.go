package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// takeOpen removes from Waiting the tasks whose response was deferred, and returns them. They do
// not run again.
func (s *State) takeOpen() (open []Task) {
	var waiting []Task
	for _, t := range s.Waiting {
		if t.Running.IsZero() {
			waiting = append(waiting, t)
		} else {
			open = append(open, t)
		}
	}
	s.Waiting = waiting
	return open
}

// addDeferred adds the span of a task that waited for a reply and has ended. Like the span of an
// open task, it does not change the gaps between the other spans.
func (tl *timeline) addDeferred(t *Task) {
	detail := string(t.Type)
	if t.Status == process.TaskStatusCancelled {
		detail += ", cancelled"
	}
	tl.deferred[t.ID] = Span{
		What: string(process.WaitsForReply), TaskID: t.ID, From: t.Running, To: t.Finished, Detail: detail,
	}
}

// wasCancelledLater reports whether a task was cancelled after its attempt: it took longer than an
// attempt may take.
func (t *Task) wasCancelledLater(timeout time.Duration) bool {
	return t.Status == process.TaskStatusCancelled && t.Finished.Sub(t.Running) > timeout
}

// withOpen adds the spans of tasks that wait for a reply.
func withOpen(spans []Span, open []Task) []Span {
	for _, t := range open {
		spans = append(spans, Span{
			What: string(process.WaitsForReply), TaskID: t.ID, From: t.Running, Detail: string(t.Type),
		})
	}
	slices.SortStableFunc(spans, oldest)
	return spans
}

// replies adds the tasks that wait for a reply of the process.
func (s State) replies(e *Explanation, open []Task) {
	if len(open) == 0 {
		return
	}
	if e.WaitsFor == "" && s.Running == nil {
		e.WaitsFor = process.WaitsForReply
	}
	first := slices.MinFunc(open, func(a, b Task) int { return a.Running.Compare(b.Running) })
	e.Detail += fmt.Sprintf(" %s has waited for its reply since %s", first.name(), stamp(first.Running))
	if n := len(open) - 1; n > 0 {
		e.Detail += fmt.Sprintf(", and %d more since then", n)
	}
	e.Detail += "."
}
