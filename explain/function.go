package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// retryTimer is the name prefix of timers that retry a step.
const retryTimer = "retry:"

// title names a task of a durable function by what the task runs.
func (f *Function) title(t *Task) {
	switch step, retry := strings.CutPrefix(t.TimerName, retryTimer); {
	case !t.Type.Timer():
		if call := f.requests[t.ID]; call != "" {
			t.title = fmt.Sprintf("Call %q", call)
		}
	case retry:
		t.title = fmt.Sprintf("Step %q", step)
	case t.TimerName == "":
		t.title = fmt.Sprintf("The function %q", f.Name)
	}
}

// titled returns s with names for the tasks of a durable function.
func (s State) titled() State {
	if s.Function == nil {
		return s
	}
	s.Waiting = slices.Clone(s.Waiting) // the tasks of the caller must not change
	for n := range s.Waiting {
		s.Function.title(&s.Waiting[n])
	}
	if s.Running != nil {
		running := *s.Running
		s.Running = &running
		s.Function.title(&running.Task)
	}
	return s
}

// function describes a durable function, in addition to the tasks of its process. head is the task
// that runs next.
func (s State) function(e *Explanation, head *Task) {
	f := s.Function
	switch {
	case s.Process.Status.Ended():
		if f.End != nil && s.Process.Status == process.StatusCompleted {
			e.Detail += " " + f.ended()
		}
	case s.Running != nil:
		e.Detail += f.runs(&s.Running.Task)
	case s.Process.Status == process.StatusError && (head == nil || head.Type != process.TaskRepair):
		s.functionBroken(e)
	case s.Process.Status == process.StatusSuspended:
		e.Detail += s.retries() + s.others("It waits for ", false)
	case head == nil:
		s.functionIdle(e)
	case s.timed(head) && !head.retried() && head.Type == process.TaskTimeout && head.TimerName != "":
		s.functionWaits(e, head)
	case f.End != nil:
		e.Detail += f.undoing()
	}
}

// ended describes how the function ended.
func (f *Function) ended() string {
	if f.End.Error == "" {
		return fmt.Sprintf("The function %q returned a value.", f.Name)
	}
	text := sentence(fmt.Sprintf("The function %q ended with the error: %s", f.Name, f.End.Error))
	if f.Undone > 0 {
		text += fmt.Sprintf(" It undid %s.", count(f.Undone, f.Partial, "step"))
	}
	return text
}

// runs describes what the running task of the function does, as far as the journal shows it.
func (f *Function) runs(t *Task) string {
	step, retry := strings.CutPrefix(t.TimerName, retryTimer)
	switch {
	case f.End != nil || t.Type == process.TaskCancel:
		return f.undoing()
	case !t.Type.Timer():
		return ""
	case retry:
		for _, r := range f.Retries {
			if r.Step == step {
				return fmt.Sprintf(" It is try %s%d of this step. The last one failed: %s", f.atLeast(), r.Failed+1,
					sentence(r.Error))
			}
		}
	case f.LastStep != "":
		return fmt.Sprintf(" The step that ended last is %q.", f.LastStep)
	case !f.Partial:
		return " None of its steps has ended."
	}
	return ""
}

func (f *Function) atLeast() string {
	if f.Partial {
		return "at least "
	}
	return ""
}

// undoing lists the steps that must be undone.
func (f *Function) undoing() string {
	if len(f.Undos) == 0 {
		return ""
	}
	names := quoted(f.Undos)
	text := fmt.Sprintf(" The function %q undoes its steps: ", f.Name)
	switch {
	case f.Repaired:
		return text + named(names) + "."
	case len(names) == 1:
		return text + names[0] + " is the last one."
	}
	return text + fmt.Sprintf("%s is next, then %s.", names[0], named(names[1:]))
}

func quoted(names []string) []string {
	list := make([]string, len(names))
	for n, name := range names {
		list[n] = fmt.Sprintf("%q", name)
	}
	return list
}

// functionIdle describes a function without a timer: only a child or a call continues it.
func (s State) functionIdle(e *Explanation) {
	f := s.Function
	e.Detail = strings.TrimSpace(s.others(fmt.Sprintf("The function %q waits for ", f.Name), true))
	e.Next = "Nothing until it is called."
	e.Unblock = s.callIt()
	if len(f.Children) == 0 {
		return
	}
	e.WaitsFor = process.WaitsForProcess
	e.Next = "It continues when this ends, or when it is called."
	if len(f.Children) > 1 {
		e.Next = "It continues when one of these ends, or when it is called."
	}
	c := f.Children[0]
	e.Unblock = fmt.Sprintf("Wait for the end of %s. To see what it waits for, run progressor explain %s %s. %s",
		c.ProcessID, word(c.Namespace), word(c.ProcessID), s.callIt())
}

// functionWaits describes a function that waits for a timer or for the next try of a step.
func (s State) functionWaits(e *Explanation, head *Task) {
	step, retry := strings.CutPrefix(head.TimerName, retryTimer)
	if retry {
		e.Detail = strings.TrimSpace(s.retries() + s.others(fmt.Sprintf("The function %q also waits for ",
			s.Function.Name), false))
		e.Next = fmt.Sprintf("Step %q is retried %s.", step, s.at(head.Scheduled))
		e.Unblock = "Wait for that time."
		return
	}
	e.Detail = strings.TrimSpace(s.others(fmt.Sprintf("The function %q waits for ", s.Function.Name), false) +
		s.retries())
	e.Next = fmt.Sprintf("Timer %q fires %s unless the function stops it.", head.TimerName, s.at(head.Scheduled))
	e.Unblock = "Wait for that time. " + s.callIt()
}

// retries describes the steps that will be retried.
func (s State) retries() (text string) {
	f := s.Function
	for n, r := range f.Retries {
		if n == maxNamed {
			return text + fmt.Sprintf(" %s will also be retried.",
				capital(count(len(f.Retries)-n, false, "other step")))
		}
		times := fmt.Sprintf("%s%d times", f.atLeast(), r.Failed)
		if r.Failed == 1 && !f.Partial {
			times = "once"
		}
		text += fmt.Sprintf(" Step %q failed %s: %s", r.Step, times, sentence(r.Error))
		if due := s.due(retryTimer + r.Step); !due.IsZero() {
			text += fmt.Sprintf(" The next try is due %s.", s.at(due))
		}
	}
	return text
}

func (s State) due(timer string) time.Time {
	for n := range s.Waiting {
		if t := &s.Waiting[n]; t.Type == process.TaskTimeout && t.TimerName == timer {
			return t.Scheduled
		}
	}
	return time.Time{}
}

// others lists the timers and children for which the function waits. If there are none, the text
// names a call if call is true, and otherwise is empty.
func (s State) others(before string, call bool) string {
	f := s.Function
	var list []string
	for n := range s.Waiting {
		t := &s.Waiting[n]
		if t.Type == process.TaskTimeout && t.TimerName != "" && !strings.HasPrefix(t.TimerName, retryTimer) {
			list = append(list, fmt.Sprintf("timer %q, due %s", t.TimerName, s.at(t.Scheduled)))
		}
	}
	for _, c := range f.Children {
		id := strings.TrimPrefix(c.ProcessID, process.FlowPrefix)
		text := fmt.Sprintf("%s %q (%s/%s)", c.kind(), c.Name, c.Namespace, id)
		if c.Cancelled {
			text += ", which was asked to end"
		}
		list = append(list, text)
	}
	switch {
	case len(list) == 0 && call:
		list = append(list, "a call")
	case len(list) == 0:
		return ""
	}
	more := ""
	if hidden := len(list) - maxNamed; hidden > 0 {
		list, more = list[:maxNamed], fmt.Sprintf("; and %d more", hidden)
	}
	return " " + before + strings.Join(list, "; ") + more + "."
}

func (c *Child) kind() string {
	switch {
	case c.Job:
		return "job"
	case strings.HasPrefix(c.ProcessID, process.FlowPrefix):
		return "run"
	}
	return "child"
}

// callIt returns sentences with the command for a call. The journal shows the calls that the
// function has taken, but not those that it takes now.
func (s State) callIt() string {
	args := fmt.Sprintf(" --args '{%q:…}'", cmp.Or(s.Function.LastCall, "CALL"))
	return "To call it, run " + s.command("call", args) +
		". If it does not take this call now, the rejection names those that it takes."
}

// functionBroken describes a function whose process is in ERROR.
func (s State) functionBroken(e *Explanation) {
	f := s.Function
	simple, again := s.command("repair", " --simple"), s.command("repair", "")
	switch {
	case f.End == nil:
		e.Detail += fmt.Sprintf(" The function %q has not ended.", f.Name)
		e.Unblock = fmt.Sprintf("To continue the function where it was, for example with a fixed version, run %s. To "+
			"let a step count as done, run %s.", simple, s.command("repair", " --skip-step STEP"))
		return
	case len(f.Undos) > 0:
		e.Detail += f.undoing()
		e.Unblock = fmt.Sprintf("To run the undo again, run %s.", simple)
		return
	case f.End.Error == "":
		return
	}
	e.Detail = f.ended()
	restarts := fmt.Sprintf("To start the function again, with its old input and a new history, run %s.", again)
	switch end := f.End; {
	case end.Step != "":
		e.Unblock = fmt.Sprintf("To run step %q again, run %s. To let it count as done, run %s. To do so with a "+
			"result, run %s. %s", end.Step, s.command("repair", " --rewind "+word(end.Step)),
			s.command("repair", " --skip-step "+word(end.Step)),
			s.command("repair", " --set-step "+word(end.Step+"=JSON")), restarts)
	case end.Child != "":
		e.Unblock = fmt.Sprintf("To start %q again, run %s. %s", end.Child,
			s.command("repair", " --rewind "+word("child:"+end.Child)), restarts)
	default:
		e.Unblock = fmt.Sprintf("To run the function again from the entry NAME of its journal, run %s. %s",
			s.command("repair", " --rewind NAME"), restarts)
	}
}
