package cron

import (
	"slices"
	"time"
)

// Decision is what became of a fire time.
type Decision int32

// The values, with the contract's numbers.
const (
	Fired              Decision = iota + 1
	Queued                      // a run waits for its place
	SkippedOverlap              // the run before was running
	SkippedFailure              // the run before had failed
	SkippedConcurrency          // max_concurrency was reached
	Missed                      // dropped by the misfire policy, the catch-up window or a pause
	Dropped                     // the queue was full
)

var decisionNames = [...]string{"", "fired", "queued", "skipped_overlap", "skipped_failure", "skipped_concurrency", "missed", "dropped"}

// String is the key of Cron.fires_by_decision.
func (d Decision) String() string { return decisionNames[d] }

// Status is that of a fire in the ledger.
type Status int32

// The values, with the contract's numbers.
const (
	Scheduled Status = iota + 1 // of a queued run
	Running
	Success
	Failed
	Timeout
	Cancelled
	Skipped
)

var statusNames = [...]string{"", "scheduled", "running", "success", "failed", "timeout", "cancelled", "skipped"}

func (s Status) String() string { return statusNames[s] }

// Failed tells of an end that failure policies look at. A run that CANCEL_PREV replaced has no end here.
func (s Status) failed() bool { return s == Failed || s == Timeout || s == Cancelled }

// Fire is a row of the ledger.
type Fire struct {
	Time     time.Time // when it was due, without jitter; it identifies the fire and its run in a cron
	Decision Decision
	Reason   string
	Attempt  int32 // of a run that starts; 0: none does, or not yet
	Status   Status
	Manual   bool  // triggered or backfilled
	Count    int64 // fire times that the row stands for; more than 1 only for old missed ones
}

// Run is a run that has started.
type Run struct {
	Fire    time.Time `json:"fire"`
	Attempt int32     `json:"attempt"`
	Status  Status    `json:"status"`
	Ended   time.Time `json:"ended,omitzero"`
	Spent   bool      `json:"spent,omitempty"` // with FailureSkip: its failure has skipped its fire
	Manual  bool      `json:"manual,omitempty"`
	Queued  bool      `json:"queued,omitempty"` // it has waited for its place
}

// Wait is a run that waits for its place.
type Wait struct {
	Fire     time.Time `json:"fire"`
	Manual   bool      `json:"manual,omitempty"`
	Buffered bool      `json:"buffered,omitempty"` // it waits for the end of the run before, too
}

// Range is the fire times from From on and before To.
type Range struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Count int64     `json:"count,omitempty"`
}

// State is what a cron remembers between two events. The zero State is that of a cron that is new; NewState says since when.
type State struct {
	Decided  time.Time `json:"decided"` // what is not after it has its rows
	Paused   bool      `json:"paused,omitempty"`
	Runs     int64     `json:"runs,omitempty"`     // that fire times started or queued; for max_fires
	Failures int32     `json:"failures,omitempty"` // failed runs in a row
	// Running holds the runs that count: those that were asked to cancel are out of it.
	Running []time.Time `json:"running,omitempty"`
	Before  *Run        `json:"before,omitempty"` // the newest run that was started
	// Earlier are those started before it that may be refused still, or may become the run before again where others are: the newest last.
	Earlier []Run  `json:"earlier,omitempty"`
	Queue   []Wait `json:"queue,omitempty"` // in order
	// Manual is the newest fire time that was made for an order of a person.
	Manual time.Time `json:"manual,omitzero"`
	// Trial is when the circuit of FailureHalfOpen opened, or had its last trial.
	Trial time.Time `json:"trial,omitzero"`
	// SkipUntil: what was due until then was missed in a pause.
	SkipUntil time.Time `json:"skip_until,omitzero"`
	Backfills []Range   `json:"backfills,omitempty"` // after Decided: their fire times have rows already
	Old       *Range    `json:"old,omitempty"`       // missed times that are being counted into one row
}

// NewState is the state of a cron that was created at a time, or whose spec was changed then.
func NewState(created time.Time) State { return State{Decided: created} }

// clone keeps the caller's state as it is.
func (s State) clone() State {
	s.Running, s.Queue, s.Backfills, s.Earlier = slices.Clone(s.Running), slices.Clone(s.Queue), slices.Clone(s.Backfills), slices.Clone(s.Earlier)
	if s.Before != nil {
		before := *s.Before
		s.Before = &before
	}
	if s.Old != nil {
		old := *s.Old
		s.Old = &old
	}
	return s
}

// Started gives a run that was started and has a place among the newest; nil: it has none.
func (s State) Started(fire time.Time) *Run {
	if s.Before != nil && s.Before.Fire.Equal(fire) {
		return s.Before
	}
	for i := range s.Earlier {
		if s.Earlier[i].Fire.Equal(fire) {
			return &s.Earlier[i]
		}
	}
	return nil
}

// Start is a queued run whose place is free now: its row goes from SCHEDULED to RUNNING.
type Start struct {
	Fire    time.Time
	Attempt int32
}

// Step is what follows from an event. All of it is stored in one transaction, in this order.
type Step struct {
	Starts []Start
	// Fires are new rows of the ledger, each fire time once. Those with Fired are started.
	Fires []Fire
	// Cancels are the runs to ask to cancel, by their fire times: perhaps one that this very step started.
	Cancels []time.Time
	State   State
	Next    time.Time // when to call Tick; zero: never by itself. Not after now: at once
	Over    bool      // no fire time comes any more: past end_time or max_fires
	Pause   string    // why the cron has just paused itself; "": it has not
}
