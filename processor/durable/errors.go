package durable

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Reasons of failures and rejections that this package creates.
const (
	ReasonMisuse   = "durable_misuse"  // an operation was used wrongly; the message names file and line
	ReasonJournal  = "durable_journal" // the journal cannot be used, or does not match the function
	ReasonBadValue = "bad_value"       // a value, such as that of a step, is too large or is not JSON
	ReasonNotOpen  = "not_open"        // the function does not take this call now
	ReasonTx       = "durable_tx"      // it is unknown whether the transaction of a Tx has committed
	ReasonTooMany  = "too_many_calls"  // too many calls wait until the function takes or answers them

	// ReasonNotAnswered is the reason of requests without a reply when the function ends.
	ReasonNotAnswered = "not_answered"

	// Reasons of the errors that Future.Get returns.
	ReasonChildFailed    = "child_failed"    // the child is in ERROR, or was not started
	ReasonChildCancelled = "child_cancelled" // the child was cancelled
	ReasonChildRemoved   = "child_removed"   // the child was removed before it completed
)

// StepError is an error that the journal contains: of a step, a child or the function. The function
// gets it instead of the original error, so that the first run and a replay get the same error. It
// has the reason and message of a processor.Fail or processor.Reject that the step returned.
type StepError struct {
	Step     string `json:"-"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Rejected bool   `json:"rejected,omitempty"` // made by processor.Reject
}

// Error returns the step's name and the message.
func (e *StepError) Error() string {
	if e.Step == "" {
		return e.Message
	}
	return fmt.Sprintf("step %s: %s", e.Step, e.Message)
}

// recorded converts an error of user code for the journal. If err contains joined errors, the first
// one that is not a rejection determines the reason.
func recorded(err error) *StepError {
	joined, cause := causeOf(err)
	if step, ok := errors.AsType[*StepError](cause); ok {
		return &StepError{Reason: step.Reason, Message: cut(err.Error()), Rejected: step.Rejected}
	}
	if r, ok := errors.AsType[*processor.RejectionError](cause); ok {
		return &StepError{Reason: cut(r.Rejection.GetReason()), Message: cut(r.Rejection.GetMessage()), Rejected: true}
	}
	failure := processor.FailureOf(cause)
	message := failure.GetMessage()
	if joined {
		message = err.Error()
	}
	return &StepError{Reason: cut(failure.GetReason()), Message: cut(message)}
}

// causeOf returns err or, if it contains joined errors, the first of them that is not a rejection.
// If all are rejections, it returns the first. joined reports whether err contains joined errors.
func causeOf(err error) (joined bool, cause error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e := e.(type) { //nolint:errorlint // this loop unwraps err itself
		case *StepError, *processor.RejectionError, *processor.FailureError: // they have a reason
			return false, err
		case interface{ Unwrap() []error }:
			for _, part := range e.Unwrap() {
				_, found := causeOf(part)
				if !isRejection(found) {
					return true, found
				}
				if cause == nil {
					cause = found
				}
			}
			return true, cause
		}
	}
	return false, err
}

func isRejection(err error) bool {
	if step, ok := errors.AsType[*StepError](err); ok {
		return step.Rejected
	}
	_, ok := errors.AsType[*processor.RejectionError](err)
	return ok
}

// maxMessage is the maximum length of a reason or message in the journal, in bytes.
const maxMessage = 8 << 10

func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// bounded returns a rejection that a result can store, even if a codec encodes its details. A long
// reason or message is cut. If the rejection is still too large, its details are omitted, and the
// message says so.
func bounded(r *processor.RejectionError) *processor.RejectionError {
	if proto.Size(r.Rejection) <= maxValueBytes {
		return r
	}
	short := &progressorv1.Rejection{
		Reason: cut(r.Rejection.GetReason()), Message: cut(r.Rejection.GetMessage()), Details: r.Rejection.GetDetails(),
	}
	if size := proto.Size(short); size > maxValueBytes {
		short.Message += fmt.Sprintf(" (details omitted: the rejection has %d bytes, at most %d are allowed)", size,
			maxValueBytes)
		short.Details = nil
	}
	return &processor.RejectionError{Rejection: short}
}

// isFinal reports whether a step that returned err must not be retried.
func isFinal(err error) bool {
	if _, ok := errors.AsType[*processor.RejectionError](err); ok {
		return true
	}
	failure, ok := errors.AsType[*processor.FailureError](err)
	return ok && failure.Failure.GetNonRetryable()
}

// caller returns the file and line of the code that called this package, as in "shop/order.go:42".
func caller() string {
	var counters [32]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, packagePath+".") {
			return fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(filepath.Dir(frame.File)),
				filepath.Base(frame.File)), frame.Line)
		}
		if !more {
			return "an unknown line"
		}
	}
}

const packagePath = "github.com/progressor-engine/progressor/processor/durable"
