package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The reasons that this package gives to rejections and failures; those of the engine are in package process.
const (
	ReasonError      = "error"       // user code returned an error that names no reason
	ReasonNotHandled = "not_handled" // a Router or JSON processor has no function for this type of task
	ReasonBadArgs    = "bad_args"    // the args are not the JSON that was asked for (a rejection)
	ReasonBadState   = "bad_state"   // the stored state cannot be read (a failure that is not tried again)
)

// maxTextBytes is the most that a message of ours keeps of another's text.
const maxTextBytes = 8 << 10

// RejectionError is a Rejection as an error: user code returns it to say no. Nothing is stored but the answer.
type RejectionError struct {
	Rejection *progressorv1.Rejection
	cause     error
}

// Reject says no to a CALL, REPAIR, NOTIFY or INIT. reason is a short, stable name; the format is that of fmt.Errorf.
func Reject(reason, format string, args ...any) *RejectionError {
	cause := fmt.Errorf(format, args...)
	return &RejectionError{Rejection: &progressorv1.Rejection{Reason: plain(reason), Message: plain(cause.Error())}, cause: cause}
}

// WithDetails adds details that the caller gets with the rejection; it returns e.
func (e *RejectionError) WithDetails(details []byte) *RejectionError {
	e.Rejection.Details = details
	return e
}

func (e *RejectionError) Error() string {
	return "rejected: " + e.Rejection.GetReason() + ": " + e.Rejection.GetMessage()
}

// Unwrap is what Reject's format wrapped with %w.
func (e *RejectionError) Unwrap() error { return e.cause }

// FailureError is a Failure as an error: user code returns it where it could not do its work. A timer or a NOTIFY is tried
// again by the namespace's retry policy; a CALL, INIT or REPAIR answers its caller, and the process goes to ERROR.
type FailureError struct {
	Failure *progressorv1.Failure
	cause   error
}

// Fail says that the task could not be done. reason is a short, stable name, matched against the retry policy's
// non_retryable_errors; the format is that of fmt.Errorf.
func Fail(reason, format string, args ...any) *FailureError {
	cause := fmt.Errorf(format, args...)
	return &FailureError{Failure: &progressorv1.Failure{Reason: plain(reason), Message: plain(cause.Error())}, cause: cause}
}

// NonRetryable says that trying again is of no use; it returns e.
func (e *FailureError) NonRetryable() *FailureError {
	e.Failure.NonRetryable = true
	return e
}

// WithDetails adds a JSON value that the caller gets with the failure; it returns e. What is no JSON value is left out,
// with a word in the message.
func (e *FailureError) WithDetails(v any) *FailureError {
	var details structpb.Value
	text, err := json.Marshal(v)
	if err == nil {
		err = details.UnmarshalJSON(text)
	}
	if err != nil {
		e.Failure.Message += " (details left out: " + plain(err.Error()) + ")"
		return e
	}
	e.Failure.Details = &details
	return e
}

func (e *FailureError) Error() string {
	return "failed: " + e.Failure.GetReason() + ": " + e.Failure.GetMessage()
}

// Unwrap is what Fail's format wrapped with %w.
func (e *FailureError) Unwrap() error { return e.cause }

// UnreachableError says that the request surely never reached user code: the connection was refused, or the processor
// answered that it is unavailable or overloaded. The engine tries such a task again, a CALL too. A processor that has done
// nothing yet and cannot work now may return one itself.
type UnreachableError struct{ Err error }

func (e *UnreachableError) Error() string { return "processor not reached: " + e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// LostError says that the connection broke after the request was sent: nobody knows whether user code has run.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "processor's answer was lost: " + e.Err.Error() }

func (e *LostError) Unwrap() error { return e.Err }

// BadResponseError says that an answer came that cannot be read, or cannot be stored.
type BadResponseError struct{ Err error }

func (e *BadResponseError) Error() string {
	return "processor's answer is not usable: " + e.Err.Error()
}

func (e *BadResponseError) Unwrap() error { return e.Err }

// Unreachable tells whether err says that the request surely never reached user code. An error of another service that
// user code called says nothing of the kind: only an UnreachableError does.
func Unreachable(err error) bool {
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// BadResponse tells whether err says that an answer came that cannot be read or stored.
func BadResponse(err error) bool {
	_, ok := errors.AsType[*BadResponseError](err)
	return ok
}

func lost(err error) bool {
	_, ok := errors.AsType[*LostError](err)
	return ok
}

// FailureOf is the Failure that an error of Process stands for: that of a FailureError as it is; else with the reason
// "bad_response", "unavailable" (unreachable, or the answer was lost), "timeout" (the context's deadline) or "error".
// It is never nil.
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

// plain makes text fit for a message: valid UTF-8 without NUL, not longer than maxTextBytes.
func plain(s string) string {
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) > maxTextBytes {
		s = strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
