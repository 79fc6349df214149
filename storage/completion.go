package storage

import (
	"math"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Completion is the end of an attempt with everything that is stored for it, in one transaction or
// not at all.
type Completion struct {
	TaskAttempt
	Result
	Continuation

	// The kind of the process sets the following fields. Effects are stored if the result applies
	// or removes the process. EffectsOnEnd are stored for any result.
	Effects      []Effect
	EffectsOnEnd []Effect
	LowPriority  bool        // the messages may be delivered later than others, see OnMessages
	Record       Record      // nil if the kind does not record attempts
	Kept         []byte      // JSON result that an effect stores, or nil
	Run          process.Key // the run to notify if the result is Completed; may be zero
	Advance      *Advance    // only with Run: what the run does next, or nil
}

// TaskAttempt is an attempt of a task.
type TaskAttempt struct {
	Key            process.Key
	TaskID         int64
	TaskType       process.TaskType
	Attempt        int32
	FencingToken   int64
	IdempotencyKey string // idempotency key of the task
	LastEventID    int64  // last event of the process at the start of the attempt; new events follow it
	Fired          bool   // the task was the default timer, so no default timer has to be replaced
	Leased         bool   // a worker held the attempt; its lease is deleted
	AnsweredBy     string // the worker that answered; "" for processors and if there was no answer
}

// Continuation describes the work that this node can do after a result is stored.
type Continuation struct {
	Promote      bool          // continue with the next task of the process
	MayContinue  bool          // the node has a slot to continue with the task of the run, see EndSteps
	MayStartStep bool          // the node has a slot for a process that the result starts, see StartSteps
	StepTimeout  time.Duration // step timeout of the next task
}

// epoch is the time that queries return for NULL, and the time of timers that are set by a
// duration.
var epoch = time.Unix(0, 0).UTC()

// microseconds converts an interval of the database to a Duration. It limits the result to the
// maximum of a Duration, 292 years, because a timer may be due in the year 9999.
func microseconds(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}

// Saved is the result of storing a Completion.
type Saved struct {
	Status process.Status // status of the process after the task
	Now    time.Time      // time of events without a timestamp; zero if unknown
	// Next is the next task, which already runs here. The state and the metadata of the process are
	// set only if it belongs to another process: the run that was notified.
	Next *Claim
	// Deferred is true if a next task may be due but was not promoted, because Promote was false or
	// the connection broke. The pollers must look for it.
	Deferred   bool
	TimerDelay time.Duration // until the new default timer is due; negative if there is none
	Cancelled  []int64       // waiting tasks that were cancelled when the process ended
	// Advanced is true if Completion.Advance is also stored.
	Advanced bool
	// Reserved is the task that will report the end of Next, if Next is a step.
	Reserved ReservedTask
	// ResponseLost is true if the result is committed but the response was lost. The next task is
	// adopted, and the pollers must look for others. Status is empty.
	ResponseLost bool
}

// plain reports whether a statement of the fast path can store the completion: the attempt finished
// or ended its process, and sets no timer unless the process continues with it. Messages and
// effects do not matter, because their statements find the task row that the fast path writes. See
// also batch.skipFastPath.
func (c *Completion) plain() bool {
	return (c.Outcome == Finished || c.Outcome == Completed) && c.TaskType != process.TaskRepair &&
		(c.Timer == nil || c.continues()) && !c.RestartHistory && !c.DeferResponse && len(c.Replies) == 0 &&
		!c.UnsetTimers && len(c.NamedTimers) == 0 && len(c.UnsetNames) == 0 && len(c.Failure) == 0 &&
		len(c.Rejection) == 0
}

// continues reports whether the process should continue with the new default timer, which is due
// now.
func (c *Completion) continues() bool {
	return c.Outcome == Finished && c.Promote && c.Timer != nil && c.Timer.At.IsZero() && c.Timer.After <= 0
}

func (c *Completion) bytes() int {
	n := 200 + len(c.AuxState) + len(c.Metadata) + len(c.Response) + len(c.Failure) + len(c.Rejection)
	for _, e := range c.Events {
		n += 100 + len(e.Payload) + len(e.Metadata)
	}
	for i := range c.Messages {
		n += c.Messages[i].bytes()
	}
	for _, r := range c.Replies {
		n += 100 + len(r.Response) + len(r.Rejection)
	}
	for _, r := range c.Effects {
		n += r.Bytes()
	}
	for _, r := range c.EffectsOnEnd {
		n += r.Bytes()
	}
	if c.Advance != nil {
		n += c.Advance.Completion.bytes() + len(c.Advance.State)
	}
	return n
}

// events returns the events to store.
func (c *Completion) events() []NewEvent {
	if c.applies() {
		return c.Events
	}
	return nil
}

// applies reports whether events, timers and messages of the completion are stored. An attempt that
// failed or was rejected stores none.
func (c *Completion) applies() bool {
	return c.Outcome == Finished || c.Outcome == Completed || c.Outcome == Cancelled
}

// notifiesRun reports whether EndSteps notifies a run of this completion.
func (c *Completion) notifiesRun() bool { return c.Outcome == Completed && c.Run != process.Key{} }

// starts reports whether StartSteps starts the process of a message.
func (c *Completion) starts(m *Message) bool {
	return m.Plain && m.NotifyParentArgs != nil && m.Target.Namespace == c.Key.Namespace && c.applies()
}

// StoresChanges reports whether the messages and effects of the completion are stored.
func (c *Completion) StoresChanges() bool { return c.applies() || c.Outcome == Removed }

// removes reports whether the completion removes the process.
func (c *Completion) removes() bool {
	return c.Outcome == Removed || (c.Outcome == Rejected && c.TaskType == process.TaskInit)
}
