package flow

import (
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Reader provides the facts that a decision needs in addition to the plan and the state. A decision
// calls it at most once for each step that is about to begin.
type Reader interface {
	// Condition reports whether a step with a condition is to run.
	Condition(step int) (bool, error)
	// Items returns the hashes of the items of a step with for_each.
	Items(step int) ([]int64, error)
	// Begin prepares a step or one of its items. For a wait or a delay, it returns the time when it
	// is due, or the zero time if it has no due time.
	Begin(step, index int) (due time.Time, err error)
	// OpenItems returns the indexes of the items of a step that have begun in this round and have
	// not ended.
	OpenItems(step int) ([]int, error)
	// DoneItems returns the items of a step that succeeded.
	DoneItems(step int) ([]DoneItem, error)
	// ResultBytes returns the size of the result of an item that ends in this decision.
	ResultBytes(step, index int) int
	// Undo prepares the compensation of a step.
	Undo(step int) error
	// Result computes the result of a run whose steps have succeeded.
	Result() error
}

// DoneItem is an item that succeeded.
type DoneItem struct {
	Index int
	Hash  *int64 // hash of the item's value; nil if it was stored by a version without hashes
}

// SizeError reports that the results of the items of a step are too large in total.
type SizeError struct{ Bytes int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the results of the items have %d bytes of JSON, at most %d together", e.Bytes, MaxItemsBytes)
}

// MaxItemsBytes limits the total size of the results of the items of a step, in bytes of JSON.
const MaxItemsBytes = process.MaxResultBytes

// startsAtOnce is the maximum number of steps and items that one decision begins. It limits the
// messages to other processes that one result contains.
const startsAtOnce = 100

// Decision is a run while a decision about it is made.
type Decision struct {
	Plan    *Plan
	State   *State
	Reader  Reader
	Now     time.Time
	Effects []Effect

	statuses   []byte
	starts     int
	check      []int       // steps that may be ready
	resolved   []bool      // steps that are resolved: see stands
	unresolved map[int]int // steps that are not resolved, with the value of ends when that was computed
	ends       int
	err        error
}

// Decide begins a decision about a run. It changes the state in place.
func Decide(p *Plan, s *State, r Reader, now time.Time) *Decision {
	return &Decision{Plan: p, State: s, Reader: r, Now: now, statuses: []byte(s.Steps), resolved: make([]bool, len(s.Steps))}
}

// done completes a decision.
func (d *Decision) done() error {
	if d.err == nil {
		d.work()
		d.settle()
	}
	d.State.Steps = string(d.statuses)
	return d.err
}

// Status returns the status of a step, including the changes of this decision so far.
func (d *Decision) Status(step int) StepStatus { return StepStatus(d.statuses[step]) }

// EndsNow reports whether a step ends in this decision.
func (d *Decision) EndsNow(step int) bool {
	return slices.ContainsFunc(d.Effects, func(e Effect) bool { return e.Kind == EffectEnd && e.Step == step && e.Index == NoIndex })
}

func (d *Decision) effect(e Effect) { d.Effects = append(d.Effects, e) }

func (d *Decision) mode(m Mode) {
	if d.State.Mode != m {
		d.effect(Effect{Kind: EffectRunStatus, Step: NoIndex, Index: NoIndex, Was: d.State.Mode})
		d.State.Mode = m
	}
}

// Start begins the first attempt of a run that no longer waits for its time or its scope.
func (d *Decision) Start() error {
	s := d.State
	s.RunTime = time.Time{}
	if d.Plan.Timeout > 0 {
		s.Deadline = d.Now.Add(d.Plan.Timeout)
	}
	d.attempt()
	return d.done()
}

// attempt begins an attempt of the whole run.
func (d *Decision) attempt() {
	s := d.State
	s.Round++
	s.Attempt++
	s.Cause, s.Lost, s.Broken, s.Rest, s.Grace, s.Deadlines, s.Asked = NoCause, false, nil, time.Time{}, time.Time{}, nil, nil
	s.BadResult, s.CheckAsked = "", time.Time{}
	d.mode(ModeRunning)
	for step := range d.statuses {
		d.check = append(d.check, step)
	}
}

// Tick handles everything that is due.
func (d *Decision) Tick() error {
	s := d.State
	passed := func(t time.Time) bool { return !t.IsZero() && !t.After(d.Now) }
	if s.Mode == ModeWaiting && passed(s.RunTime) {
		return d.Start()
	}
	if s.Mode != ModeWaiting && s.Mode != ModeEnded && s.Mode != ModeCompensating && s.Cause != ByTime && s.Cause != ByCancel && passed(s.Deadline) {
		d.stop(ByTime)
		return d.done()
	}
	if s.Mode == ModeResting && passed(s.Rest) {
		d.attempt()
		return d.done()
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
	return d.done()
}

// DueNow returns the deadlines that have passed. The deadline of an item means that at least one
// item of its step may be due.
func (s *State) DueNow(now time.Time) (due []Deadline) {
	for _, d := range s.Deadlines {
		if !d.At.After(now) {
			due = append(due, d)
		}
	}
	return due
}

// Ended records the end of a step, an item or a compensation. It returns known as false if that was
// not open, as for duplicate and late messages.
func (d *Decision) Ended(o Outcome) (known bool, err error) {
	s := d.State
	switch {
	case o.Round != s.Round || s.Mode == ModeEnded:
		return false, d.done()
	case o.Undo:
		if s.Undoing == nil || *s.Undoing != o.Step {
			return false, d.done()
		}
		s.Undoing = nil
		d.undone(o.Step, o.Status, o.Reason)
		return true, d.done()
	case d.Status(o.Step) != Open || o.Index != NoIndex && slices.Contains(s.Each[o.Step].Skipped, o.Index):
		return false, d.done()
	}
	if o.Overdue {
		d.effect(Effect{Kind: EffectCancel, Step: o.Step, Index: o.Index, Reason: ReasonOverdue})
		if o.Index != NoIndex {
			each := s.Each[o.Step]
			each.Skipped = append(each.Skipped, o.Index) // so that its own end is ignored
		}
	}
	d.ended(o)
	return true, d.done()
}

func (d *Decision) ended(o Outcome) {
	s := d.State
	if o.Index == NoIndex {
		d.end(o.Step, o.Status, "", o.Lost)
		return
	}
	each := s.Each[o.Step]
	each.Open--
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
		each.Bytes += d.Reader.ResultBytes(o.Step, o.Index)
	}
	d.effect(Effect{Kind: EffectEnd, Step: o.Step, Index: o.Index, Status: o.Status, Reason: o.Reason})
	if (each.Failed > d.Plan.Steps[o.Step].MaxFailures || each.Bytes > MaxItemsBytes) && !each.Stopped {
		each.Stopped = true
		s.Lost = s.Lost || o.Lost
		d.stopItems(o.Step)
	}
	d.items(o.Step)
}

// end sets the final status of a step.
func (d *Decision) end(step int, l StepStatus, reason string, lost bool) {
	p, s := &d.Plan.Steps[step], d.State
	if l == Cancelled && s.Mode == ModeRunning {
		l, reason = Failed, "cancelled" // it was not cancelled by the run
	}
	if l == Failed && p.Ignore {
		l = Ignored
	}
	d.statuses[step] = byte(l)
	s.ClearDeadline(step)
	d.effect(Effect{Kind: EffectEnd, Step: step, Index: NoIndex, Status: l, Reason: reason})
	if l == Succeeded && p.Undoable {
		s.Done = append(s.Done, step)
	} else {
		d.addPartlyDone(step)
	}
	if l == Failed && s.Broken == nil {
		s.Broken, s.Lost = &step, lost || s.Lost
	}
	d.follow(step)
	if l == Failed && s.Mode == ModeRunning {
		d.stop(ByFailure)
	}
}

// addPartlyDone adds a step that did not succeed to the steps to undo if some of its items
// succeeded.
func (d *Decision) addPartlyDone(step int) {
	each := d.State.Each[step]
	if each != nil && each.Succeeded > 0 && d.Plan.Steps[step].Undoable {
		d.State.Done = append(d.State.Done, step)
	}
}

// Cancel asks the run to end. The caller checks that this is allowed.
func (d *Decision) Cancel() error {
	d.stop(ByCancel)
	return d.done()
}

// Abort ends the run at once. It asks open steps to end and does not wait for them.
func (d *Decision) Abort() error {
	s := d.State
	status := ByCancel
	if s.Mode == ModeCompensating {
		status = s.stopped()
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
		case Open:
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
	if d.err == nil {
		d.finish(status)
	}
	s.Steps = string(d.statuses)
	return d.err
}

// Skip ends a step or an item that has not ended, on request of an operator.
func (d *Decision) Skip(step, index int) error {
	if d.Status(step) == Open {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
		if index == NoIndex && d.Plan.Steps[step].Each {
			d.dropItems(step, "its step was skipped by an operator")
		}
	}
	if index != NoIndex {
		each := d.State.Each[step]
		each.Skipped = append(each.Skipped, index)
		d.ended(Outcome{Step: step, Index: index, Round: d.State.Round, Status: ByHand})
		return d.done()
	}
	delete(d.State.Each, step)
	d.end(step, ByHand, "", false)
	return d.done()
}

// Retry restarts a run that has ended and did not succeed.
func (d *Decision) Retry() error {
	s := d.State
	s.Attempt, s.Deadline = 0, time.Time{}
	s.Status = NoCause
	if d.Plan.Timeout > 0 {
		s.Deadline = d.Now.Add(d.Plan.Timeout)
	}
	d.reset()
	d.attempt()
	return d.done()
}

// reset sets the steps that did not succeed or were undone to pending, so that they run again.
func (d *Decision) reset() {
	s := d.State
	clear(d.resolved)
	for step := range d.statuses {
		l := d.Status(step)
		undone := slices.Contains(s.Undone, step)
		if l != Failed && l != Cancelled && !undone {
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

// stop asks open steps to end. After it, only steps that clean up can begin.
func (d *Decision) stop(cause Cause) {
	s := d.State
	if s.Mode == ModeWaiting || s.Mode == ModeResting || s.Cause == NoCause || cause != ByFailure {
		s.Cause = cause
	}
	d.mode(ModeStopping)
	s.More, s.Rest = false, time.Time{}
	final := d.final()
	for step := range d.statuses {
		p := &d.Plan.Steps[step]
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
		case Open:
			if p.Cancelable && !slices.Contains(s.Asked, step) {
				s.Asked = append(s.Asked, step)
				d.ask(step)
			}
		}
	}
	if d.Plan.Grace > 0 && s.Grace.IsZero() && s.Cause == ByCancel {
		s.Grace = d.Now.Add(d.Plan.Grace)
		d.endWaits(func(p *PlanStep) bool { return p.Waits != External }, ReasonStopped)
	} else {
		d.endWaits(func(*PlanStep) bool { return true }, ReasonStopped)
	}
}

// final reports whether no further attempt follows.
func (d *Decision) final() bool {
	return d.State.Cause != ByFailure || d.State.Attempt >= d.Plan.MaxAttempts
}

// ask asks the work of a step to end. The run itself ends waits.
func (d *Decision) ask(step int) {
	p := &d.Plan.Steps[step]
	if p.Each {
		if each := d.State.Each[step]; !each.Stopped {
			each.Stopped = true
			d.askItems(step)
			d.checkLater(step, d.Plan.Grace)
			d.items(step)
		}
		return
	}
	d.effect(Effect{Kind: EffectCancel, Step: step, Index: NoIndex})
	d.checkLater(step, d.Plan.Grace)
}

// endWaits ends the open waits for which the function which returns true.
func (d *Decision) endWaits(which func(*PlanStep) bool, reason string) {
	for step := range d.statuses {
		p := &d.Plan.Steps[step]
		if d.Status(step) != Open || p.Waits == NoWait || !p.Cancelable || !which(p) {
			continue
		}
		if !p.Each {
			d.end(step, Cancelled, reason, false)
			continue
		}
		d.endItems(step, reason)
	}
}
