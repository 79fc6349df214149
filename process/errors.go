package process

import (
	"cmp"
	"errors"
	"fmt"
)

// The sentinels of the engine. storage and engine wrap them with the operation and the key; engine/rpc turns each into a
// code and a reason, once.
var (
	ErrNamespaceNotFound   = errors.New("namespace not found")
	ErrProcessNotFound     = errors.New("process not found")
	ErrTaskNotFound        = errors.New("task not found")
	ErrNodeNotFound        = errors.New("node not found")
	ErrProcessExists       = errors.New("process exists already")
	ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")
	ErrOverloaded          = errors.New("overloaded: nothing was stored; try again after a while")
	ErrWaitTimeout         = errors.New("the wait is over; the task goes on")
	ErrUnavailable         = errors.New("database is not available: nothing is known to be stored; repeat with the same idempotency key")
	ErrDraining            = errors.New("the node is draining and has taken nothing of the request: another node will")
	ErrJobNotFound         = errors.New("job not found")
	ErrConstraintNotFound  = errors.New("constraint not found")
	ErrWorkerNotFound      = errors.New("worker not found: none of this id was heard of within a day")
	ErrCronNotFound        = errors.New("cron not found")
	ErrCronExists          = errors.New("cron exists already")
	ErrTemplateNotFound    = errors.New("template not found")
	ErrRunExists           = errors.New("run exists already")
	ErrRunNotFound         = errors.New("run not found")
	ErrStepNotFound        = errors.New("step not found")
	ErrStaleVersion        = errors.New("the expected version is not the newest: somebody has put another one since; read it again")
	ErrNamespacePaused     = errors.New("the namespace is paused, and nothing runs in it: resume it first")
	ErrStaleEtag           = errors.New("the etag is not the newest: somebody has changed it since; read it again")
	ErrFenced              = errors.New("the attempt is over: another one has taken its place")
)

// OverloadError is ErrOverloaded with the bound that was met.
type OverloadError struct {
	Bound string // what is full, and the setting that bounds it
}

func (e *OverloadError) Error() string {
	return "overloaded (" + e.Bound + "): nothing was stored; try again after a while"
}

// Is says that it is an ErrOverloaded.
func (e *OverloadError) Is(target error) bool { return target == ErrOverloaded }

// ItemError says of which item of a batch an error is; Field is its path, as the API names it.
type ItemError struct {
	Field string
	Key   Key
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Field, e.Key, e.Err) }
func (e *ItemError) Unwrap() error { return e.Err }

// WrongStatusError refuses an operation that the status of the process does not allow.
type WrongStatusError struct {
	Key    Key
	Status Status
	State  string // of a job, which people know by that; "": it is none
	Reason string // what the status does not allow
}

func (e *WrongStatusError) Error() string {
	return fmt.Sprintf("process %s is %s: %s", e.Key, cmp.Or(e.State, string(e.Status)), e.Reason)
}

// InvalidError refuses input; Field is the path of the field that is wrong, as the API names it.
type InvalidError struct {
	Field    string
	Message  string
	TooLarge bool // over a limit of docs/limits.md
	Schema   bool // a payload that breaks its schema
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// The reasons of failures that the engine itself makes. They can be matched by a retry policy's non_retryable_errors.
const (
	ReasonTimeout         = "timeout"              // the attempt passed the step timeout
	ReasonUnavailable     = "unavailable"          // the processor could not be reached
	ReasonBadResponse     = "bad_response"         // the processor's answer cannot be stored
	ReasonPanic           = "panic"                // the Go processor panicked
	ReasonCancelled       = "cancelled"            // the worker of a job stopped because it was told to
	ReasonLeaseLost       = "lease_lost"           // the worker that ran the attempt of a job was silent for too long, or its node died
	ReasonZombie          = "zombie"               // the node that ran the attempt died
	ReasonHistoryTooLarge = "history_too_large"    // FULL history over MaxHistoryEvents or MaxHistoryBytes
	ReasonGraceExpired    = "cancel_grace_expired" // the CANCEL task had not ended when the grace of the cancel was over
)

// GraceExpiredMessage is the message of the failure cancel_grace_expired.
const GraceExpiredMessage = "the grace of the cancel is over"

// ZombieDetail is the detail of a process that a zombie broke: the words that operators of the reference know.
const ZombieDetail = "zombie detected"
