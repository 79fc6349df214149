package cron

import (
	"slices"
	"time"
)

// Decision is the decision about a fire time.
type Decision int32

// The values, with the numbers of the API.
const (
	Fired              Decision = iota + 1
	Queued                      // a run is queued
	SkippedOverlap              // the previous run was running
	SkippedFailure              // the previous run had failed
	SkippedConcurrency          // max_concurrency was reached
	Missed                      // dropped by the misfire policy, the catch-up window or a pause
	Dropped                     // the queue was full
)

var decisionNames = [...]string{"", "fired", "queued", "skipped_overlap", "skipped_failure", "skipped_concurrency",
	"missed", "dropped"}

// String returns the key in Cron.fires_by_decision.
func (d Decision) String() string { return decisionNames[d] }

// Status is the status of a fire in the ledger.
type Status int32

// The values, with the numbers of the API.
const (
	Scheduled Status = iota + 1 // the run is queued
	Running
	Success
	Failed
	Timeout
	Cancelled
	Skipped
)

var statusNames = [...]string{"", "scheduled", "running", "success", "failed", "timeout", "cancelled", "skipped"}

func (s Status) String() string { return statusNames[s] }

// failed reports whether an end counts as a failure for the policies. The end of a run that
// CANCEL_PREV has replaced does not.
func (s Status) failed() bool { return s == Failed || s == Timeout || s == Cancelled }

// Fire is a row of the ledger.
type Fire struct {
	Time     time.Time // due time without jitter; identifies the fire and its run within the cron
	Decision Decision
	Reason   string
	Attempt  int32 // attempt of the run; 0 if no run has started
	Status   Status
	Manual   bool  // triggered, backfilled or run again
	Count    int64 // number of fire times; more than 1 only for old missed ones
}

// Run is a run that has started.
type Run struct {
	Fire    time.Time `json:"fire"`
	Attempt int32     `json:"attempt"`
	Status  Status    `json:"status"`
	Ended   time.Time `json:"ended,omitzero"`
	Spent   bool      `json:"spent,omitempty"` // with FailureSkip: the failure has caused a skip
	Manual  bool      `json:"manual,omitempty"`
	Queued  bool      `json:"queued,omitempty"` // it was queued
}

// Wait is a queued run.
type Wait struct {
	Fire     time.Time `json:"fire"`
	Manual   bool      `json:"manual,omitempty"`
	Buffered bool      `json:"buffered,omitempty"` // it also waits for the end of the previous run
}

// Range is a range of fire times. It is [From, To) in State.Backfills. In State.Old, it includes
// To, and Count is the number of fire times.
type Range struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Count int64     `json:"count,omitempty"`
}

// State is the state of a cron between two events. In the zero State, no fire time is decided. In a
// State of NewState, the fire times before the creation of the cron count as decided.
type State struct {
	Decided  time.Time `json:"decided"` // all fire times up to this time have rows
	Paused   bool      `json:"paused,omitempty"`
	Runs     int64     `json:"runs,omitempty"`     // started or queued by fire times; for max_fires
	Failures int32     `json:"failures,omitempty"` // consecutive failed runs
	// Running has the fire times of the running runs, except for runs that were asked to cancel.
	Running  []time.Time `json:"running,omitempty"`
	Previous *Run        `json:"before,omitempty"` // the newest started run
	// Earlier has the earlier runs that may still be refused, or that may become the previous run
	// if others are refused. The newest run is last.
	Earlier []Run  `json:"earlier,omitempty"`
	Queue   []Wait `json:"queue,omitempty"` // in order
	// Manual is the newest fire time of a manual run.
	Manual time.Time `json:"manual,omitzero"`
	// Trial is the time at which the circuit of FailureHalfOpen opened or had its last trial.
	Trial time.Time `json:"trial,omitzero"`
	// SkipUntil is the time up to which fire times were missed because of a pause.
	SkipUntil time.Time `json:"skip_until,omitzero"`
	Backfills []Range   `json:"backfills,omitempty"` // ranges after Decided whose fire times have rows
	Old       *Range    `json:"old,omitempty"`       // missed times that are being counted for a common row
}

// NewState returns the state of a cron that was created, or whose spec was changed, at the given
// time.
func NewState(created time.Time) State { return State{Decided: created} }

// clone returns a copy, so that the state of the caller does not change.
func (s State) clone() State {
	s.Running, s.Queue, s.Backfills, s.Earlier = slices.Clone(s.Running), slices.Clone(s.Queue),
		slices.Clone(s.Backfills), slices.Clone(s.Earlier)
	if s.Previous != nil {
		previous := *s.Previous
		s.Previous = &previous
	}
	if s.Old != nil {
		old := *s.Old
		s.Old = &old
	}
	return s
}

// Started returns the run of a fire if it is among the newest started runs, and otherwise nil.
func (s State) Started(fire time.Time) *Run {
	if s.Previous != nil && s.Previous.Fire.Equal(fire) {
		return s.Previous
	}
	for i := range s.Earlier {
		if s.Earlier[i].Fire.Equal(fire) {
			return &s.Earlier[i]
		}
	}
	return nil
}

// Start is a queued run that can start now: its row changes from SCHEDULED to RUNNING.
type Start struct {
	Fire    time.Time
	Attempt int32
}

// Step is the result of an event. Its fields are stored in one transaction, in this order.
type Step struct {
	Starts []Start
	// Fires has the new rows of the ledger, at most one per fire time. The runs of rows with Fired
	// are started.
	Fires []Fire
	// Cancels has the fire times of the runs to cancel. This step may have started one of them.
	Cancels []time.Time
	State   State
	Next    time.Time // when to call Tick; zero means never, and a past time means now
	Over    bool      // there are no more fire times: end_time or max_fires is reached
	Pause   string    // why the cron has paused itself in this step; "" if it has not
}
