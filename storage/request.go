package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// Prepared is the result of a request.
type Prepared struct {
	Outcome   PrepareOutcome
	ProcessID string // only for a replayed Start: the process of the first request
	TaskID    int64
	Status    process.Status // status of the process that refused the request
	Claim     *Claim         // only for a captured request, which runs on this node now
	Waited    time.Duration  // how long the call waited in memory, see callQueues
}

// PrepareOutcome is the outcome of a request.
type PrepareOutcome string

// The outcomes of a request.
const (
	Captured   PrepareOutcome = "captured"   // runs on this node
	Postponed  PrepareOutcome = "postponed"  // waits for its process or its time
	AwaitsSlot PrepareOutcome = "place"      // waits for a slot: the pollers must look
	Replayed   PrepareOutcome = "replayed"   // its key was already used by the same request
	Mismatched PrepareOutcome = "mismatch"   // its key was already used by another request
	NotFound   PrepareOutcome = "not_found"  // no such process
	Exists     PrepareOutcome = "exists"     // the process already exists
	Refused    PrepareOutcome = "status"     // the status of the process does not allow it
	Overloaded PrepareOutcome = "overloaded" // too many requests wait in the process
	Uncallable PrepareOutcome = "job"        // the kind of the process takes no calls and no repair
	Repairing  PrepareOutcome = "repairing"  // another repair is in progress
	Unsettled  PrepareOutcome = "unsettled"  // waiting tasks are still being moved after the last change of status
	Repaired   PrepareOutcome = "repaired"   // a simple repair succeeded
)

// Call is a request that will become a task.
type Call struct {
	Key            process.Key
	TaskType       process.TaskType // CALL or NOTIFY
	Args, Context  []byte
	IdempotencyKey string
	RequestID      uuid.UUID // process.RequestID of the key; zero if there is none
	Fingerprint    []byte
	HistoryRange   string // JSON; "" means the history mode of the namespace
	Priority       int32
	Capture        bool // the caller has a slot for it
	// MayWait reports whether the call may wait in a call queue, without being stored, while its
	// process runs here. If it is nil, the call never waits. See callQueues.
	MayWait     func() bool
	Here        func() bool // reports whether the caller runs a task of the process now; nil if it never does
	StepTimeout time.Duration
	MaxWaiting  int32
}

// Init is a request that will become a process.
type Init struct {
	Call
	Kind        string
	Metadata    []byte       // JSON object, or nil
	StartTime   time.Time    // zero means now
	AuditRecord *AuditRecord // audit note of an operator's command, or nil
}

func (c *Call) bytes() int { return 300 + len(c.Args) + len(c.Context) }

func (c *Call) runsHere() bool { return c.Here != nil && c.Here() }

func (c *Call) keyed() bool { return c.RequestID != uuid.Nil }

// claim returns the claim of a captured request.
func (c *Call) claim(taskType process.TaskType, taskID, token int64, now time.Time) *Claim {
	return &Claim{
		Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID, TaskID: taskID, TaskType: taskType, Attempt: 1,
		Priority:     c.Priority,
		FencingToken: token, ScheduledTime: now, RunningTime: now, HistoryRange: c.HistoryRange,
		IdempotencyKey: c.IdempotencyKey,
		Args:           c.Args, Context: c.Context,
	}
}
