package process

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrLocked is an ErrUnavailable for a request that has certainly stored nothing.
var ErrLocked error = lockedError{}

type lockedError struct{}

func (lockedError) Error() string {
	return "another session has locked the process for too long: nothing was stored"
}

func (lockedError) Is(target error) bool { return target == ErrUnavailable }

// The errors of the engine. storage and engine wrap them with the operation and the key. engine/rpc
// maps each of them to a code and a reason.
var (
	ErrNamespaceNotFound   = errors.New("namespace not found")
	ErrProcessNotFound     = errors.New("process not found")
	ErrTaskNotFound        = errors.New("task not found")
	ErrNodeNotFound        = errors.New("node not found")
	ErrKeyNotFound         = errors.New("key not found")
	ErrGrantNotFound       = errors.New("grant not found")
	ErrLoginNotFound       = errors.New("login not found")
	ErrProcessExists       = errors.New("process already exists")
	ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")
	ErrOverloaded          = errors.New("overloaded: nothing was stored")
	ErrWaitTimeout         = errors.New("the wait timed out; the task continues")
	ErrUnavailable         = errors.New("database is not available: it is unknown whether the request was stored; " +
		"repeat it with the same idempotency key")
	ErrDraining           = errors.New("the node is draining and did not accept the request: use another node")
	ErrJobNotFound        = errors.New("job not found")
	ErrConstraintNotFound = errors.New("constraint not found")
	ErrWorkerNotFound     = errors.New("worker not found: no worker with this ID was seen within a day")
	ErrCronNotFound       = errors.New("cron not found")
	ErrCronExists         = errors.New("cron already exists")
	ErrTemplateNotFound   = errors.New("template not found")
	ErrRunExists          = errors.New("run already exists")
	ErrRunNotFound        = errors.New("run not found")
	ErrSinkNotFound       = errors.New("sink not found")
	ErrStepNotFound       = errors.New("step not found")
	ErrStaleVersion       = errors.New("the expected version is not the newest: read the newest version and retry")
	ErrNamespacePaused    = errors.New("the namespace is paused: resume it first")
	ErrNamespaceDeleting  = errors.New("the namespace is being deleted")
	ErrStaleEtag          = errors.New("the etag is out of date: read the object again and retry")
	ErrFenced             = errors.New("the attempt is over: it was replaced, or its task has ended")
)

// OverloadError is an ErrOverloaded that names the limit that was reached.
type OverloadError struct {
	Bound string // the limit and the setting that changes it
}

func (e *OverloadError) Error() string {
	return "overloaded (" + e.Bound + "): nothing was stored"
}

// Is reports whether target is ErrOverloaded.
func (e *OverloadError) Is(target error) bool { return target == ErrOverloaded }

// ItemError is the error of one item in a batch. Field is the path of the item in the API.
type ItemError struct {
	Field string
	Key   Key
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Field, e.Key, e.Err) }
func (e *ItemError) Unwrap() error { return e.Err }

// WrongStatusError reports that the status of the process does not allow the operation.
type WrongStatusError struct {
	Key    Key
	Status Status
	State  string // the state of the job; "" if the process is not a job
	Reason string // why the status does not allow the operation
}

func (e *WrongStatusError) Error() string {
	return fmt.Sprintf("process %s is %s: %s", e.Key, cmp.Or(e.State, string(e.Status)), e.Reason)
}

// NamespaceInUseError reports why a namespace was not deleted.
type NamespaceInUseError struct {
	Namespace string
	Reason    string
}

func (e *NamespaceInUseError) Error() string {
	return fmt.Sprintf("namespace %q was not deleted: %s", e.Namespace, e.Reason)
}

// InvalidError reports invalid input. Field is the path of the field in the API.
type InvalidError struct {
	Field    string
	Message  string
	TooLarge bool // exceeds a limit of docs/limits.md
	Schema   bool // violates the schema of the payload
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// DeniedError reports that the client lacks a permission. Field is the path of the field in the API
// that the permission does not cover.
type DeniedError struct {
	Field     string
	Namespace string
	Message   string
}

func (e *DeniedError) Error() string { return e.Field + ": " + e.Message }

// KeyReplacedError reports that a key was already rotated, and names the key that replaces it.
type KeyReplacedError struct{ KeyID, By string }

func (e *KeyReplacedError) Error() string {
	return "key " + e.KeyID + " was already rotated and is replaced by key " + e.By +
		": rotate that key, or create a key with the same name"
}

// InvalidPageToken returns the error of a page token that no response contained.
func InvalidPageToken() *InvalidError {
	return &InvalidError{Field: "page_token", Message: "must be the next_page_token of a previous response"}
}

// The reasons of failures that the engine itself reports. A retry policy can list them in
// non_retryable_errors.
const (
	ReasonTimeout         = "timeout"              // the attempt exceeded the step timeout
	ReasonUnavailable     = "unavailable"          // the processor could not be reached
	ReasonBadResponse     = "bad_response"         // the response of the processor cannot be stored
	ReasonPanic           = "panic"                // the Go processor panicked
	ReasonCancelled       = "cancelled"            // the worker stopped the job because it was cancelled
	ReasonStartDeadline   = "start_deadline"       // no attempt of the job began in time
	ReasonLeaseLost       = "lease_lost"           // the worker sent no heartbeat in time, or its node died
	ReasonNoWorkers       = "no_workers"           // a job for several workers needs a pull processor
	ReasonZombie          = "zombie"               // the node that ran the attempt died
	ReasonHistoryTooLarge = "history_too_large"    // over MaxHistoryEvents or MaxHistoryBytes
	ReasonGraceExpired    = "cancel_grace_expired" // the grace period of the cancel has ended
	ReasonNewerState      = "newer_state"          // a newer engine has stored the state of the run, cron or bulk
)

// GraceExpiredMessage is the message of the failure cancel_grace_expired.
const GraceExpiredMessage = "the grace period of the cancel is over"

// ZombieDetail is the detail of a process that is in ERROR because of a zombie.
const ZombieDetail = "zombie detected"
