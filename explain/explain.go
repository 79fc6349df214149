package explain

import (
	"time"

	"github.com/progressor-engine/progressor/process"
)

// State is the input of an explanation: a process and its environment, all read at the same time.
type State struct {
	Now       time.Time // by the database's clock
	Process   Process
	Namespace Namespace
	Running   *Running    // nil if no task runs
	Waiting   []Task      // tasks in table schedule
	Ended     []Task      // the newest ended tasks, by task ID
	Truncated bool        // more tasks have ended
	Suspended []Suspended // until it was resumed or ended
	Job       *Job        // nil if the process is not a job
	Run       *Run        // nil if the process is not a run
	Cron      *Cron       // nil if the process is not a cron
	Fire      *Fire       // nil if the process is not a run of a cron, or has not ended
	Function  *Function   // nil if the process is not a durable function, or its journal was not read
}

// Process contains the facts about a process that an explanation needs.
type Process struct {
	process.Key
	Status        process.Status
	Detail        string
	CorruptedBy   int64
	CreatedTime   time.Time
	StatusChanged time.Time
	Cancel        Cancel
}

// Cancel is a pending cancel request.
type Cancel struct {
	Deadline time.Time // when the process becomes CANCELLED without an answer; zero if it is not being cancelled
	Reason   string
}

// Suspended is a period in which the process was suspended. The periods are disjoint, oldest first,
// and do not include a suspension that has not ended.
type Suspended struct {
	From, To time.Time
	Reason   string
}

// Namespace contains the facts about a namespace and the nodes that serve it.
type Namespace struct {
	Paused      bool
	MaxRunning  int
	MaxAttempts int32
	StepTimeout time.Duration // longest time of an attempt
	Running     int           // its running tasks, counted up to RunningLimit
	Nodes       int           // live nodes
	Takers      int           // live nodes that take new tasks
	ZombieAfter time.Duration // a node without a heartbeat for this long is dead
	Away        bool          // the node that answers cannot reach the processor
	Unservable  string        // why the node that answers runs no task of the namespace; "" if it does
	Pulled      bool          // workers, not nodes, take the tasks of the process
	Workers     []Worker      // seen within a day; only if Pulled, not Paused, and a task waits
	More        bool          // there are more workers
}

// RunningLimit is the number up to which the running tasks of a namespace are counted.
const RunningLimit = 10_000

// Task is a task without payloads.
type Task struct {
	ID            int64
	Type          process.TaskType
	Status        process.TaskStatus
	WaitsFor      process.WaitsFor // what a task in table schedule waits for
	Attempt       int32            // the running attempt, or the number of attempts made
	Scheduled     time.Time
	Running       time.Time     // zero if it has not run
	Finished      time.Time     // zero if it has not ended
	RetryInterval time.Duration // wait before the current or next attempt; 0 if that is not a retry
	TimerName     string
	Reason        string // reason of its failure
	Message       string
	Failures      []Failure // recorded attempts before the current or next one, oldest first

	title string // what the task of a durable function runs; "" if it is not known
}

// Failure is an attempt of a task that failed and was repeated.
type Failure struct {
	Attempt int32
	Reason  string
	NodeID  int64
	Running time.Time // when the attempt began
	Failed  time.Time // when it failed
}

// Running is the running task.
type Running struct {
	Task
	NodeID   int64
	Address  string
	Lease    *Lease    // nil if a node, not a worker, runs the task
	Alive    bool      // its node sends heartbeats
	Beat     time.Time // last heartbeat of its node; zero if unknown
	Draining bool
	Deadline time.Time
	// Number of times that this attempt could not reach its processor; 0 if another node runs it.
	FailedTries int32
	Cause       string // why the attempt could not reach its processor
}

// Values of Span.What, in addition to the values of process.WaitsFor.
const (
	Processing = "processing" // an attempt, including the time to store its result
	BackOff    = "back_off"   // after a failed attempt
	Idle       = "idle"       // the process had nothing to do
	ForWorker  = "worker"     // a task waited for a worker; process.WaitsForPlace is only used for slots
)

// Span is a period in the life of a task, or of the process while it had no task.
type Span struct {
	What   string
	TaskID int64 // 0 if it belongs to no task
	From   time.Time
	To     time.Time // zero if it has not ended
	Detail string
}

// Explanation describes a process. Detail, Next and Unblock are sentences.
type Explanation struct {
	Spans      []Span // oldest first
	TimeByWhat map[string]time.Duration
	WaitsFor   process.WaitsFor // "" if it waits for nothing or for the processor
	Detail     string
	Next       string
	NextTime   time.Time // zero if unknown
	Unblock    string
}

// Explain returns the explanation of a process.
func Explain(s State) Explanation {
	s = s.titled()
	open := s.takeOpen()
	e := Explanation{Spans: withOpen(spans(s), open), TimeByWhat: map[string]time.Duration{}}
	for _, span := range e.Spans {
		to := span.To
		if to.IsZero() {
			to = s.Now
		}
		e.TimeByWhat[span.What] += to.Sub(span.From)
	}
	s.situation(&e)
	s.replies(&e, open)
	return e
}
