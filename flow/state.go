package flow

import (
	"errors"
	"slices"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Plan is the part of a template that determines the order of its steps.
type Plan struct {
	Steps       []PlanStep
	Linear      bool
	MaxAttempts int32                             // attempts of a run, including the first
	Backoff     func(attempt int32) time.Duration // pause before that attempt
	Timeout     time.Duration                     // from the start of the first step; 0 means none
	Grace       time.Duration                     // for steps that are asked to end; 0 means that they end at once
}

// PlanStep is a step of a plan. A step is identified by its index in Plan.Steps.
type PlanStep struct {
	Deps, Dependents []int
	Join             progressorv1.JoinRule
	Conditional      bool // it has a condition
	Each             bool // it has for_each
	MaxRunning       int  // items at a time; 0 means no limit
	MaxFailures      int  // maximum number of failed items
	Waits            Waiting
	Process          bool // a process does its work; an operator may suspend the process
	Cancelable       bool
	Ignore           bool // its failure does not fail the run
	Undoable         bool // it has a compensation
}

// Waiting describes the event that a step waits for if no job, process or run does its work.
type Waiting byte

// The values of Waiting.
const (
	NoWait   Waiting = iota // a job, a process or a run does the work
	External                // an external system, which answers through the API
	Human
	Delay
)

// StepStatus is the status of a step in a state. A status is one letter, because a run of 1,000
// steps stores 1,000 of them at the end of each step.
type StepStatus byte

// The statuses of steps.
const (
	Pending   StepStatus = 'p'
	Running   StepStatus = 'o' // begun
	Succeeded StepStatus = 's'
	Failed    StepStatus = 'f'
	Ignored   StepStatus = 'i' // failed, without failing the run
	Skipped   StepStatus = 'k' // by its condition or its join rule
	ByHand    StepStatus = 'h' // skipped by an operator; its dependents proceed as if it had succeeded
	Cancelled StepStatus = 'c'
)

func (s StepStatus) ended() bool { return s != Pending && s != Running }

// isSuccess reports whether a step counts as a success for the steps that depend on it.
func (s StepStatus) isSuccess() bool { return s == Succeeded || s == ByHand }

// Mode is the phase of a run.
type Mode string

// The modes of runs.
const (
	ModeWaiting      Mode = "waiting" // for its time or its scope
	ModeRunning      Mode = "running"
	ModeStopping     Mode = "stopping" // open steps have to end; only steps that clean up may begin
	ModeResting      Mode = "resting"  // between two attempts
	ModeCompensating Mode = "compensating"
	ModeEnded        Mode = "ended"
)

// Cause is the reason why a run stops.
type Cause string

// The causes.
const (
	NoCause   Cause = ""
	ByFailure Cause = "failed"
	ByTime    Cause = "expired"
	ByCancel  Cause = "cancelled"
)

// State is the stored state of the steps of a run. It is written in the same transaction as the
// effects of the decision that changed it.
type State struct {
	Version int    `json:"v"`
	Mode    Mode   `json:"mode"`
	Cause   Cause  `json:"cause,omitempty"`
	Status  Cause  `json:"status,omitempty"` // only for a run that has ended: a cause, or "succeeded"
	Lost    bool   `json:"lost,omitempty"`   // the run stops because a worker was lost
	Round   int32  `json:"round,omitempty"`  // counts attempts over all retries; process IDs end with it
	Attempt int32  `json:"attempt,omitempty"`
	Steps   string `json:"steps"`
	// Each is the progress of the steps with for_each.
	Each map[int]*Each `json:"each,omitempty"`
	Compensation
	// Broken is the step that failed the run.
	Broken       *int       `json:"broken,omitempty"`
	BadResult    string     `json:"bad_result,omitempty"` // why the result of the run could not be computed
	Asked        []int      `json:"asked,omitempty"`      // steps that this attempt asked to end
	Deadlines    []Deadline `json:"dues,omitempty"`
	RunTime      time.Time  `json:"run_time,omitzero"` // start time of a run that waits for it
	Deadline     time.Time  `json:"deadline,omitzero"` // deadline of the run
	BackoffUntil time.Time  `json:"rest,omitzero"`     // start of the next attempt
	Grace        time.Time  `json:"grace,omitzero"`    // end of the grace period for waits
	// CheckAsked is the time of the next check whether processes that were asked to end are
	// suspended.
	CheckAsked time.Time `json:"check_asked,omitzero"`
	More       bool      `json:"more,omitempty"` // ready steps are left, because one decision begins a limited number
}

// Compensation is the progress of undoing steps.
type Compensation struct {
	// Steps to undo, in the order in which they ended. Each succeeded, or at least some of its
	// items did.
	Done    []int `json:"done,omitempty"`
	Undone  []int `json:"undone,omitempty"`  // steps that were undone
	Left    []int `json:"left,omitempty"`    // steps whose compensation failed
	Undoing *int  `json:"undoing,omitempty"` // the step whose compensation runs
}

// Each is the progress of a step with for_each.
type Each struct {
	Count     int    `json:"count"`
	Next      int    `json:"next"` // item to begin next
	Running   int    `json:"open"`
	Succeeded int    `json:"succeeded,omitempty"`
	Failed    int    `json:"failed,omitempty"`
	Cancelled int    `json:"cancelled,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`   // total size of the results of the items that succeeded
	Stopped   bool   `json:"stopped,omitempty"` // no further item begins: too many failed, or the run stops
	Skipped   []int  `json:"skipped,omitempty"` // items that were skipped while open: their ends are ignored
	Redo      []byte `json:"redo,omitempty"`    // one bit per item, set if this attempt has to run it; nil means all
}

// Deadline is the time at which the wait or the delay of a step ends, or at which the process or
// the run of a step times out. If Index is not NoIndex, At is the earliest deadline of all items of
// the step. Only the stored items show which of them are due.
type Deadline struct {
	Step  int       `json:"step"`
	Index int       `json:"index"`
	At    time.Time `json:"at"`
}

// NoIndex is the index for a step itself.
const NoIndex = -1

// stateVersion is the version of the format of states. It changes when the meaning of existing
// fields changes.
const stateVersion = 1

// NewState returns the state of a run that has not begun.
func NewState(p *Plan) *State {
	letters := make([]byte, len(p.Steps))
	for n := range letters {
		letters[n] = byte(Pending)
	}
	return &State{Version: stateVersion, Mode: ModeWaiting, Steps: string(letters)}
}

// clone returns a copy that shares no data that a decision changes.
func (s *State) clone() *State {
	c := *s
	if s.Each != nil {
		c.Each = make(map[int]*Each, len(s.Each))
	}
	for step, each := range s.Each {
		copied := *each
		copied.Skipped = slices.Clone(each.Skipped)
		c.Each[step] = &copied
	}
	for _, list := range []*[]int{&c.Done, &c.Undone, &c.Left, &c.Asked} {
		*list = slices.Clone(*list)
	}
	c.Deadlines = slices.Clone(s.Deadlines)
	return &c
}

// IsNewer reports whether the format of the state is newer than this program.
func (s *State) IsNewer() bool { return s.Version > stateVersion }

// Fits returns an error if the state cannot belong to a run of the plan.
func (s *State) Fits(p *Plan) error {
	if len(s.Steps) != len(p.Steps) {
		return errors.New("the state of the run belongs to another template")
	}
	return nil
}

// StatusOf returns the status of a step.
func (s *State) StatusOf(step int) StepStatus { return StepStatus(s.Steps[step]) }

// Timer returns the time at which the run must act without a message. It returns now if there are
// more steps to begin, and the zero time if there is nothing to do.
func (s *State) Timer(now time.Time) time.Time {
	if s.More {
		return now
	}
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	switch s.Mode {
	case ModeWaiting:
		sooner(s.RunTime)
		return at
	case ModeResting:
		sooner(s.BackoffUntil)
	case ModeRunning, ModeStopping, ModeCompensating:
		for _, d := range s.Deadlines {
			sooner(d.At)
		}
		sooner(s.Grace)
		sooner(s.CheckAsked)
	case ModeEnded:
		return at
	}
	if s.Mode != ModeCompensating && s.Cause != ByTime && s.Cause != ByCancel {
		sooner(s.Deadline)
	}
	return at
}

// SetDeadline sets the deadline of a step or an item. For items of a step, the state keeps only the
// earliest deadline, because 10,000 deadlines would exceed the size of a state.
func (s *State) SetDeadline(step, index int, at time.Time) {
	for n := range s.Deadlines {
		d := &s.Deadlines[n]
		if d.Step != step || (d.Index == NoIndex) != (index == NoIndex) {
			continue
		}
		if index == NoIndex || at.Before(d.At) {
			*d = Deadline{Step: step, Index: index, At: at}
		}
		return
	}
	s.Deadlines = append(s.Deadlines, Deadline{Step: step, Index: index, At: at})
}

// ClearDeadline removes the deadlines of a step and of its items. The caller sets the deadline of
// the items that are still open.
func (s *State) ClearDeadline(step int) {
	s.Deadlines = slices.DeleteFunc(s.Deadlines, func(d Deadline) bool { return d.Step == step })
}
