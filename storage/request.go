package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// Prepared says what became of a request.
type Prepared struct {
	Outcome   PrepareOutcome
	ProcessID string // of a replayed Start: the process of the first one
	TaskID    int64
	Status    process.Status // of the process, where it refuses
	Claim     *Claim         // of a captured request: it runs on this node now
}

// PrepareOutcome is what a request met.
type PrepareOutcome string

// The outcomes of a request.
const (
	Captured   PrepareOutcome = "captured"   // runs on this node
	Postponed  PrepareOutcome = "postponed"  // waits for its process or its time
	Placed     PrepareOutcome = "place"      // waits for a place: the pollers must look
	Replayed   PrepareOutcome = "replayed"   // its key was used before, by the same request
	Mismatched PrepareOutcome = "mismatch"   // its key was used before, by another request
	NotFound   PrepareOutcome = "not_found"  // no such process
	Exists     PrepareOutcome = "exists"     // the process exists
	Refused    PrepareOutcome = "status"     // the status of the process does not allow it
	Overloaded PrepareOutcome = "overloaded" // too many requests wait for the process
	IsJob      PrepareOutcome = "job"        // the process is a job: it takes no calls, and no repair
	Repairing  PrepareOutcome = "repairing"  // another repair is under way
	Unsettled  PrepareOutcome = "unsettled"  // waiting tasks are still being moved after the last change of status
	Repaired   PrepareOutcome = "repaired"   // a simple repair: done
)

// Call is a request that is to become a task.
type Call struct {
	Key            process.Key
	TaskType       process.TaskType // CALL or NOTIFY
	Args, Context  []byte
	IdempotencyKey string
	RequestID      uuid.UUID // process.RequestID of the key; zero: none
	Fingerprint    []byte
	HistoryRange   string // JSON; "": the namespace's mode
	Priority       int32
	Capture        bool        // the caller has a place for it
	MayWait        func() bool // while its process runs here, and as long as this is true, it waits in memory, not stored yet: see lines; nil: never
	Here           func() bool // whether the caller runs a task of its process now; nil: it never does
	StepTimeout    time.Duration
	MaxWaiting     int32
}

// Init is a request that is to become a process.
type Init struct {
	Call
	Kind      string
	Metadata  []byte    // JSON object; nil: none
	StartTime time.Time // zero: now
	Note      *Note     // of an operator's order; nil: it comes by none
}

func (c *Call) bytes() int { return 300 + len(c.Args) + len(c.Context) }

func (c *Call) runsHere() bool { return c.Here != nil && c.Here() }

func (c *Call) keyed() bool { return c.RequestID != uuid.Nil }

// claim is what a captured request runs as.
func (c *Call) claim(taskType process.TaskType, taskID, token int64, now time.Time) *Claim {
	return &Claim{
		Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID, TaskID: taskID, TaskType: taskType, Attempt: 1, Priority: c.Priority,
		FencingToken: token, ScheduledTime: now, RunningTime: now, HistoryRange: c.HistoryRange, IdempotencyKey: c.IdempotencyKey,
		Args: c.Args, Context: c.Context,
	}
}
