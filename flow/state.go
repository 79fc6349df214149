package flow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Plan is what of a template decides about the order of its steps.
type Plan struct {
	Steps       []PlanStep
	Linear      bool
	MaxAttempts int32                             // of a run; the first one counted
	Backoff     func(attempt int32) time.Duration // before that attempt
	Timeout     time.Duration                     // from the first step's start; 0: none
	Grace       time.Duration                     // of steps that are asked to end; 0: they end at once
}

// PlanStep is a step of a plan. Steps are named by their place in it.
type PlanStep struct {
	Deps, Dependants []int
	Join             progressorv1.JoinRule
	Conditional      bool // it has a condition
	Each             bool // once for each item
	MaxRunning       int  // items at a time; 0: no limit
	MaxFailures      int  // of items
	Waits            Waiting
	Process          bool // a process does it, which an operator may suspend
	Cancelable       bool
	Ignore           bool // its failure is none of the run
	Undoable         bool // it has a compensation
}

// Waiting says whether a step waits for something that is no process.
type Waiting byte

// What a step waits for.
const (
	NoWait  Waiting = iota // a job, a process or a run does it
	Outside                // a worker that polls nothing
	Person
	Delay
)

// StepStatus is the status of a step as states keep it: one letter each, because a run of 1,000 steps writes it at the end of each of them.
type StepStatus byte

// The statuses of steps.
const (
	Pending   StepStatus = 'p'
	Open      StepStatus = 'o' // begun
	Succeeded StepStatus = 's'
	Failed    StepStatus = 'f'
	Ignored   StepStatus = 'i' // failed, which does not fail the run
	Skipped   StepStatus = 'k' // by its condition or its join rule
	ByHand    StepStatus = 'h' // skipped by hand: those that depend on it go on as if it had succeeded
	Cancelled StepStatus = 'c'
)

func (l StepStatus) ended() bool { return l != Pending && l != Open }

// good tells whether a step counts as a success for those that depend on it.
func (l StepStatus) good() bool { return l == Succeeded || l == ByHand }

// Mode is what a run is at.
type Mode string

// The modes of runs.
const (
	ModeWaiting      Mode = "waiting" // for its time, or for its scope
	ModeRunning      Mode = "running"
	ModeStopping     Mode = "stopping" // nothing new begins but what cleans up; what is open has to end
	ModeResting      Mode = "resting"  // between two attempts
	ModeCompensating Mode = "compensating"
	ModeEnded        Mode = "ended"
)

// Cause is why a run stops.
type Cause string

// The causes.
const (
	NoCause   Cause = ""
	ByFailure Cause = "failed"
	ByTime    Cause = "expired"
	ByCancel  Cause = "cancelled"
)

// State is what a run remembers of its steps. The state that a decision leaves is written with what it decided.
type State struct {
	Version int    `json:"v"`
	Mode    Mode   `json:"mode"`
	Cause   Cause  `json:"cause,omitempty"`
	Status  Cause  `json:"status,omitempty"` // of one that has ended: as a cause; succeeded
	Lost    bool   `json:"lost,omitempty"`   // the failure that stops it is that a worker was lost
	Round   int32  `json:"round,omitempty"`  // of attempts, over all retries: the names of what does its steps end with it
	Attempt int32  `json:"attempt,omitempty"`
	Steps   string `json:"steps"`
	// Each is how far the steps are that are done once for each item.
	Each map[int]*Each `json:"each,omitempty"`
	// Done are the steps that succeeded, or some of whose items did, and can be undone, in the order of their ends. Undone are those that were, Left
	// those whose compensation failed.
	Done    []int `json:"done,omitempty"`
	Undone  []int `json:"undone,omitempty"`
	Left    []int `json:"left,omitempty"`
	Undoing *int  `json:"undoing,omitempty"`
	// Broken is the step that failed the run.
	Broken    *int       `json:"broken,omitempty"`
	BadResult string     `json:"bad_result,omitempty"` // why the result of the run could not be made, which failed it
	Asked     []int      `json:"asked,omitempty"`      // steps that this attempt has asked to end; one that cleans up may begin later
	Deadlines []Deadline `json:"dues,omitempty"`
	RunTime   time.Time  `json:"run_time,omitzero"` // of one that waits for its time
	Deadline  time.Time  `json:"deadline,omitzero"` // of the run
	Rest      time.Time  `json:"rest,omitzero"`     // until the next attempt
	Grace     time.Time  `json:"grace,omitzero"`    // of waits that were asked to end
	// CheckAsked is when to look whether processes that were asked to end are suspended.
	CheckAsked time.Time `json:"check_asked,omitzero"`
	More       bool      `json:"more,omitempty"` // steps are ready that have not begun: a result begins a part of them
}

// Each is how far a step is that is done once for each item.
type Each struct {
	Count     int    `json:"count"`
	Next      int    `json:"next"` // item to begin next
	Open      int    `json:"open"`
	Succeeded int    `json:"succeeded,omitempty"`
	Failed    int    `json:"failed,omitempty"`
	Cancelled int    `json:"cancelled,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`   // of the results of the items that succeeded
	Stopped   bool   `json:"stopped,omitempty"` // too many have failed, or the run stops: no other begins
	Skipped   []int  `json:"skipped,omitempty"` // by hand, while they were open: their ends are no news
	Redo      []byte `json:"redo,omitempty"`    // one bit for each item that this attempt has to do; nil: all
}

// Deadline is when a step has waited long enough. With an index, it is when the first item of a step may have: only the
// stored items tell which are due.
type Deadline struct {
	Step  int       `json:"step"`
	Index int       `json:"index"`
	At    time.Time `json:"at"`
}

// NoIndex is the index of a step itself.
const NoIndex = -1

// stateVersion is that of the format of states. A program reads none that is newer.
const stateVersion = 1

// NewState is that of a run that has not begun.
func NewState(p *Plan) *State {
	letters := make([]byte, len(p.Steps))
	for n := range letters {
		letters[n] = byte(Pending)
	}
	return &State{Version: stateVersion, Mode: ModeWaiting, Steps: string(letters)}
}

// Fits tells whether a state can be that of a run of the plan.
func (s *State) Fits(p *Plan) error {
	if s.Version > stateVersion {
		return fmt.Errorf("the state of the run has version %d, and this program knows %d", s.Version, stateVersion)
	}
	if len(s.Steps) != len(p.Steps) {
		return errors.New("the state of the run is of another template")
	}
	return nil
}

// StatusOf is the status of a step.
func (s *State) StatusOf(step int) StepStatus { return StepStatus(s.Steps[step]) }

// Timer is when the run has something to do by itself; zero: never. It is now where more is to be begun.
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
		sooner(s.Rest)
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

// SetDeadline sets when a step, or an item of it, has waited long enough. Of the items of a step, the state keeps the
// earliest deadline only: 10,000 of them would exceed the size of a state.
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

// ClearDeadline removes the deadline of a step and of its items. The caller sets that of the items that are still open.
func (s *State) ClearDeadline(step int) {
	s.Deadlines = slices.DeleteFunc(s.Deadlines, func(d Deadline) bool { return d.Step == step })
}
