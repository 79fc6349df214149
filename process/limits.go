package process

import "time"

// The limits of stored data. All are checked before anything is written. docs/limits.md lists them.
const (
	MaxNamespaceBytes = 128
	MaxProcessIDBytes = 256
	MaxPayloadBytes   = 1 << 20 // each of args, an event's payload, aux_state, response and context
	MaxMetadataBytes  = 64 << 10
	MaxJSONDepth      = 100             // nesting of objects and lists
	MaxMessageBytes   = 16 << 20        // one message, decoded
	MaxElements       = 200_000         // fields and elements of one message
	MaxBatchElements  = 5 * MaxElements // fields and elements of a batch of jobs, and of an import
	MaxResultEvents   = 1000
	MaxResultBytes    = 8 << 20
	MaxCommands       = 100
	MaxReasonBytes    = 4096 // reason of a request to cancel
	MaxTimers         = 100  // pending in one process
	MaxOpenTasks      = 100  // tasks of one process that wait for a reply
	MaxReplies        = 100
	MaxHistoryEvents  = 10_000
	MaxHistoryBytes   = 8 << 20
	MaxHeadersBytes   = 64 << 10  // names and values of the headers of a processor together
	MaxTemplateBytes  = 4 << 20   // template as JSON
	MaxWaitBytes      = 64 << 10  // wait of a run that has no template, in protobuf
	MaxSchemaBytes    = 256 << 10 // the schemas of a template together, as JSON
	MaxPatterns       = 200       // regular expressions in the schemas of a template
	MaxDuration       = 100 * 365 * 24 * time.Hour
	MaxRetryAfter     = 365 * 24 * time.Hour // retry delay of a failure and of a released lease

	MaxPollBytes        = 4 << 20  // tasks of one Poll; the last one may exceed it
	MaxJobFailures      = 20       // the newest failures that a job keeps
	MaxFailureDetails   = 8 << 10  // details of a failure that a job keeps
	MaxProgressBytes    = 64 << 10 // progress of one lease in a heartbeat
	MaxGroupResultBytes = 8 << 20  // the results of all workers of a job together
)

// The defaults of a namespace.
const (
	DefaultStepTimeout = 60 * time.Second
	DefaultMaxRunning  = 1000
	DefaultMaxWaiting  = 1000
	DefaultMaxBacklog  = 10 // times max_running
)

// DefaultCancelGrace is the default grace period of a cancel.
const DefaultCancelGrace = 30 * time.Second

// MaxLease is the maximum lease duration of a namespace, a poll, a heartbeat or a job. If a worker
// dies, no other worker gets its task before the lease has expired.
const MaxLease = time.Hour
