package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Reasons of rejections and failures that this package creates. Package process has the reasons
// that the engine creates.
const (
	ReasonError      = "error"       // user code returned an error without a reason
	ReasonNotHandled = "not_handled" // a Router or JSON processor has no function for this type of task
	ReasonBadArgs    = "bad_args"    // the args are not the expected JSON (a rejection)
	ReasonBadState   = "bad_state"   // the stored state cannot be decoded (a failure that is not retried)

	ReasonUndecodable = "undecodable" // the payloads of a task cannot be decoded: see Undecodable
)

// maxTextBytes is the maximum length of a message of this package, in bytes.
const maxTextBytes = 8 << 10

// RejectionError is a Rejection as an error. User code returns it to reject a task. Only the
// rejection is stored.
type RejectionError struct {
	Rejection *progressorv1.Rejection
	cause     error
}

// Reject returns a rejection of a CALL, REPAIR, NOTIFY or INIT. reason is a short, stable name.
// format and args are as in fmt.Errorf.
func Reject(reason, format string, args ...any) *RejectionError {
	cause := fmt.Errorf(format, args...)
	return &RejectionError{Rejection: &progressorv1.Rejection{Reason: plain(reason), Message: plain(cause.Error())},
		cause: cause}
}

// WithDetails adds details for the caller and returns e.
func (e *RejectionError) WithDetails(details []byte) *RejectionError {
	e.Rejection.Details = details
	return e
}

func (e *RejectionError) Error() string {
	return "rejected: " + e.Rejection.GetReason() + ": " + e.Rejection.GetMessage()
}

// Unwrap returns the error made from Reject's format.
func (e *RejectionError) Unwrap() error { return e.cause }

// FailureError is a Failure as an error. User code returns it if it could not do its work. A timer,
// a NOTIFY or a CANCEL is retried according to the namespace's retry policy. A CALL, INIT or REPAIR
// returns the failure to its caller, and the process goes to ERROR.
type FailureError struct {
	Failure *progressorv1.Failure
	cause   error
}

// Fail returns a failure. reason is a short, stable name that is compared with the retry policy's
// non_retryable_errors. format and args are as in fmt.Errorf.
func Fail(reason, format string, args ...any) *FailureError {
	cause := fmt.Errorf(format, args...)
	return &FailureError{Failure: &progressorv1.Failure{Reason: plain(reason), Message: plain(cause.Error())},
		cause: cause}
}

// NonRetryable marks the failure as final, so that the task is not retried, and returns e.
func (e *FailureError) NonRetryable() *FailureError {
	e.Failure.NonRetryable = true
	return e
}

// RetryAfter sets the wait before the next attempt and returns e. This wait replaces the one that
// the backoff or the retry policy defines. The engine waits at most 365 days.
func (e *FailureError) RetryAfter(d time.Duration) *FailureError {
	e.Failure.RetryAfter = durationpb.New(min(max(d, 0), process.MaxRetryAfter))
	return e
}

// WithDetails adds v, encoded as JSON, for the caller and returns e. If v cannot be encoded, the
// message says that the details are omitted.
func (e *FailureError) WithDetails(v any) *FailureError {
	var details structpb.Value
	text, err := json.Marshal(v)
	if err == nil {
		err = details.UnmarshalJSON(text)
	}
	if err != nil {
		e.Failure.Message += " (details omitted: " + plain(err.Error()) + ")"
		return e
	}
	e.Failure.Details = &details
	return e
}

func (e *FailureError) Error() string {
	return "failed: " + e.Failure.GetReason() + ": " + e.Failure.GetMessage()
}

// Unwrap returns the error made from Fail's format.
func (e *FailureError) Unwrap() error { return e.cause }

// UnreachableError reports that the request did not reach user code: the connection was refused, or
// the processor answered that it is unavailable or overloaded. The engine retries such a task,
// including a CALL. A processor that has done nothing yet may return one itself if it cannot work
// at the moment.
type UnreachableError struct{ Err error }

func (e *UnreachableError) Error() string { return "processor not reached: " + e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// LostError reports that the connection broke after the request was sent. It is unknown whether
// user code ran.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the response of the processor was lost: " + e.Err.Error() }

func (e *LostError) Unwrap() error { return e.Err }

// BadResponseError reports that an answer cannot be decoded or stored.
type BadResponseError struct{ Err error }

func (e *BadResponseError) Error() string {
	return "invalid answer from the processor: " + e.Err.Error()
}

func (e *BadResponseError) Unwrap() error { return e.Err }

// Unreachable reports whether err means that the request did not reach user code. Only an
// UnreachableError means this. An error of another service that user code has called does not
// count.
func Unreachable(err error) bool {
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// BadResponse reports whether err means that an answer cannot be decoded or stored.
func BadResponse(err error) bool {
	_, ok := errors.AsType[*BadResponseError](err)
	return ok
}

func lost(err error) bool {
	_, ok := errors.AsType[*LostError](err)
	return ok
}

// FailureOf returns the Failure for an error of Process. It returns the Failure of a FailureError
// unchanged. Other errors get the reason "bad_response", "unavailable" (unreachable, or the answer
// was lost), "timeout" (the context's deadline) or "error". The result is never nil.
func FailureOf(err error) *progressorv1.Failure {
	if failure, ok := errors.AsType[*FailureError](err); ok && failure.Failure != nil {
		return failure.Failure
	}
	f := &progressorv1.Failure{Reason: ReasonError, Message: plain(err.Error())}
	switch {
	case BadResponse(err):
		f.Reason = process.ReasonBadResponse
	case Unreachable(err), lost(err):
		f.Reason = process.ReasonUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		f.Reason = process.ReasonTimeout
	}
	return f
}

func panicked(v any) *FailureError {
	return Fail(process.ReasonPanic, "the processor panicked: %v", v)
}

// plain returns s as valid UTF-8 without NUL, cut to maxTextBytes.
func plain(s string) string {
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) > maxTextBytes {
		s = strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
