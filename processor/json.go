package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// JSON is a Processor whose state is a Go value, stored as JSON in the process's aux_state. Each
// function receives a Task. It changes Task.State, adds events, a response and timers to the task,
// and returns nil. If it returns an error (Reject, Fail or any other), none of these changes are
// stored. A task whose function is nil gets the same response as from a Router.
//
//	orders := &processor.JSON[Order]{
//		OnCall: func(ctx context.Context, t *processor.Task[Order]) error {
//			var pay Pay
//			if err := t.Args(&pay); err != nil {
//				return err
//			}
//			if pay.Amount != t.State.Total {
//				return processor.Reject("wrong_amount", "the order costs %d", t.State.Total)
//			}
//			t.State.Paid = true
//			t.JSONEvent(Event{Type: "paid"}).JSONResponse(t.State).UnsetTimers()
//			return nil
//		},
//	}
type JSON[State any] struct {
	OnInit    func(context.Context, *Task[State]) error
	OnCall    func(context.Context, *Task[State]) error
	OnNotify  func(context.Context, *Task[State]) error // if nil, OnCall is used
	OnRepair  func(context.Context, *Task[State]) error
	OnTimeout func(context.Context, *Task[State]) error
	OnCancel  func(context.Context, *Task[State]) error
}

// Task is the argument of the functions of a JSON processor. The methods of ResultBuilder build its
// result.
type Task[State any] struct {
	*ResultBuilder
	Request *progressorv1.ProcessRequest
	State   State // the stored state, or the zero value in INIT; the new state is stored
}

// Args decodes the task's args into v. The args must be JSON without unknown fields. The error has
// the reason "bad_args". It is a rejection, or a failure if the task cannot be rejected.
func (t *Task[State]) Args(v any) error { return decodeArgs(t.Request, v) }

// Process calls the function for the type of the task.
func (p *JSON[State]) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	router := Router{
		OnInit: p.typed(p.OnInit), OnCall: p.typed(p.OnCall), OnNotify: p.typed(p.OnNotify),
		OnRepair: p.typed(p.OnRepair), OnTimeout: p.typed(p.OnTimeout), OnCancel: p.typed(p.OnCancel),
	}
	return router.Process(ctx, req)
}

func (p *JSON[State]) typed(handle func(context.Context, *Task[State]) error) Func {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		state, err := StateOf[State](req)
		if err != nil {
			return nil, err
		}
		task := &Task[State]{ResultBuilder: Result(), Request: req, State: state}
		if err := handle(ctx, task); err != nil {
			return nil, err
		}
		if text := task.json("state", task.State); !bytes.Equal(text, req.GetProcess().GetAuxState()) {
			task.AuxState(text)
		}
		return task.Done()
	}
}

// ArgsOf decodes the task's args, which must be JSON without unknown fields. The error has the
// reason "bad_args", and a processor can return it as it is. It is a rejection, or a failure if the
// task cannot be rejected.
func ArgsOf[T any](req *progressorv1.ProcessRequest) (T, error) {
	var v T
	err := decodeArgs(req, &v)
	return v, err
}

// StateOf decodes the process's state. It returns the zero value if there is no state yet. Unknown
// fields are ignored, so that the state of a newer version can be read. The error is a failure with
// the reason "bad_state".
func StateOf[State any](req *progressorv1.ProcessRequest) (State, error) {
	var state State
	text := req.GetProcess().GetAuxState()
	if len(text) == 0 {
		return state, nil
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, Fail(ReasonBadState, "decode the state: %w", &textError{err}).NonRetryable()
	}
	return state, nil
}

// HistoryOf decodes the payloads of the events in the request, in the same order. The error is a
// failure with the reason "bad_state".
func HistoryOf[Event any](req *progressorv1.ProcessRequest) ([]Event, error) {
	events := make([]Event, len(req.GetProcess().GetHistory()))
	for i, event := range req.GetProcess().GetHistory() {
		if err := json.Unmarshal(event.GetPayload(), &events[i]); err != nil {
			return nil, Fail(ReasonBadState, "decode event %d: %w", event.GetEventId(), &textError{err}).NonRetryable()
		}
	}
	return events, nil
}

func decodeArgs(req *progressorv1.ProcessRequest, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(req.GetArgs()))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("must not be empty")
	case err != nil:
		err = &textError{err}
	default:
		if _, more := decoder.Token(); errors.Is(more, io.EOF) {
			return nil
		}
		err = errors.New("unexpected text after the JSON value")
	}
	if !rejectable(req.GetType()) {
		return Fail(ReasonBadArgs, "decode the args: %w", err).NonRetryable()
	}
	return Reject(ReasonBadArgs, "decode the args: %w", err)
}

// textError reports that args, a state or an event could not be decoded. Its message can contain
// parts of them.
type textError struct{ err error }

func (e *textError) Error() string { return e.err.Error() }

func (e *textError) Unwrap() error { return e.err }

// withoutContent returns a message that contains no part of the JSON.
func (e *textError) withoutContent() string {
	if syntax, ok := errors.AsType[*json.SyntaxError](e.err); ok {
		return fmt.Sprintf("not valid JSON at byte %d", syntax.Offset)
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](e.err); ok {
		kind, _, _ := strings.Cut(mistyped.Value, " ") // a number follows
		return fmt.Sprintf("the JSON %s that ends at byte %d cannot be decoded as %s", kind, mistyped.Offset,
			mistyped.Type)
	}
	if strings.HasPrefix(e.err.Error(), "json: unknown field ") {
		return "the JSON has an unknown field"
	}
	return fmt.Sprintf("not the expected JSON (%T)", e.err)
}

// WithoutContent removes parts of payloads from the message of a processor's error, so that the
// engine can store it without encryption. It changes only errors of ArgsOf, StateOf and HistoryOf,
// because the message of a decoding error can quote the text. The wrapped error does not change.
func WithoutContent(err error) error {
	text, ok := errors.AsType[*textError](err)
	if !ok {
		return err
	}
	hidden := func(cause error) string {
		return plain(strings.ReplaceAll(cause.Error(), text.Error(), text.withoutContent()))
	}
	if rejection, ok := errors.AsType[*RejectionError](err); ok && rejection.cause != nil {
		rejection.Rejection.Message = hidden(rejection.cause)
	}
	if failure, ok := errors.AsType[*FailureError](err); ok && failure.cause != nil {
		failure.Failure.Message = hidden(failure.cause)
	}
	return err
}
