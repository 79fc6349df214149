package process

import "time"

// The limits of what is stored. Every one is checked before anything is written; docs/limits.md lists them.
const (
	MaxNamespaceBytes = 128
	MaxProcessIDBytes = 256
	MaxPayloadBytes   = 1 << 20 // args, an event's payload, aux_state, response and context, each
	MaxMetadataBytes  = 64 << 10
	MaxJSONDepth      = 100      // objects and lists, one in another
	MaxMessageBytes   = 16 << 20 // one message, decoded
	MaxResultEvents   = 1000
	MaxResultBytes    = 8 << 20
	MaxCommands       = 100
	MaxReasonBytes    = 4096 // of a request to cancel
	MaxTimers         = 100  // pending in one process
	MaxHistoryEvents  = 10_000
	MaxHistoryBytes   = 8 << 20
	MaxDuration       = 100 * 365 * 24 * time.Hour

	MaxPollBytes        = 4 << 20  // of the tasks of one Poll; the task that passes it is among them
	MaxJobFailures      = 20       // that a job keeps, the newest
	MaxFailureDetails   = 8 << 10  // of a failure that a job keeps
	MaxProgressBytes    = 64 << 10 // of a heartbeat for one lease
	MaxGroupResultBytes = 8 << 20  // the results of all workers of a job together
)

// The defaults of a namespace.
const (
	DefaultStepTimeout = 60 * time.Second
	DefaultMaxRunning  = 1000
	DefaultMaxWaiting  = 1000
)

// DefaultCancelGrace is how long a cancel may take where its request does not say.
const DefaultCancelGrace = 30 * time.Second

// MaxLease bounds what a namespace, a poll, a heartbeat or a job may ask for: the task of a worker that dies waits that long.
const MaxLease = time.Hour
