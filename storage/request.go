package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// Prepared is the result of a request.
type Prepared struct {
	Outcome   PrepareOutcome
	ProcessID string // the process of the request; for a replayed Start, that of the first request
	TaskID    int64
	Status    process.Status // status of the process if the outcome is Refused
	Claim     *Claim         // only for a captured request, which runs on this node now
	Waited    time.Duration  // how long the call waited in a call queue
}

// PrepareOutcome is the outcome of a request.
type PrepareOutcome string

// The outcomes of a request.
const (
	Captured   PrepareOutcome = "captured"   // runs on this node
	Postponed  PrepareOutcome = "postponed"  // waits for its process or its time
	AwaitsSlot PrepareOutcome = "place"      // waits for a slot; the caller must wake the pollers
	Replayed   PrepareOutcome = "replayed"   // the same request already used its key
	Mismatched PrepareOutcome = "mismatch"   // another request already used its key
	NotFound   PrepareOutcome = "not_found"  // no such process
	Exists     PrepareOutcome = "exists"     // the process already exists
	Refused    PrepareOutcome = "status"     // the status of the process does not allow the request
	Overloaded PrepareOutcome = "overloaded" // too many requests wait for the process
	Uncallable PrepareOutcome = "job"        // the kind of the process accepts neither calls nor repairs
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
	Capture        bool // run it now if the process is idle: the caller has a slot
	// MayWait reports whether the call may wait in a call queue, without being stored, while its
	// process runs here. If MayWait is nil, the call never waits. See callQueues.
	MayWait     func() bool
	Here        func() bool // reports whether this node runs a task of the process now; nil means never
	StepTimeout time.Duration
	MaxWaiting  int32
}

// Init is a request that will become a process.
type Init struct {
	Call
	Kind        string
	Metadata    []byte       // JSON object, or nil
	StartTime   time.Time    // zero means now
	AuditRecord *AuditRecord // audit entry for an operator's command, or nil
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
