// Package explain says of a process where its time went, what it waits for, what comes next and what would let it go on. It is
// pure: it looks at rows that others have read, and at no clock.
package explain

import (
	"time"

	"github.com/progressor-engine/progressor/process"
)

// State is everything that an explanation is made from, as it was at one moment.
type State struct {
	Now       time.Time // of the database
	Process   Process
	Namespace Namespace
	Running   *Running // nil: nothing runs
	Waiting   []Task   // in schedule
	Ended     []Task   // the newest of them, by task id
	Truncated bool     // there are more that have ended
	Job       *Job     // nil: the process is none
	Run       *Run     // nil: the process is none
	Cron      *Cron    // nil: the process is none
}

// Process is what counts of a process.
type Process struct {
	process.Key
	Status        process.Status
	Detail        string
	CorruptedBy   int64
	CreatedTime   time.Time
	StatusChanged time.Time
	Cancel        Cancel
}

// Cancel says that what goes on was asked to end.
type Cancel struct {
	Deadline time.Time // when it is CANCELLED without an answer; zero: it was not asked
	Reason   string
}

// Namespace is what counts of a namespace, and of the nodes that serve it.
type Namespace struct {
	Paused      bool
	MaxRunning  int
	MaxAttempts int32
	Running     int           // its tasks that run, counted to RunningLimit
	Nodes       int           // that are alive
	Takers      int           // of these, those that take new tasks
	ZombieAfter time.Duration // a node that has not beaten for so long is dead
	Away        bool          // the node that is asked does not reach the processor
	Unservable  string        // why the node that is asked runs no task of it
	Pulled      bool          // workers take the tasks of the process, and no node
	Workers     []Worker      // of it, heard of within a day; where it is pulled and something waits
	More        bool          // there are more workers
}

// RunningLimit is how far the running tasks of a namespace are counted.
const RunningLimit = 10_000

// Task is a task at any point of its life, without payloads.
type Task struct {
	ID            int64
	Type          process.TaskType
	Status        process.TaskStatus
	WaitsFor      process.WaitsFor // of one in schedule
	Attempt       int32            // that runs, or those made
	Scheduled     time.Time
	Running       time.Time     // zero: it has not run
	Finished      time.Time     // zero: it has not ended
	RetryInterval time.Duration // before the attempt that runs, or comes; 0: it is no retry
	TimerName     string
	Reason        string // of its failure
	Message       string
}

// Running is the task that runs.
type Running struct {
	Task
	NodeID   int64
	Address  string
	Lease    *Lease    // a worker has it; nil: the node runs it
	Alive    bool      // its node beats
	Beat     time.Time // the last one of its node; zero: not known
	Draining bool
	Deadline time.Time
	Vain     int32  // how often this attempt has not reached its processor; 0 also where another node runs it than is asked
	Cause    string // why it has not
}

// What a span of time went to, beside the values of process.WaitsFor.
const (
	Processing = "processing" // an attempt, the storing of its result included
	BackOff    = "back_off"   // after an attempt that failed
	Idle       = "idle"       // nothing was there to be done
)

// Span is a span of time of one task, or (where nothing was there to be done) of the process.
type Span struct {
	What   string
	TaskID int64 // 0: of no task
	From   time.Time
	To     time.Time // zero: it goes on
	Detail string
}

// Explanation of a process.
type Explanation struct {
	Spans      []Span // oldest first
	TimeByWhat map[string]time.Duration
	WaitsFor   process.WaitsFor // "": for nothing, or for the processor
	Detail     string
	Next       string
	NextTime   time.Time // zero: nobody knows
	Unblock    string
}

// Explain looks at a process.
func Explain(s State) Explanation {
	e := Explanation{Spans: spans(s), TimeByWhat: map[string]time.Duration{}}
	for _, span := range e.Spans {
		to := span.To
		if to.IsZero() {
			to = s.Now
		}
		e.TimeByWhat[span.What] += to.Sub(span.From)
	}
	s.situation(&e)
	return e
}
