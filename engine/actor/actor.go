package actor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Task is a task of a process. Kinds embed it in their own task types.
type Task struct {
	*engine.Attempt
	Ctx     context.Context
	Request *progressorv1.ProcessRequest
	Key     process.Key // names the process
	Now     time.Time   // database time in whole microseconds, like stored times
	Result  *processor.ResultBuilder
}

// Actor is the processor of a kind. T is a task of the kind with the state of its process.
type Actor[T any] struct {
	Noun string // names a process of the kind in messages, such as "a cron"
	New  func(*Task) T
	// Read decodes the state, and reads what all handlers need. It is not called for INIT tasks.
	Read func(T) error
	// The handlers, one for each type of task. A task without a handler fails, except that a CANCEL
	// task without a handler changes nothing.
	Init, Call, Timer, Notify, Cancel func(T) error
	// Done completes the result of a handler. It may be nil.
	Done func(T) error
}

// Process implements processor.Processor.
func (a *Actor[T]) Process(
	ctx context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	attempt := engine.AttemptOf(ctx)
	return a.handle(&Task{
		Attempt: attempt, Ctx: ctx, Request: r, Now: attempt.Now().UTC().Truncate(time.Microsecond),
		Key:    process.Key{Namespace: r.GetProcess().GetNamespace(), ProcessID: r.GetProcess().GetProcessId()},
		Result: processor.Result(),
	})
}

func (a *Actor[T]) handle(t *Task) (*progressorv1.ProcessResponse, error) {
	handler := map[progressorv1.TaskType]func(T) error{
		progressorv1.TaskType_TASK_TYPE_INIT:    a.Init,
		progressorv1.TaskType_TASK_TYPE_CALL:    a.Call,
		progressorv1.TaskType_TASK_TYPE_TIMEOUT: a.Timer,
		progressorv1.TaskType_TASK_TYPE_NOTIFY:  a.Notify,
		progressorv1.TaskType_TASK_TYPE_CANCEL:  a.Cancel,
	}[t.Request.GetType()]
	switch {
	case handler == nil && t.Request.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL:
		return t.Result.Done()
	case handler == nil:
		return nil, processor.Fail(processor.ReasonNotHandled, "%s does not accept tasks of type %s", a.Noun,
			t.Request.GetType()).NonRetryable()
	}
	err := a.run(t, handler)
	if errors.Is(err, process.ErrUnavailable) { // no decision was made, so the task is retried
		err = &processor.UnreachableError{Err: err}
	}
	if err != nil {
		return nil, err
	}
	return t.Result.Done()
}

func (a *Actor[T]) run(base *Task, handler func(T) error) error {
	t := a.New(base)
	if base.Request.GetType() != progressorv1.TaskType_TASK_TYPE_INIT {
		if err := a.Read(t); err != nil {
			return err
		}
	}
	if err := handler(t); err != nil || a.Done == nil {
		return err
	}
	return a.Done(t)
}

// MoveTimer sets the default timer to at, or unsets it if at is zero. timer points to the current
// value of the timer, which MoveTimer updates.
func (t *Task) MoveTimer(timer *time.Time, at time.Time) {
	if at.Equal(*timer) {
		return
	}
	if *timer = at; at.IsZero() {
		t.Result.UnsetTimers()
	} else {
		t.Result.SetTimerAt(at)
	}
}

// Priority is the priority of commands. It is high because clients wait for them.
const Priority = math.MinInt32

// Call sends a command to a process. It waits until the result is stored, and returns the decoded
// JSON response.
func Call[R any](ctx context.Context, e *engine.Engine, key process.Key, args []byte) (response R, err error) {
	answer, err := e.Call(ctx, engine.CallParams{Key: key, Args: args, Priority: Priority, Internal: true})
	if err != nil {
		return response, err
	}
	if err := json.Unmarshal(answer.Response, &response); err != nil {
		return response, fmt.Errorf("answer of %s: %w", key, err)
	}
	return response, nil
}
