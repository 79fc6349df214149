package flow

import (
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Reader answers what a decision has to know beyond plan and state. It is asked at most once for each step that is about to begin.
type Reader interface {
	// Condition tells whether a step with a condition is to run.
	Condition(step int) (bool, error)
	// Items lists the items of a step that is done for each by the hashes of their values.
	Items(step int) ([]int64, error)
	// Begin prepares a step, or an item of it, and says until when a wait or a delay waits; zero: for ever.
	Begin(step, index int) (due time.Time, err error)
	// OpenItems lists the items of a step that have begun in this round and are not at their end.
	OpenItems(step int) ([]int, error)
	// DoneItems lists the items of a step that succeeded.
	DoneItems(step int) ([]DoneItem, error)
	// ResultBytes returns the size of the result of an item that this decision ends.
	ResultBytes(step, index int) int
	// Undo prepares the compensation of a step.
	Undo(step int) error
	// Result makes the result of a run whose steps have succeeded.
	Result() error
}

// DoneItem is an item that succeeded.
type DoneItem struct {
	Index int
	Hash  *int64 // of its value; nil if it was stored by a version without hashes
}

// SizeError says that the items of a step have results that are too large together.
type SizeError struct{ Bytes int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the results of the items have %d bytes of JSON, at most %d together", e.Bytes, MaxItemsBytes)
}

// MaxItemsBytes bounds the results of the items of a step together, in bytes of JSON.
const MaxItemsBytes = process.MaxResultBytes

// EffectKind is what an effect does.
type EffectKind string

// The deeds. All of one decision are written in one transaction.
const (
	EffectBegin              EffectKind = "begin"     // what does a step, or an item of it
	EffectEnd                EffectKind = "end"       // the step has a status for good
	EffectCancel             EffectKind = "ask"       // whatever does the step is asked to end
	EffectCompensate         EffectKind = "undo"      // begins the compensation of a step
	EffectCompensated        EffectKind = "undone"    // it ended
	EffectCancelCompensation EffectKind = "ask undo"  // the compensation of a step is asked to end
	EffectRunStatus          EffectKind = "change"    // the status of the run
	EffectNotStarted         EffectKind = "broken"    // a step could not begin: Err says why; End follows
	EffectReset              EffectKind = "reset"     // a step that has ended is PENDING again
	EffectEndSuspended       EffectKind = "suspended" // ends the SUSPENDED processes of a step that was asked to end
	EffectDropItems          EffectKind = "drop"      // the stored items of a step are of an earlier round: but for Kept, they go
)

// ReasonStopped is the reason of a step that ends because its run stops: who writes it down knows the names of steps, and says why.
const ReasonStopped = "the run stopped"

// ReasonOverdue is the reason of Ask for what has passed the timeout of its step.
const ReasonOverdue = "it passed the timeout of its step"

// ReasonItemsFailed is the reason of an item that ends because too many items of its step have failed.
const ReasonItemsFailed = "too many items of its step failed"

// Effect is something that follows from a decision.
type Effect struct {
	Kind   EffectKind
	Step   int
	Index  int
	Status StepStatus // of End; of Undone: Succeeded, Failed or Cancelled
	Reason string
	Err    error
	Due    time.Time   // of Begin
	Was    Mode        // of Change
	Kept   map[int]int // of Drop: the new indexes of the items that stay done, by their old ones
}

// Outcome is how something ended that does a step.
type Outcome struct {
	Step, Index int
	Round       int32
	Undo        bool       // it is the compensation of the step
	Status      StepStatus // Succeeded, Failed or Cancelled; of what is skipped at its due time: Skipped
	Lost        bool       // its worker was lost, with no takeover left
	Overdue     bool       // it passed the timeout of its step, and is asked to end
	Reason      string     // of an item that the run itself ends, and of a compensation
}

// startsAtOnce is how many steps one result begins: a result says at most so much to other processes.
const startsAtOnce = 100

// Decision is a run while something is decided about it.
type Decision struct {
	Plan    *Plan
	State   *State
	Reader  Reader
	Now     time.Time
	Effects []Effect

	statuses   []byte
	starts     int
	check      []int       // steps whose turn it may be
	resolved   []bool      // steps that stand: see stands
	unresolved map[int]int // those that do not, with the number of ends until then
	ends       int
	err        error
}

// Decide makes a run that decides. Its state is changed in place.
func Decide(p *Plan, s *State, r Reader, now time.Time) *Decision {
	return &Decision{Plan: p, State: s, Reader: r, Now: now, statuses: []byte(s.Steps), resolved: make([]bool, len(s.Steps))}
}

// done ends a decision.
func (d *Decision) done() error {
	if d.err == nil {
		d.work()
		d.settle()
	}
	d.State.Steps = string(d.statuses)
	return d.err
}

// Status returns the status of a step, as the decision has left it so far.
func (d *Decision) Status(step int) StepStatus { return StepStatus(d.statuses[step]) }

// EndsNow tells whether a step ends with this decision.
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

// Start begins the first attempt, once the run waits for nothing any more.
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

// Tick does what its time has come for.
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

// DueNow returns the deadlines that have passed: of steps, and of steps that may have items whose time has come.
func (s *State) DueNow(now time.Time) (due []Deadline) {
	for _, d := range s.Deadlines {
		if !d.At.After(now) {
			due = append(due, d)
		}
	}
	return due
}

// Ended takes the end of what does a step. known: it is that of something that is open.
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
			each.Skipped = append(each.Skipped, o.Index) // its own end is no news
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
		o.Status, o.Reason = Failed, "cancelled" // not by the run
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

// end gives a step its status.
func (d *Decision) end(step int, l StepStatus, reason string, lost bool) {
	p, s := &d.Plan.Steps[step], d.State
	if l == Cancelled && s.Mode == ModeRunning {
		l, reason = Failed, "cancelled" // by somebody who is not the run
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

// addPartlyDone adds a step that did not succeed to those to undo if some of its items succeeded.
func (d *Decision) addPartlyDone(step int) {
	each := d.State.Each[step]
	if each != nil && each.Succeeded > 0 && d.Plan.Steps[step].Undoable {
		d.State.Done = append(d.State.Done, step)
	}
}

// Cancel asks the run to end. The caller has looked whether it may.
func (d *Decision) Cancel() error {
	d.stop(ByCancel)
	return d.done()
}

// Abort ends the run at once: what is open is asked to end, and nobody waits for it.
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
		d.undone(step, Cancelled, "the run was ended")
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

// Skip ends a step, or an item, by hand that has not ended.
func (d *Decision) Skip(step, index int) error {
	if d.Status(step) == Open {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
		if index == NoIndex && d.Plan.Steps[step].Each {
			d.dropItems(step, "its step was skipped by hand")
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

// Retry begins a run again that is at its end and did not succeed.
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

// reset has what did not succeed done again, and what was undone.
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

// stop lets nothing new begin, but what cleans up, and asks what is open to end.
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
		d.endWaits(func(p *PlanStep) bool { return p.Waits != Outside }, ReasonStopped)
	} else {
		d.endWaits(func(*PlanStep) bool { return true }, ReasonStopped)
	}
}

// final tells whether no other attempt follows.
func (d *Decision) final() bool {
	return d.State.Cause != ByFailure || d.State.Attempt >= d.Plan.MaxAttempts
}

// ask asks what does a step to end. Waits are ended by the run itself.
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

// endWaits ends the waits that are open, of some kinds.
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
