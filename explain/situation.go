package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

// situation sets what the process waits for, what happens next and what would unblock it.
func (s State) situation(e *Explanation) {
	head, behind := s.head()
	s.describe(e, head, behind)
	if s.Function != nil {
		s.function(e, head)
	}
	if s.Namespace.Paused && (e.WaitsFor == process.WaitsForTime || e.WaitsFor == process.WaitsForConstraint) {
		e.Detail += fmt.Sprintf(
			" Namespace %s is also paused: nothing begins before it is resumed (progressor namespace resume %s).",
			s.Process.Namespace, word(s.Process.Namespace))
	}
	if c := s.Process.Cancel; s.Job == nil && s.Run == nil && !c.Deadline.IsZero() && !s.Process.Status.Ended() {
		e.Detail = strings.TrimSpace(
			fmt.Sprintf("%s It was asked to end%s. After the grace period, %s, it is CANCELLED in any case.", e.Detail,
				c.why(), s.at(c.Deadline)))
		if e.NextTime.IsZero() || c.Deadline.Before(e.NextTime) {
			e.NextTime = c.Deadline
		}
	}
}

// describe sets the explanation according to the kind and the status of the process.
func (s State) describe(e *Explanation, head *Task, behind int) {
	switch {
	case s.Job != nil:
		s.job(e, head, behind)
	case s.Run != nil && s.Running == nil && s.Process.Status != process.StatusError && !head.retried() &&
		(head == nil || s.timed(head)) && s.Run.hasOwnText():
		s.run(e)
	case s.Cron != nil && s.Running == nil && !s.Process.Status.Ended() && !head.retried() &&
		(head == nil || s.timed(head) || s.Process.Status == process.StatusError):
		s.cron(e)
	case s.Fire != nil && fireOutcomes[s.Fire.Status] != "":
		s.fire(e)
	case s.Process.Status.Ended():
		e.Detail = "It has been " + string(s.Process.Status) + " since " + stamp(s.Process.StatusChanged) + "."
		if s.Process.Cancel.Reason != "" {
			e.Detail = sentence(
				fmt.Sprintf("It has been %s since %s: %s", s.Process.Status, stamp(s.Process.StatusChanged),
					s.Process.Cancel.Reason))
		}
		e.Next = "Nothing: the process has ended."
		e.Unblock = "Nothing needs to be done. To delete it, run " + s.command("remove", "") + "."
		if s.isInternal() {
			e.Unblock = "Nothing: it is deleted after the retention of its namespace."
		}
	case s.Running != nil:
		s.running(e, head, behind)
	case s.Process.Status == process.StatusError && (head == nil || head.Type != process.TaskRepair):
		s.broken(e)
	case s.Process.Status == process.StatusSuspended:
		s.suspended(e, head, behind)
	case head == nil:
		e.Detail = "It is idle: nothing waits, and no timer is set."
		e.Next = "Nothing until it is called."
		e.Unblock = "To call it, run " + s.command("call", "") + "."
		if s.isInternal() {
			e.Next, e.Unblock = "Nothing: it is a process of the engine, and accepts no calls.", "Nothing."
		}
	case s.timed(head):
		s.waitsForTime(e, head)
	default:
		s.waitsForPlace(e, head, behind)
	}
}

// head returns the task that runs next, and how many of the tasks behind it do not wait for a
// future time.
func (s State) head() (head *Task, behind int) {
	order := slices.Clone(s.Waiting)
	slices.SortStableFunc(order, func(a, b Task) int {
		timedA, timedB := s.timed(&a), s.timed(&b)
		switch {
		case timedA != timedB:
			return cmp.Compare(btoi(timedA), btoi(timedB))
		case timedA:
			return cmp.Or(a.Scheduled.Compare(b.Scheduled), cmp.Compare(a.ID, b.ID))
		}
		// A cancel runs before calls, and calls run before due timers.
		return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.ID, b.ID))
	})
	for n := range order {
		if n > 0 && !s.timed(&order[n]) {
			behind++
		}
	}
	if len(order) > 0 {
		head = &order[0]
	}
	return head, behind
}

func turn(t Task) int {
	switch {
	case t.Type == process.TaskCancel:
		return 0
	case t.WaitsFor == process.WaitsForPlace:
		return 1
	case !t.Type.Timer():
		return 2
	}
	return 3
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// timed reports whether a task waits for a future time. In a suspended process, tasks wait for the
// operator first.
func (s State) timed(t *Task) bool {
	return (t.WaitsFor == process.WaitsForTime || t.WaitsFor == process.WaitsForOperator) && t.Scheduled.After(s.Now)
}

// retried reports whether a task waits for another attempt after a failure.
func (t *Task) retried() bool { return t != nil && t.Attempt > 0 && t.RetryInterval > 0 }

func (s State) running(e *Explanation, head *Task, behind int) {
	r := s.Running
	since, drains := durations.Rounded(s.Now.Sub(r.Running)), ""
	if r.Draining {
		drains = ", which is draining"
	}
	dead := r.Beat.Add(s.Namespace.ZombieAfter)
	silent := !r.Alive || s.Now.Sub(r.Beat) > s.Namespace.ZombieAfter/2
	if silent && !r.Beat.IsZero() {
		drains = fmt.Sprintf(", whose last heartbeat was at %s (%s ago)", stamp(r.Beat),
			durations.Rounded(s.Now.Sub(r.Beat)))
	}
	runs := fmt.Sprintf("runs on node %d (%s)%s, attempt %d, for %s%s", r.NodeID, r.Address, drains, r.Attempt, since,
		r.failedTries())
	e.Detail, e.NextTime = r.name()+" "+runs+".", r.Deadline
	before := lower(r.name()) + ", which " + runs
	if r.Lease != nil {
		e.Detail, before = s.leaseText(since)
		e.Detail += "."
	}
	then := ""
	if head != nil && !s.timed(head) {
		e.WaitsFor = process.WaitsForProcess
		e.Detail = fmt.Sprintf("%s%s behind %s.", head.name(), more(behind), before)
		then = ", then " + lower(head.name()) + " runs"
		if s.Process.Status == process.StatusSuspended {
			e.WaitsFor = process.WaitsForOperator
			then = ", and nothing more until the process is resumed"
		}
	}
	switch {
	case r.Lease != nil:
		s.explainLease(e, then)
	case !r.Alive:
		e.Next = fmt.Sprintf("Node %d no longer sends heartbeats: another node collects %s as a zombie%s.", r.NodeID,
			lower(r.name()), then)
		e.NextTime = time.Time{}
		e.Unblock = "Nothing needs to be done: a dead node's tasks are collected after --engine.zombie-after."
	case !r.Deadline.After(s.Now):
		e.Next = fmt.Sprintf("%s is past its deadline (%s): it is collected as a zombie%s.", r.name(), s.at(r.Deadline),
			then)
		e.Unblock = "Nothing needs to be done: the attempt is over, even if its processor continues."
	case silent && dead.Before(r.Deadline):
		e.Next = fmt.Sprintf(
			"If node %d sends no heartbeat for %s (engine.zombie_after), %s, another node collects %s as a zombie%s.",
			r.NodeID, durations.Exact(s.Namespace.ZombieAfter), s.at(dead), lower(r.name()), then)
		e.NextTime = dead
		e.Unblock = "Nothing needs to be done if that node is dead; otherwise the response of the processor."
	default:
		e.Next = fmt.Sprintf("%s ends %s at the latest, by its step timeout%s.", r.name(), s.at(r.Deadline), then)
		e.Unblock = "The response of the processor."
		switch {
		case r.FailedTries > 0:
			e.Unblock = fmt.Sprintf(
				"The response of the processor: the call is repeated by the retry policy until the step timeout. "+
					"To see its URL, run progressor namespace get %s.", word(s.Process.Namespace))
		case r.Draining:
			e.Next += " If the task has not ended when that node stops, another node takes it."
		case s.Namespace.Away:
			e.Unblock = "The response of the processor. The node that answered this request cannot reach it."
		}
	}
}

// failedTries describes how often the processor was not reached. It returns "" if no try has
// failed. All tries to reach it count as one attempt, and the last one may still be in progress.
func (r *Running) failedTries() string {
	switch r.FailedTries {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; its processor was not reached (%s)", r.Cause)
	}
	return fmt.Sprintf("; its processor was not reached in %d tries (%s)", r.FailedTries, r.Cause)
}

func (s State) broken(e *Explanation) {
	e.WaitsFor = process.WaitsForOperator
	e.Detail = "It was imported in ERROR"
	if s.Process.CorruptedBy != 0 {
		e.Detail = fmt.Sprintf("Task %d failed", s.Process.CorruptedBy)
	}
	timer, begun := false, true
	for _, t := range s.Ended {
		if t.ID == s.Process.CorruptedBy {
			e.Detail = fmt.Sprintf("%s failed permanently in attempt %d", t.name(), t.Attempt)
			if t.Reason != "" {
				e.Detail += ": " + t.Reason
			}
			timer, begun = t.Type.Timer(), t.Type != process.TaskInit
		}
	}
	if s.Process.Detail != "" {
		e.Detail += ": " + s.Process.Detail
	}
	e.Detail = sentence(e.Detail)
	e.Next = "Nothing until it is repaired: it accepts no calls, and its timers are cancelled."
	sets := " and set its timers"
	if timer {
		sets = ", set its timers and run the failed one again"
	}
	if s.isInternal() {
		e.Next, e.Unblock = "Nothing: it is a process of the engine.",
			"It cannot be repaired by a request: the cause is a defect of the engine or of its stored state."
		return
	}
	if !begun {
		e.Unblock = fmt.Sprintf(
			"To let its processor repair it, run %s. To start it again, first run %s. To make it RUNNING without "+
				"running its INIT again, run %s.",
			s.command("repair", " --args …"), s.command("remove", ""), s.command("repair", " --simple"))
		return
	}
	e.Unblock = fmt.Sprintf("To make it RUNNING%s, run %s. To let its processor repair it, run %s.",
		sets, s.command("repair", " --simple"), s.command("repair", " --args …"))
}

func (s State) suspended(e *Explanation, head *Task, behind int) {
	e.WaitsFor = process.WaitsForOperator
	e.Detail = "It has been suspended since " + stamp(s.Process.StatusChanged)
	if s.Process.Detail != "" {
		e.Detail += ": " + s.Process.Detail
	}
	e.Detail = sentence(e.Detail)
	e.Next = "Nothing until it is resumed."
	switch {
	case head == nil:
	case s.timed(head):
		e.Next = fmt.Sprintf("Nothing until it is resumed; %s is due %s.", lower(head.name()), s.at(head.Scheduled))
	default:
		e.Next = fmt.Sprintf("Nothing until it is resumed; then %s runs%s.", lower(head.name()), then(behind))
	}
	e.Unblock = "To resume it, run " + s.command("resume", "") + "."
}

func (s State) waitsForTime(e *Explanation, head *Task) {
	e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
	switch {
	case head.RetryInterval > 0 && head.Reason == "" && head.Message == "":
		e.Detail = head.name() +
			" was released by a node that runs an older version, which does not know the kind of the process."
		e.Next = fmt.Sprintf("%s can be taken again %s.", head.name(), s.at(head.Scheduled))
		e.Unblock = "A node of the newer version."
	case head.retried():
		failure := head.Reason
		if head.Message != "" {
			failure += ": " + head.Message
		}
		e.Detail = sentence(
			fmt.Sprintf("%s failed in attempt %d of %d (%s)", head.name(), head.Attempt,
				max(s.Namespace.MaxAttempts, head.Attempt), failure))
		e.Next = fmt.Sprintf("Attempt %d of %s %s.", head.Attempt+1, lower(head.name()), s.at(head.Scheduled))
		e.Unblock = "Wait for that time. Calls are accepted meanwhile."
	case head.Type == process.TaskInit:
		e.Detail = "Its start time is " + stamp(head.Scheduled) + "."
		e.Next = fmt.Sprintf("%s runs %s.", head.name(), s.at(head.Scheduled))
		e.Unblock = "Wait for that time."
	case head.Type == process.TaskRemove:
		e.Detail = sentence(head.name() + " is set")
		e.Next = fmt.Sprintf("The process is removed %s unless an earlier task changes that.", s.at(head.Scheduled))
		e.Unblock = s.waitOrCall()
	default:
		e.Detail = sentence(head.name() + " is set")
		e.Next = fmt.Sprintf("%s fires %s unless an earlier task replaces it.", head.name(), s.at(head.Scheduled))
		e.Unblock = s.waitOrCall()
	}
}

func (s State) waitsForPlace(e *Explanation, head *Task, behind int) {
	n := s.Namespace
	e.WaitsFor = process.WaitsForPlace
	waits := head.name() + " waits for a slot"
	e.Next = fmt.Sprintf("%s runs as soon as a node has a slot for it%s.", head.name(), then(behind))
	if n.Pulled {
		waits = head.name() + " waits for a worker"
		e.Next = fmt.Sprintf("%s is taken by the next worker that polls for it%s.", head.name(), then(behind))
	}
	switch {
	case n.Paused:
		e.Detail = waits + ", and namespace " + s.Process.Namespace + " is paused."
		e.Next = fmt.Sprintf("Nothing until the namespace is resumed; then %s runs%s.", lower(head.name()),
			then(behind))
		e.Unblock = "To resume the namespace, run progressor namespace resume " + word(s.Process.Namespace) + "."
	case n.Takers == 0 && n.Nodes > 0:
		e.Detail = waits + ", and all live nodes are draining or take only requests."
		e.Unblock = "To start another node, run progressor serve. To list the nodes, run progressor node list."
	case n.Nodes == 0:
		e.Detail = waits + ", and there is no live node."
		e.Unblock = "To start a node, run progressor serve."
	case n.Pulled:
		s.waitsForWorker(e, head, behind)
	case n.Unservable != "":
		e.Detail = sentence(
			fmt.Sprintf("%s, and the node that answered this request cannot run tasks of namespace %s: %s", waits,
				s.Process.Namespace, n.Unservable))
		e.Next = fmt.Sprintf("%s runs as soon as a node can run it%s.", head.name(), then(behind))
		e.Unblock = fmt.Sprintf(
			"Start a node whose program has that processor, or set another processor. To see the setting, run "+
				"progressor namespace get %s.", word(s.Process.Namespace))
	case n.Running >= n.MaxRunning*n.Takers:
		e.Detail = fmt.Sprintf(
			"%s: %s of the namespace %s, and its max_running is %d on each of the nodes that take tasks (%d).", waits,
			count(n.Running, false, "task"), plural(n.Running, "runs", "run"), n.MaxRunning, n.Takers)
		e.Unblock = fmt.Sprintf(
			"Wait for the end of a task of the namespace, set a larger max_running, or start another node. To list "+
				"the processes of the namespace, run progressor list %s --internal.", word(s.Process.Namespace))
	default:
		e.Detail = fmt.Sprintf(
			"%s: %s of the namespace %s, and its max_running is %d on each of the nodes that take tasks (%d).", waits,
			count(n.Running, false, "task"), plural(n.Running, "runs", "run"), n.MaxRunning, n.Takers)
		e.Unblock = "A node takes it within a second. If not, see the log of the node: it may be unable to serve the " +
			"namespace."
	}
}

// name returns the name of a task for the beginning of a sentence.
func (t *Task) name() string {
	switch {
	case t.title != "":
		return fmt.Sprintf("%s (task %d, %s)", t.title, t.ID, t.Type)
	case t.Type.Timer() && t.TimerName != "":
		return fmt.Sprintf("Timer %q (task %d, %s)", t.TimerName, t.ID, t.Type)
	case t.Type.Timer():
		return fmt.Sprintf("The default timer (task %d, %s)", t.ID, t.Type)
	}
	return fmt.Sprintf("Task %d (%s)", t.ID, t.Type)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// sentence returns s with one period at its end.
func sentence(s string) string { return strings.TrimRight(s, ". ") + "." }

func more(behind int) string {
	switch behind {
	case 0:
		return " waits"
	case 1:
		return " and 1 more wait"
	}
	return fmt.Sprintf(" and %d more wait", behind)
}

func then(behind int) string {
	if behind == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more behind it", behind)
}

// at returns t as a date and as the distance from now.
func (s State) at(t time.Time) string {
	if d := t.Sub(s.Now); d > 0 {
		return fmt.Sprintf("at %s (in %s)", stamp(t), durations.Rounded(d))
	}
	return fmt.Sprintf("at %s (%s ago)", stamp(t), durations.Rounded(s.Now.Sub(t)))
}

// stamp returns t in UTC with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// isInternal reports whether the process belongs to the engine, such as a bulk. Such a process
// rejects commands, so explanations do not suggest any.
func (s State) isInternal() bool { return process.Own(s.Process.ProcessID) }

func (s State) waitOrCall() string {
	if s.isInternal() {
		return "Wait for that time."
	}
	return "Wait for that time. To call it, run " + s.command("call", "") + "."
}

// command returns a command line for this process that can be pasted.
func (s State) command(verb, rest string) string {
	return "progressor " + verb + " " + word(s.Process.Namespace) + " " + word(s.Process.ProcessID) + rest
}

// word quotes s for a shell if necessary.
func word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:=@%+,", r)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
