package processor

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxParkedID is the maximum size of ProcessResponse.parked_id in bytes.
const maxParkedID = 256

// Check reports whether an answer to a task of this type can be stored: it has an outcome that the
// type allows, its timers have a time, and nothing exceeds the limits. The error is a
// BadResponseError that wraps a process.InvalidError with the field's name. Check does not modify
// the answer.
func Check(task progressorv1.TaskType, resp *progressorv1.ProcessResponse) error {
	return check(task, resp, process.MaxPayloadBytes)
}

// CheckOwn is like Check, for processes that the engine runs itself. Their state and response may
// be as large as a complete result.
func CheckOwn(task progressorv1.TaskType, resp *progressorv1.ProcessResponse) error {
	return check(task, resp, process.MaxResultBytes)
}

// check is Check with a limit for the state and the response, in bytes.
func check(task progressorv1.TaskType, resp *progressorv1.ProcessResponse, limit int) error {
	if n := len(resp.GetParkedId()); n > maxParkedID {
		return &BadResponseError{Err: tooLarge("parked_id", n, maxParkedID)}
	}
	var err *process.InvalidError
	switch outcome := resp.GetOutcome().(type) {
	case *progressorv1.ProcessResponse_Result:
		err = checkResult(task, outcome.Result, limit)
	case *progressorv1.ProcessResponse_Rejection:
		if !rejectable(task) {
			err = invalid("rejection", "a task of type %s cannot be rejected", task)
		} else if size := proto.Size(outcome.Rejection); size > process.MaxPayloadBytes {
			err = tooLarge("rejection", size, process.MaxPayloadBytes)
		}
	case *progressorv1.ProcessResponse_Failure:
		if size := proto.Size(outcome.Failure); size > process.MaxPayloadBytes {
			err = tooLarge("failure", size, process.MaxPayloadBytes)
		} else if details := outcome.Failure.GetDetails(); details != nil {
			err = checkJSON("failure.details", details, 0)
		}
	default:
		err = invalid("outcome", "must be a result, a rejection or a failure")
	}
	if err != nil {
		return &BadResponseError{Err: err}
	}
	return nil
}

func checkResult(task progressorv1.TaskType, result *progressorv1.Result, limit int) *process.InvalidError {
	if size := proto.Size(result); size > process.MaxResultBytes {
		return tooLarge("result", size, process.MaxResultBytes)
	}
	if n := len(result.GetEvents()); n > process.MaxResultEvents {
		return invalid("result.events", "must have at most %d events (got %d)", process.MaxResultEvents, n)
	}
	for i, event := range result.GetEvents() {
		if err := checkEvent(fmt.Sprintf("result.events[%d]", i), event); err != nil {
			return err
		}
	}
	if n := len(result.GetAuxState()); n > limit {
		return tooLarge("result.aux_state", n, limit)
	}
	if n := len(result.GetResponse()); n > limit {
		return tooLarge("result.response", n, limit)
	}
	if err := checkMetadata("result.metadata", result.GetMetadata()); err != nil {
		return err
	}
	if tooDeep(result.GetJobResult(), 0) {
		return checkJSON("result.job_result", result.GetJobResult(), 0)
	}
	if err := checkTimers(result); err != nil {
		return err
	}
	if err := checkReplies(task, result, limit); err != nil {
		return err
	}
	return checkCommands(result.GetCommands())
}

func checkEvent(field string, event *progressorv1.NewEvent) *process.InvalidError {
	if err := checkBytes(field+".payload", event.GetPayload()); err != nil {
		return err
	}
	if err := checkMetadata(field+".metadata", event.GetMetadata()); err != nil {
		return err
	}
	return checkTime(field+".timestamp", event.GetTimestamp())
}

func checkTimers(result *progressorv1.Result) *process.InvalidError {
	if set, ok := result.GetAction().(*progressorv1.Result_SetTimer); ok {
		if set.SetTimer.GetName() != "" {
			return invalid("result.set_timer.name", "must be empty: set named timers in named_timers")
		}
		if err := checkTimer("result.set_timer", set.SetTimer); err != nil {
			return err
		}
	}
	named := result.GetNamedTimers()
	if n := len(named); n > process.MaxTimers {
		return invalid("result.named_timers", "must have at most %d timers (got %d)", process.MaxTimers, n)
	}
	seen := make(map[string]bool, len(named))
	for i, timer := range named {
		field := fmt.Sprintf("result.named_timers[%d]", i)
		switch name := timer.GetName(); {
		case name == "":
			return invalid(field+".name", "must not be empty")
		case len(name) > process.MaxProcessIDBytes:
			return tooLarge(field+".name", len(name), process.MaxProcessIDBytes)
		case !storable(name):
			return invalid(field+".name", "must be valid UTF-8 without NUL")
		case seen[name]:
			return invalid(field+".name", "duplicate timer %q", name)
		default:
			seen[name] = true
		}
		if err := checkTimer(field, timer); err != nil {
			return err
		}
	}
	if n := len(result.GetUnsetNamedTimers()); n > process.MaxTimers {
		return invalid("result.unset_named_timers", "must have at most %d names (got %d)", process.MaxTimers, n)
	}
	for i, name := range result.GetUnsetNamedTimers() {
		switch field := fmt.Sprintf("result.unset_named_timers[%d]", i); {
		case name == "" || seen[name]:
			return invalid(field, "must name a timer that the same result does not set (got %q)", name)
		case len(name) > process.MaxProcessIDBytes:
			return tooLarge(field, len(name), process.MaxProcessIDBytes)
		case !storable(name):
			return invalid(field, "must be valid UTF-8 without NUL")
		}
	}
	return nil
}

func checkTimer(field string, timer *progressorv1.SetTimer) *process.InvalidError {
	switch when := timer.GetWhen().(type) {
	case *progressorv1.SetTimer_At:
		if when.At == nil {
			return invalid(field+".at", "must not be empty")
		}
		return checkTime(field+".at", when.At)
	case *progressorv1.SetTimer_After:
		// A negative duration means now. A duration outside the range of time.Duration is invalid.
		if err := when.After.CheckValid(); err != nil {
			return invalid(field+".after", "%v", err)
		}
		if when.After.AsDuration() > process.MaxDuration {
			return invalid(field+".after", "must be at most %d days", process.MaxDuration/(24*time.Hour))
		}
		return nil
	default:
		return invalid(field, "must set at or after")
	}
}

// checkTime checks that a time is in the years 1970 to 9999. nil is valid.
func checkTime(field string, t *timestamppb.Timestamp) *process.InvalidError {
	if t == nil {
		return nil
	}
	if err := t.CheckValid(); err != nil {
		return invalid(field, "%v", err)
	}
	if t.GetSeconds() < 0 {
		return invalid(field, "must not be before 1970")
	}
	return nil
}

func checkBytes(field string, text []byte) *process.InvalidError {
	if len(text) > process.MaxPayloadBytes {
		return tooLarge(field, len(text), process.MaxPayloadBytes)
	}
	return nil
}

func invalid(field, format string, args ...any) *process.InvalidError {
	return &process.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(field string, size, limit int) *process.InvalidError {
	message := fmt.Sprintf("must have at most %d bytes (got %d)", limit, size)
	return &process.InvalidError{Field: field, Message: message, TooLarge: true}
}
