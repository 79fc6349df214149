package storage

import (
	"math"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Outcome says what happened in an attempt. It never says what the status of the process becomes: that is derived from the
// locked row.
type Outcome string

// The outcomes of an attempt.
const (
	Finished  Outcome = "finish"
	Failed    Outcome = "fail"     // for good
	Retry     Outcome = "retry"    // the same task again: after RetryAfter, or at once
	Rejected  Outcome = "reject"   // the processor said no; of an INIT: the process goes
	Completed Outcome = "complete" // the process is at its end
	Cancelled Outcome = "cancel"   // of a CANCEL task that has done its work: the process is at its end
	Removed   Outcome = "remove"   // the process goes
)

// Completion is one finished attempt and everything that has to be stored of it, in one transaction or not at all.
type Completion struct {
	Key          process.Key
	TaskID       int64
	TaskType     process.TaskType
	Attempt      int32
	FencingToken int64
	Outcome      Outcome

	Events      []NewEvent
	LastEventID int64 // of the process as the attempt was given it; the events follow it
	// RestartHistory begins a new history with these events.
	RestartHistory bool
	AuxState       []byte // nil: unchanged
	Metadata       []byte // JSON object; nil: unchanged
	Response       []byte
	Failure        []byte // JSON
	Rejection      []byte // JSON
	Detail         string // of the process, where it fails

	Timer       *SetTimer  // replaces the default timer
	Fired       bool       // the task was the default timer: there is none that another could replace
	UnsetTimers bool       // drops all pending timers
	NamedTimers []SetTimer // each replaces the timer of its name
	UnsetNames  []string

	Messages     []Message // to other processes
	LowPriority  bool      // these may wait for what is more urgent: see OnMessages
	Effects      []Effect  // what else is written with it, where the messages are
	EffectsOnEnd []Effect  // what is written with it however it ended

	RetryAfter     time.Duration // of Retry; 0: at once
	Uncounted      bool          // of Retry: the attempt does not count (it was given back)
	Promote        bool          // this node goes on with the next task of the process
	StepTimeout    time.Duration // of the next task
	IdempotencyKey string        // of the task
	Leased         bool          // a worker held the attempt: its lease goes
	AnsweredBy     string        // the worker whose answer it is; "": a processor of the engine, or nobody has answered
	Run            process.Key   // of Completed: the run whose step the job is, which is told; zero: none
	GoesOn         bool          // this node has a place to go on with the task of that run: see EndSteps
	StartsOn       bool          // likewise with a job that the result starts: see StartSteps
	Job            *JobEnd       // of an attempt of a job; nil: the process is none
}

// NewEvent is an event that an attempt produced.
type NewEvent struct {
	// Timestamp is zero for the time at which the event is stored. Arrays of statements carry no NULL:
	// they carry the zero time, 0001-01-01, which is no valid time of a request.
	Timestamp time.Time
	Metadata  []byte // JSON object; nil: none
	Payload   []byte
}

// SetTimer sets a timer at a time, or (where At is zero) after a while; a negative while is none.
type SetTimer struct {
	Name   string // "" is the default timer
	At     time.Time
	After  time.Duration
	Remove bool // when it fires the process is removed
}

func (t SetTimer) taskType() string {
	if t.Remove {
		return string(process.TaskRemove)
	}
	return string(process.TaskTimeout)
}

// when gives a timer as the statements take it: a time, or a number of microseconds from now on (-1: the time holds).
func (t SetTimer) when() (at time.Time, afterUs int64) {
	if !t.At.IsZero() {
		return t.At, -1
	}
	return epoch, max(t.After.Microseconds(), 0)
}

// epoch is the time of columns that a query returns for NULL, and of timers that are set by a duration.
var epoch = time.Unix(0, 0).UTC()

// microseconds turns a distance in time of the database into a Duration, which ends after 292 years: a timer may be due in 9999.
func microseconds(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}

// Saved is what became of a Completion.
type Saved struct {
	Status     process.Status // of the process, after it
	Now        time.Time      // when it was stored: the time of events that have none; zero where that is not known
	Next       *Claim         // the next task, already running here; without the columns of the process, unless it is of another one: of the run that was told
	Deferred   bool           // a next task is due but was not taken (Promote was false): the pollers must look
	TimerDelay time.Duration  // until the new default timer is due; negative: there is none
	Cancelled  []int64        // waiting tasks that ended with it
	Lost       bool           // committed, but the answer was lost: what came next is adopted, and the pollers must look; Status is empty
}

// plain tells whether SaveFinished or SaveCompleted may do for it: an attempt that has finished, or its process with it, and sets no timer. What it
// says to others, and its riders, find it by the row that either statement writes of its task.
func (c *Completion) plain() bool {
	return (c.Outcome == Finished || c.Outcome == Completed) && c.TaskType != process.TaskRepair && c.Timer == nil &&
		!c.RestartHistory && !c.UnsetTimers && len(c.NamedTimers) == 0 &&
		len(c.UnsetNames) == 0 && len(c.Failure) == 0 && len(c.Rejection) == 0
}

func (c *Completion) bytes() int {
	n := 200 + len(c.AuxState) + len(c.Metadata) + len(c.Response) + len(c.Failure) + len(c.Rejection)
	for _, e := range c.Events {
		n += 100 + len(e.Payload) + len(e.Metadata)
	}
	for i := range c.Messages {
		n += c.Messages[i].bytes()
	}
	for _, r := range c.Effects {
		n += r.Bytes()
	}
	for _, r := range c.EffectsOnEnd {
		n += r.Bytes()
	}
	return n
}

// events are those that are stored.
func (c *Completion) events() []NewEvent {
	if c.applies() {
		return c.Events
	}
	return nil
}

// applies tells whether events, timers and messages of the completion are stored: an attempt that goes wrong, or says no, leaves none.
func (c *Completion) applies() bool {
	return c.Outcome == Finished || c.Outcome == Completed || c.Outcome == Cancelled
}

// notifiesRun reports whether EndSteps notifies a run of the end of this job.
func (c *Completion) notifiesRun() bool { return c.Outcome == Completed && c.Run != process.Key{} }

// starts tells whether a message is the start of a job that StartSteps carries out.
func (c *Completion) starts(m *Message) bool {
	return m.Plain && m.NotifyParentArgs != nil && m.Target.Namespace == c.Key.Namespace && c.applies()
}

// StoresChanges reports whether the messages and effects of the completion are stored.
func (c *Completion) StoresChanges() bool { return c.applies() || c.Outcome == Removed }

// removes tells whether the process goes with this completion.
func (c *Completion) removes() bool {
	return c.Outcome == Removed || (c.Outcome == Rejected && c.TaskType == process.TaskInit)
}
