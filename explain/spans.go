package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// shortest is the shortest wait that becomes a span. Shorter waits are left out, because every task
// waits for a commit.
const shortest = time.Millisecond

// timeline collects the spans of a process.
type timeline struct {
	s     State
	busy  []Task // tasks that have run or are running, in the order in which they began
	spans []Span
	// The spans of tasks whose response was deferred, by task ID. The end of their attempts is not
	// stored. For such a task in busy, Finished is the time at which the next task began.
	deferred map[int64]Span
}

// spans returns where the time went: the time of each task, and that of the process while no task
// ran or waited to run.
func spans(s State) []Span {
	tl := &timeline{s: s, deferred: map[int64]Span{}}
	for _, t := range s.Ended {
		if t.Type == process.TaskRepair && t.Attempt == 0 && t.Status == process.TaskStatusFinished {
			t.Running = t.Finished // a repair without the processor
		}
		if !t.Running.IsZero() {
			tl.busy = append(tl.busy, t)
		}
	}
	if s.Running != nil {
		tl.busy = append(tl.busy, s.Running.Task)
	}
	slices.SortFunc(tl.busy,
		func(a, b Task) int { return cmp.Or(a.Running.Compare(b.Running), cmp.Compare(a.ID, b.ID)) })
	tl.cutBusy()
	for n := range tl.busy {
		tl.ran(n)
	}
	for _, t := range s.Ended {
		if t.Running.IsZero() && !t.Type.Timer() && t.Status == process.TaskStatusCancelled {
			tl.add(Span{What: string(process.WaitsForProcess), TaskID: t.ID, From: t.Scheduled, To: t.Finished,
				Detail: string(t.Type) + ", cancelled"})
		}
	}
	for _, t := range s.Waiting {
		tl.waits(t)
	}
	slices.SortStableFunc(tl.spans, oldest)
	tl.addGaps()
	for _, id := range slices.Sorted(maps.Keys(tl.deferred)) {
		tl.add(tl.deferred[id])
	}
	slices.SortStableFunc(tl.spans, oldest)
	return tl.spans
}

// cutBusy ends each task in busy no later than the time at which the next one began. A call that
// ended later had deferred its response, and has waited for a reply.
func (tl *timeline) cutBusy() {
	for n := range tl.busy {
		t := &tl.busy[n]
		mayDefer := t.Type == process.TaskCall || t.Type == process.TaskNotify
		next := t.Finished
		switch {
		case n+1 < len(tl.busy):
			next = tl.busy[n+1].Running
		case mayDefer && t.wasCancelledLater(tl.s.Namespace.StepTimeout):
			next = t.Running
		}
		if !t.Finished.After(next) {
			continue
		}
		if mayDefer {
			tl.addDeferred(t)
		}
		t.Finished = next
	}
}

func oldest(a, b Span) int {
	if order := a.From.Compare(b.From); order != 0 || a.isInstant() == b.isInstant() {
		return cmp.Or(order, cmp.Compare(a.TaskID, b.TaskID))
	}
	if a.isInstant() {
		return -1
	}
	return 1
}

// isInstant reports whether the span has no length, like that of a repair without the processor.
func (s Span) isInstant() bool { return s.To.Equal(s.From) }

// add adds a span, unless it is too short. A span that has not ended is always added.
func (tl *timeline) add(span Span) {
	if span.To.IsZero() || span.To.Sub(span.From) >= shortest {
		tl.spans = append(tl.spans, span)
	}
}

// ran adds the spans of a task that has run.
func (tl *timeline) ran(n int) {
	t := tl.busy[n]
	tl.failed(t)
	tl.backOff(t, t.Attempt)
	tl.waited(t, n, t.Running)
	if _, ok := tl.deferred[t.ID]; ok {
		return
	}
	detail := string(t.Type)
	if t.Attempt == 0 {
		detail += " without the processor"
	}
	if t.Attempt > 1 {
		detail += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	if r := tl.s.Running; t.Finished.IsZero() && r != nil {
		detail += fmt.Sprintf(" on node %d (%s)", r.NodeID, r.Address)
	}
	if t.Status == process.TaskStatusError {
		detail += " failed: " + t.Reason
	}
	tl.spans = append(tl.spans, Span{What: Processing, TaskID: t.ID, From: t.Running, To: t.Finished, Detail: detail})
}

// failed adds the recorded attempts of a task that failed, and the waits between them.
func (tl *timeline) failed(t Task) {
	for n, f := range t.Failures {
		tl.spans = append(tl.spans, Span{
			What: Processing, TaskID: t.ID, From: f.Running, To: f.Failed,
			Detail: fmt.Sprintf("%s, attempt %d on node %d failed: %s", t.Type, f.Attempt, f.NodeID, f.Reason),
		})
		if n > 0 {
			tl.add(Span{
				What: BackOff, TaskID: t.ID, From: t.Failures[n-1].Failed, To: f.Running,
				Detail: fmt.Sprintf("%s, before attempt %d", t.Type, f.Attempt),
			})
		}
	}
}

// backOff adds the wait before the current or next attempt.
func (tl *timeline) backOff(t Task, attempt int32) {
	if t.RetryInterval <= 0 {
		return
	}
	from := t.Scheduled.Add(-t.RetryInterval)
	if made := tl.s.Process.CreatedTime; from.Before(made) {
		from = made // an operator has moved the task to an earlier time
	}
	span := Span{What: BackOff, TaskID: t.ID, From: from, To: t.Scheduled,
		Detail: fmt.Sprintf("%s, before attempt %d", t.Type, attempt)}
	if span.To.After(tl.s.Now) {
		span.To = time.Time{}
		if t.Reason != "" {
			span.Detail += " (" + t.Reason + ")"
		}
	}
	tl.add(span)
}

// waited adds the time from when a task was due until it began, or until now if until is zero:
// first behind other tasks, then for a slot or a worker. The first n tasks of busy are ahead of it.
func (tl *timeline) waited(t Task, n int, until time.Time) {
	from := t.Scheduled
	if from.Before(tl.s.Process.CreatedTime) {
		from = tl.s.Process.CreatedTime // a timer that was already due when it was imported
	}
	if t.Type.Timer() {
		from = tl.waitedForRepair(t, n, from, until)
	}
	if n > 0 && !from.IsZero() {
		ahead := tl.busy[n-1]
		end := ahead.Finished
		if end.IsZero() || end.After(from) {
			tl.add(Span{What: string(process.WaitsForProcess), TaskID: t.ID, From: from, To: end,
				Detail: fmt.Sprintf("%s after task %d", t.Type, ahead.ID)})
			from = end
		}
	}
	if from.IsZero() {
		return // the task ahead still runs, or the process is still in ERROR
	}
	detail := string(t.Type)
	if until.IsZero() && tl.s.Namespace.Paused {
		detail += ", the namespace is paused"
	}
	what := string(process.WaitsForPlace)
	if tl.s.Namespace.Pulled {
		what = ForWorker
	}
	for _, held := range tl.suspended(t.ID, from, until) {
		tl.add(Span{What: what, TaskID: t.ID, From: from, To: held.From, Detail: string(t.Type)})
		tl.add(held)
		from = held.To
	}
	tl.add(Span{What: what, TaskID: t.ID, From: from, To: until, Detail: detail})
}

// waitedForRepair adds the time during which a timer was due while the process was in ERROR, and
// the time behind the task that failed. It returns the time since which the timer has waited for
// something else. A repair restores the timers that the error had cancelled, with their old times.
func (tl *timeline) waitedForRepair(t Task, n int, from, until time.Time) time.Time {
	for _, e := range tl.errors(n) {
		to := e.to
		if to.IsZero() {
			to = until
		}
		if !to.IsZero() && !to.After(from) {
			continue
		}
		if e.task.Finished.After(from) {
			tl.add(Span{What: string(process.WaitsForProcess), TaskID: t.ID, From: from, To: e.task.Finished,
				Detail: fmt.Sprintf("%s after task %d", t.Type, e.task.ID)})
			from = e.task.Finished
		}
		tl.add(Span{What: string(process.WaitsForOperator), TaskID: t.ID, From: from, To: to,
			Detail: errorDetail(e.task)})
		from = to
	}
	return from
}

// errorTime is a period in which the process was in ERROR. It began with the end of a task.
type errorTime struct {
	task *Task
	to   time.Time // when the repair began; zero if that is not known
}

// errors returns the periods in which the process was in ERROR, up to the first n tasks of busy.
func (tl *timeline) errors(n int) (list []errorTime) {
	var failed *Task
	for k := range tl.busy[:n] {
		t := &tl.busy[k]
		if failed != nil && (t.Type != process.TaskRepair || t.Status != process.TaskStatusError) {
			list = append(list, errorTime{failed, t.Running})
			failed = nil
		}
		if t.Status == process.TaskStatusError && t.Type != process.TaskRepair {
			failed = t
		}
	}
	if failed == nil {
		return list
	}
	// The repair is not stored, for example because an older engine executed it.
	last := errorTime{task: failed}
	if changed := tl.s.Process.StatusChanged; changed.After(failed.Finished) {
		last.to = changed
	}
	return append(list, last)
}

func errorDetail(failed *Task) string { return fmt.Sprintf("ERROR because task %d failed", failed.ID) }

// waits adds the spans of a waiting task.
func (tl *timeline) waits(t Task) {
	s := tl.s
	tl.failed(t)
	tl.backOff(t, t.Attempt+1)
	held := s.Process.Status == process.StatusSuspended ||
		s.Process.Status == process.StatusError && t.Type != process.TaskRepair
	switch {
	case s.timed(&t):
	case t.WaitsFor == process.WaitsForOperator || held && s.Running == nil:
		from := t.Scheduled
		if s.Process.StatusChanged.After(from) {
			from = s.Process.StatusChanged
		}
		tl.add(Span{What: string(process.WaitsForOperator), TaskID: t.ID, From: from, Detail: string(t.Type)})
	case t.WaitsFor == process.WaitsForConstraint:
		tl.add(Span{What: string(process.WaitsForConstraint), TaskID: t.ID, From: t.Scheduled, Detail: string(t.Type)})
	default:
		tl.waited(t, len(tl.busy), time.Time{})
	}
}

// addGaps adds the time in which no task ran or waited to run. The spans must be sorted.
func (tl *timeline) addGaps() {
	s := tl.s
	end := s.Now
	if s.Process.Status.Ended() {
		end = s.Process.StatusChanged
	}
	covered := s.Process.CreatedTime
	if s.Truncated && len(tl.spans) > 0 {
		covered = tl.spans[0].From
	}
	for _, span := range tl.spans[:len(tl.spans):len(tl.spans)] {
		if span.From.Sub(covered) >= shortest {
			tl.spans = append(tl.spans, tl.gaps(covered, span.From, span.TaskID)...)
		}
		if span.To.IsZero() {
			return
		}
		if span.To.After(covered) {
			covered = span.To
		}
	}
	if end.Sub(covered) < shortest {
		return
	}
	last := tl.gaps(covered, end, math.MaxInt64)
	if !s.Process.Status.Ended() {
		last[len(last)-1].To = time.Time{}
	}
	tl.spans = append(tl.spans, last...)
}

// gaps returns what the process did between two times, without its tasks. next is the ID of the
// task that ended the gap, or the maximum.
func (tl *timeline) gaps(from, to time.Time, next int64) (list []Span) {
	for _, held := range tl.suspended(0, from, to) {
		if held.From.Sub(from) >= shortest {
			list = append(list, tl.gapsOf(from, held.From, next)...)
		}
		list, from = append(list, held), held.To
	}
	if len(list) > 0 && to.Sub(from) < shortest {
		return list
	}
	return append(list, tl.gapsOf(from, to, next)...)
}

// suspended returns the periods between two times in which the process was suspended, as spans of
// a task, or of the process if taskID is 0. If to is zero, the time has not ended.
func (tl *timeline) suspended(taskID int64, from, to time.Time) (list []Span) {
	for _, held := range tl.s.Suspended {
		span := Span{What: string(process.WaitsForOperator), TaskID: taskID, From: later(from, held.From), To: held.To,
			Detail: string(process.StatusSuspended)}
		if held.Reason != "" {
			span.Detail += ": " + held.Reason
		}
		if !to.IsZero() && to.Before(span.To) {
			span.To = to
		}
		if span.To.Sub(span.From) >= shortest {
			list = append(list, span)
		}
	}
	return list
}

// gapsOf is gaps for a time without suspensions that have ended. An operator may have changed the
// status in between without a task.
func (tl *timeline) gapsOf(from, to time.Time, next int64) []Span {
	changed := tl.s.Process.StatusChanged
	if changed.Sub(from) < shortest || to.Sub(changed) < shortest {
		return []Span{tl.gap(from, to, next)}
	}
	before, since := tl.gap(from, changed, next), tl.gap(changed, to, next)
	if before.What == since.What && before.Detail == since.Detail {
		return []Span{tl.gap(from, to, next)}
	}
	return []Span{before, since}
}

// gap returns what the process did between two times with the same status.
func (tl *timeline) gap(from, to time.Time, next int64) Span {
	span := Span{What: Idle, From: from, To: to}
	status, changed := tl.s.Process.Status, tl.s.Process.StatusChanged
	current := from.After(changed.Add(-shortest))
	held := status == process.StatusError || status == process.StatusSuspended
	failed := tl.lastBefore(from)
	// A repair without a task changed the status after the failure. The task of a repair would be
	// the last task.
	repaired := failed != nil && current && !held && changed.After(failed.Finished)
	switch {
	case current && held:
		span.What, span.Detail = string(process.WaitsForOperator), string(status)
	case failed != nil && failed.Status == process.TaskStatusError && !repaired:
		span.What, span.Detail = string(process.WaitsForOperator), errorDetail(failed)
	default:
		if timer := tl.pending(to, next); timer != nil {
			span.What, span.TaskID, span.Detail = string(process.WaitsForTime), timer.ID, waitName(timer)
		}
	}
	for _, t := range tl.busy {
		if t.ID == next && t.RetryInterval > 0 && t.Attempt > 1 && int(t.Attempt) > len(t.Failures)+1 &&
			span.What != string(process.WaitsForOperator) {
			span.Detail = fmt.Sprintf("includes earlier attempts of task %d, whose times are not stored", t.ID)
		}
	}
	return span
}

func waitName(t *Task) string {
	switch {
	case t.Type == process.TaskInit:
		return "its start time"
	case t.TimerName == "":
		return "the default timer"
	}
	return fmt.Sprintf("timer %q", t.TimerName)
}

// lastBefore returns the last task that ended at or before a time.
func (tl *timeline) lastBefore(moment time.Time) *Task {
	var last *Task
	for n := range tl.busy {
		t := &tl.busy[n]
		if !t.Finished.IsZero() && !t.Finished.After(moment) && (last == nil || t.Finished.After(last.Finished)) {
			last = t
		}
	}
	return last
}

// pending returns the timer or start that the process waited for until a time. It is the earliest
// of those that were set before the next task was accepted and had neither fired nor been
// cancelled.
func (tl *timeline) pending(until time.Time, next int64) *Task {
	var soonest *Task
	consider := func(t *Task, end time.Time) {
		waits := t.Type.Timer() || t.Type == process.TaskInit
		if waits && t.ID <= next && (end.IsZero() || !end.Before(until)) && !t.Scheduled.Before(until.Add(-shortest)) &&
			(soonest == nil || t.Scheduled.Before(soonest.Scheduled)) {
			soonest = t
		}
	}
	for n := range tl.s.Ended {
		t := &tl.s.Ended[n]
		end := t.Running
		if end.IsZero() {
			end = t.Finished
		}
		consider(t, end)
	}
	for n := range tl.s.Waiting {
		consider(&tl.s.Waiting[n], time.Time{})
	}
	if r := tl.s.Running; r != nil {
		consider(&r.Task, r.Running)
	}
	return soonest
}
