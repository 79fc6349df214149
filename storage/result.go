package storage

import (
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Outcome is the outcome of an attempt. The resulting status of the process is derived from its
// locked row.
type Outcome string

// The outcomes of an attempt.
const (
	Finished  Outcome = "finish"
	Failed    Outcome = "fail"     // permanently
	Retry     Outcome = "retry"    // the same task again, after RetryAfter
	Rejected  Outcome = "reject"   // the processor rejected the task; an INIT also removes the process
	Completed Outcome = "complete" // the process ends
	Cancelled Outcome = "cancel"   // a CANCEL task succeeded and the process ends
	Removed   Outcome = "remove"   // the process is removed
)

// Result contains the facts about an attempt that are stored.
type Result struct {
	Outcome   Outcome
	Events    []NewEvent
	AuxState  []byte // nil if unchanged
	Metadata  []byte // JSON object; nil if unchanged
	Response  []byte
	Failure   []byte    // JSON
	Rejection []byte    // JSON
	Detail    string    // detail of the process if it fails
	Messages  []Message // to other processes
	// DeferResponse leaves the task open until a later result of the process has a reply to it.
	DeferResponse bool
	Replies       []Reply // to tasks of the process whose response was deferred
	// RestartHistory starts a new history with the events of this result.
	RestartHistory bool

	Timer       *SetTimer  // replaces the default timer
	UnsetTimers bool       // removes all pending timers
	NamedTimers []SetTimer // each replaces the timer of its name
	UnsetNames  []string

	RetryAfter time.Duration // only for Retry; 0 means at once
	Uncounted  bool          // only for Retry: the attempt does not count (its task was released)
}

// Finish sets the outcome of an attempt that succeeded, after which the process continues.
func (r *Result) Finish() { r.Outcome = Finished }

// Complete sets the outcome of an attempt that ends its process. An ended process has no timers.
func (r *Result) Complete() {
	r.Outcome = Completed
	r.dropTimers()
}

// Cancel sets the outcome of a CANCEL task that succeeded. The task ends its process.
func (r *Result) Cancel() {
	r.Outcome = Cancelled
	r.dropTimers()
}

func (r *Result) dropTimers() {
	r.Timer, r.UnsetTimers, r.NamedTimers, r.UnsetNames = nil, false, nil, nil
}

// Remove sets the outcome of an attempt that removes its process.
func (r *Result) Remove() { r.Outcome = Removed }

// Reject replaces the result with a rejection, which is JSON.
func (r *Result) Reject(rejection []byte) { *r = Result{Outcome: Rejected, Rejection: rejection} }

// Fail replaces the result with a permanent failure, which is JSON. detail becomes the detail of
// the process.
func (r *Result) Fail(failure []byte, detail string) {
	*r = Result{Outcome: Failed, Failure: failure, Detail: detail}
}

// Retry replaces the result with a failure, which is JSON. The task is retried after the given
// time.
func (r *Result) Retry(failure []byte, after time.Duration) {
	*r = Result{Outcome: Retry, Failure: failure, RetryAfter: after}
}

// Release replaces the result with the result of an attempt that was not made. The task waits for
// another node.
func (r *Result) Release(after time.Duration) {
	*r = Result{Outcome: Retry, RetryAfter: after, Uncounted: true}
}

// Reply ends a task whose response was deferred.
type Reply struct {
	TaskID    int64
	Response  []byte
	Rejection []byte // JSON; nil if the task is not rejected
}

// NewEvent is an event of an attempt.
type NewEvent struct {
	// Timestamp is the time of the event. Zero means the time at which the event is stored. The
	// array parameters of statements contain no NULL. They contain the zero time instead,
	// 0001-01-01, which is not a valid time in requests.
	Timestamp time.Time
	Metadata  []byte // JSON object, or nil
	Payload   []byte
}

// SetTimer sets a timer at a time or, if At is zero, after a duration. A negative duration counts
// as 0.
type SetTimer struct {
	Name   string // "" is the default timer
	At     time.Time
	After  time.Duration
	Remove bool // when it fires, the process is removed
}

func (t SetTimer) taskType() string {
	if t.Remove {
		return string(process.TaskRemove)
	}
	return string(process.TaskTimeout)
}

// when returns the parameters of the statements: a time, or a number of microseconds from now (-1
// if the time applies).
func (t SetTimer) when() (at time.Time, afterUs int64) {
	if !t.At.IsZero() {
		return t.At, -1
	}
	return epoch, max(t.After.Microseconds(), 0)
}
