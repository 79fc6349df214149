package flow

import (
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// SizeError reports that the results of the items of a step are too large in total.
type SizeError struct{ Bytes int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the results of all items must have at most %d bytes of JSON (got %d)", MaxItemsBytes, e.Bytes)
}

// MaxItemsBytes is the maximum total size of a step's item results, in bytes of JSON.
const MaxItemsBytes = process.MaxResultBytes

// startsAtOnce is the maximum number of steps and items that one decision begins. It limits the
// messages to other processes that one result contains.
const startsAtOnce = 100

// Decision is the result of Decide.
type Decision struct {
	State   *State
	Effects []Effect
	// Known reports for each input whether its step, item or compensation was open. It is false for
	// duplicate and late ends.
	Known []bool
	// Result is the result of a run that succeeds, as JSON.
	Result []byte
	// Missing lists the facts that the decision lacks. If there are any, the rest of the decision
	// is not valid: call Decide again with these facts.
	Missing []Need

	plan       *Plan
	facts      Facts
	statuses   []byte
	ends       map[[2]int]*End // ends in this decision, by step and index
	starts     int
	check      []int       // steps that may be ready
	resolved   []bool      // steps that are resolved: see isResolved
	unresolved map[int]int // unresolved steps, each with the value of endCount at the time of the check
	endCount   int
}

// Decide returns the decision of a run about inputs. It is pure and does not modify its arguments.
// If it lacks facts, Missing lists as many of them as possible, so that the caller can load all
// facts that do not depend on each other in one round trip.
func Decide(p *Plan, s *State, f Facts, inputs ...Input) *Decision {
	d := &Decision{
		State: s.clone(), plan: p, facts: f, statuses: []byte(s.Steps), resolved: make([]bool, len(s.Steps)),
		ends: map[[2]int]*End{},
	}
	for _, in := range inputs {
		d.Known = append(d.Known, d.handle(in))
		d.work()
		d.checkComplete()
	}
	d.State.Steps = string(d.statuses)
	return d
}

// handle handles an input, and reports whether its step, item or compensation was open.
func (d *Decision) handle(in Input) bool {
	switch in.Kind {
	case InputStart:
		d.start()
	case InputTick:
		d.tick()
	case InputEnd:
		return d.handleEnd(in.Outcome)
	case InputCancel:
		d.stop(ByCancel)
	case InputAbort:
		d.abort()
	case InputSkip:
		d.skip(in.Outcome)
	case InputRetry:
		d.retry()
	}
	return true
}

// Status returns the status of a step, including the changes of this decision so far.
func (d *Decision) Status(step int) StepStatus { return StepStatus(d.statuses[step]) }

// End returns how a step or an item ended in this decision. It returns nil if it did not end, or if
// nothing else is known about the end.
func (d *Decision) End(step, index int) *End { return d.ends[[2]int{step, index}] }

func (d *Decision) effect(e Effect) { d.Effects = append(d.Effects, e) }

func (d *Decision) mode(m Mode) {
	if d.State.Mode != m {
		d.effect(Effect{Kind: EffectRunStatus, Step: NoIndex, Index: NoIndex, Was: d.State.Mode})
		d.State.Mode = m
	}
}

// start begins the first attempt of a run.
func (d *Decision) start() {
	s := d.State
	s.RunTime = time.Time{}
	if d.plan.Timeout > 0 {
		s.Deadline = d.facts.Now.Add(d.plan.Timeout)
	}
	d.attempt()
}

// attempt begins an attempt of the run.
func (d *Decision) attempt() {
	s := d.State
	s.Round++
	s.Attempt++
	s.Cause, s.Lost, s.Broken, s.BadResult = NoCause, false, nil, ""
	s.BackoffUntil, s.Grace, s.CheckAsked = time.Time{}, time.Time{}, time.Time{}
	s.Deadlines, s.Asked = nil, nil
	d.mode(ModeRunning)
	for step := range d.statuses {
		d.check = append(d.check, step)
	}
}

// tick handles everything that is due.
func (d *Decision) tick() {
	s := d.State
	passed := func(t time.Time) bool { return !t.IsZero() && !t.After(d.facts.Now) }
	if s.Mode == ModeWaiting && passed(s.RunTime) {
		d.start()
		return
	}
	if s.Mode != ModeWaiting && s.Mode != ModeEnded && s.Mode != ModeCompensating && s.Cause != ByTime &&
		s.Cause != ByCancel && passed(s.Deadline) {
		d.stop(ByTime)
		return
	}
	if s.Mode == ModeResting && passed(s.BackoffUntil) {
		d.attempt()
		return
	}
	if passed(s.Grace) {
		s.Grace = time.Time{}
		d.endWaits(func(*PlanStep) bool { return true }, "cancel_grace_expired")
	}
	if passed(s.CheckAsked) {
		d.checkAsked()
	}
	if s.More {
		s.More = false
		for step := range d.statuses {
			d.check = append(d.check, step)
		}
	}
}

// DueNow returns the deadlines that have passed. A deadline of items means that at least one item
// of the step may be due.
func (s *State) DueNow(now time.Time) (due []Deadline) {
	for _, d := range s.Deadlines {
		if !d.At.After(now) {
			due = append(due, d)
		}
	}
	return due
}

// handleEnd records the end of a step, an item or a compensation. It returns false if the step,
// item or compensation was not open.
func (d *Decision) handleEnd(o Outcome) bool {
	s := d.State
	switch {
	case o.Round != s.Round || s.Mode == ModeEnded:
		return false
	case o.Undo:
		if s.Undoing == nil || *s.Undoing != o.Step {
			return false
		}
		s.Undoing = nil
		d.undone(o.Step, o.Status, o.Reason)
		return true
	case d.Status(o.Step) != Running || o.Index != NoIndex && slices.Contains(s.Each[o.Step].Skipped, o.Index):
		return false
	}
	if o.Overdue {
		d.effect(Effect{Kind: EffectCancel, Step: o.Step, Index: o.Index, Reason: ReasonOverdue})
		if o.Index != NoIndex {
			each := s.Each[o.Step]
			each.Skipped = append(each.Skipped, o.Index) // so that the later end of its process or run is ignored
		}
	}
	d.endStepOrItem(o)
	return true
}

// endStepOrItem sets the final status of a step or an item.
func (d *Decision) endStepOrItem(o Outcome) {
	s := d.State
	if o.Index == NoIndex {
		d.endStep(o)
		return
	}
	each := s.Each[o.Step]
	each.Running--
	if o.Status == Cancelled && s.Mode == ModeRunning && !each.Stopped {
		o.Status, o.Reason = Failed, "cancelled" // it was not cancelled by the run
	}
	switch o.Status {
	case Failed:
		each.Failed++
	case Cancelled:
		each.Cancelled++
	default:
		each.Succeeded++
		if o.End != nil {
			each.Bytes += len(o.End.Result)
		}
	}
	d.addEndEffect(o)
	if (each.Failed > d.plan.Steps[o.Step].MaxFailures || each.Bytes > MaxItemsBytes) && !each.Stopped {
		each.Stopped = true
		s.Lost = s.Lost || o.WorkerLost
		d.stopItems(o.Step)
	}
	d.beginItems(o.Step)
}

// addEndEffect adds the effect that stores the end of a step or an item.
func (d *Decision) addEndEffect(o Outcome) {
	if o.End != nil {
		d.ends[[2]int{o.Step, o.Index}] = o.End
	}
	d.effect(Effect{Kind: EffectEnd, Step: o.Step, Index: o.Index, Status: o.Status, Reason: o.Reason, End: o.End})
}

// endStep sets the final status of a step.
func (d *Decision) endStep(o Outcome) {
	step := o.Step
	p, s := &d.plan.Steps[step], d.State
	if o.Status == Cancelled && s.Mode == ModeRunning {
		o.Status, o.Reason = Failed, "cancelled" // it was not cancelled by the run
	}
	if o.Status == Succeeded && p.Each {
		results, err := d.facts.Rules.Collect(d, step)
		if o.End = (&End{Result: results}); err != nil && !d.lacks(err) {
			o.Status, o.End = Failed, &End{Err: err}
		}
	}
	if o.Status == Failed && p.Ignore {
		o.Status = Ignored
	}
	d.statuses[step] = byte(o.Status)
	s.ClearDeadline(step)
	d.addEndEffect(o)
	if o.Status == Succeeded && p.Undoable {
		s.Done = append(s.Done, step)
	} else {
		d.addPartlyDone(step)
	}
	if o.Status == Failed && s.Broken == nil {
		s.Broken, s.Lost = &step, o.WorkerLost || s.Lost
	}
	d.follow(step)
	if o.Status == Failed && s.Mode == ModeRunning {
		d.stop(ByFailure)
	}
}

// addPartlyDone adds a step that did not succeed to the steps to undo if some of its items
// succeeded.
func (d *Decision) addPartlyDone(step int) {
	each := d.State.Each[step]
	if each != nil && each.Succeeded > 0 && d.plan.Steps[step].Undoable {
		d.State.Done = append(d.State.Done, step)
	}
}

// abort ends the run at once. It asks open steps to end and does not wait for them.
func (d *Decision) abort() {
	s := d.State
	cause := ByCancel
	if s.Mode == ModeCompensating {
		cause = s.stopped()
	} else {
		s.Cause = ByCancel
	}
	if s.Undoing != nil {
		step := *s.Undoing
		s.Undoing = nil
		d.effect(Effect{Kind: EffectCancelCompensation, Step: step, Index: NoIndex})
		d.undone(step, Cancelled, "the run was cancelled")
	}
	s.Grace = time.Time{}
	d.mode(ModeStopping)
	for step := range d.statuses {
		switch d.Status(step) {
		case Running:
			d.effect(Effect{Kind: EffectCancel, Step: step, Index: NoIndex})
			if d.State.Each[step] != nil {
				d.dropItems(step, ReasonStopped)
			}
		case Pending:
		default:
			continue
		}
		d.statuses[step] = byte(Cancelled)
		d.effect(Effect{Kind: EffectEnd, Step: step, Index: NoIndex, Status: Cancelled, Reason: ReasonStopped})
	}
	d.finish(cause)
}

// skip ends a step or an item that has not ended, on request of an operator.
func (d *Decision) skip(o Outcome) {
	o.Round, o.Status = d.State.Round, ByHand
	if d.Status(o.Step) == Running {
		d.effect(Effect{Kind: EffectCancel, Step: o.Step, Index: o.Index})
		if o.Index == NoIndex && d.plan.Steps[o.Step].Each {
			d.dropItems(o.Step, "its step was skipped by an operator")
		}
	}
	if o.Index != NoIndex {
		each := d.State.Each[o.Step]
		each.Skipped = append(each.Skipped, o.Index)
	} else {
		delete(d.State.Each, o.Step)
	}
	d.endStepOrItem(o)
}

// retry restarts a run that has ended and did not succeed.
func (d *Decision) retry() {
	s := d.State
	s.Attempt, s.Deadline = 0, time.Time{}
	s.Status = NoCause
	if d.plan.Timeout > 0 {
		s.Deadline = d.facts.Now.Add(d.plan.Timeout)
	}
	d.reset()
	d.attempt()
}

// reset sets the steps that have failed, were cancelled or were undone to pending, so that they run
// again.
func (d *Decision) reset() {
	s := d.State
	clear(d.resolved)
	for step := range d.statuses {
		status := d.Status(step)
		undone := slices.Contains(s.Undone, step)
		if status != Failed && status != Cancelled && !undone {
			continue
		}
		d.statuses[step] = byte(Pending)
		d.effect(Effect{Kind: EffectReset, Step: step, Index: NoIndex})
		each := s.Each[step]
		switch {
		case each == nil:
		case undone || each.Succeeded == 0:
			delete(s.Each, step)
		default:
			d.redo(step, each)
		}
	}
	slices.Reverse(s.Left)
	s.Done = slices.DeleteFunc(append(s.Done, s.Left...), func(step int) bool { return d.Status(step) == Pending })
	s.Undone, s.Left = nil, nil
}

// stop asks open steps to end. After that, only steps that clean up can begin.
func (d *Decision) stop(cause Cause) {
	s := d.State
	if s.Mode == ModeWaiting || s.Mode == ModeResting || s.Cause == NoCause || cause != ByFailure {
		s.Cause = cause
	}
	d.mode(ModeStopping)
	s.More, s.BackoffUntil = false, time.Time{}
	final := d.final()
	for step := range d.statuses {
		p := &d.plan.Steps[step]
		switch d.Status(step) {
		case Pending:
			if final && (s.Cause == ByCancel || p.Join != progressorv1.JoinRule_JOIN_RULE_ALL_ENDED) {
				d.statuses[step] = byte(Cancelled)
				d.effect(Effect{Kind: EffectEnd, Step: step, Index: NoIndex, Status: Cancelled, Reason: ReasonStopped})
				d.addPartlyDone(step)
				d.follow(step)
			} else if final {
				d.check = append(d.check, step)
			}
		case Running:
			if p.Cancelable && !slices.Contains(s.Asked, step) {
				s.Asked = append(s.Asked, step)
				d.requestCancel(step)
			}
		}
	}
	if d.plan.Grace > 0 && s.Grace.IsZero() && s.Cause == ByCancel {
		s.Grace = d.facts.Now.Add(d.plan.Grace)
		d.endWaits(func(p *PlanStep) bool { return p.Waits != External }, ReasonStopped)
	} else {
		d.endWaits(func(*PlanStep) bool { return true }, ReasonStopped)
	}
}

// final reports whether the current attempt is the last one.
func (d *Decision) final() bool {
	return d.State.Cause != ByFailure || d.State.Attempt >= d.plan.MaxAttempts
}

// requestCancel asks the work of a step to end. For waits and delays, the effect does nothing: the
// run itself ends them (see endWaits).
func (d *Decision) requestCancel(step int) {
	p := &d.plan.Steps[step]
	if p.Each {
		if each := d.State.Each[step]; !each.Stopped {
			each.Stopped = true
			d.cancelItems(step)
			d.checkLater(step, d.plan.Grace)
			d.beginItems(step)
		}
		return
	}
	d.effect(Effect{Kind: EffectCancel, Step: step, Index: NoIndex})
	d.checkLater(step, d.plan.Grace)
}

// endWaits ends the open waits that filter accepts.
func (d *Decision) endWaits(filter func(*PlanStep) bool, reason string) {
	for step := range d.statuses {
		p := &d.plan.Steps[step]
		if d.Status(step) != Running || p.Waits == NoWait || !p.Cancelable || !filter(p) {
			continue
		}
		if !p.Each {
			d.endStep(Outcome{Step: step, Index: NoIndex, Status: Cancelled, Reason: reason})
			continue
		}
		d.endItems(step, reason)
	}
}
