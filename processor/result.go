package processor

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ResultBuilder builds a Result. All methods except Done return the builder. Done reports values
// that could not be encoded.
//
//	return processor.Result().JSONEvent(paid).JSONResponse(order).SetTimerAfter(time.Hour).Done()
type ResultBuilder struct {
	result *progressorv1.Result
	err    error
}

// Result returns a builder. Its initial Result changes nothing: it has no events, and keeps the
// state and the timers.
func Result() *ResultBuilder { return &ResultBuilder{result: &progressorv1.Result{}} }

// Done returns the response for a Processor to return, or the first encoding error.
func (b *ResultBuilder) Done() (*progressorv1.ProcessResponse, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: b.result}}, nil
}

// Event appends an event to the process's history. The engine assigns its ID and the database's
// time.
func (b *ResultBuilder) Event(payload []byte) *ResultBuilder {
	b.result.Events = append(b.result.Events, &progressorv1.NewEvent{Payload: payload})
	return b
}

// EventWith appends an event with metadata, such as the version of its format.
func (b *ResultBuilder) EventWith(payload []byte, metadata map[string]any) *ResultBuilder {
	fields := b.object("event metadata", metadata)
	b.result.Events = append(b.result.Events, &progressorv1.NewEvent{Payload: payload, Metadata: fields})
	return b
}

// JSONEvent appends an event with v, encoded as JSON, as its payload.
func (b *ResultBuilder) JSONEvent(v any) *ResultBuilder { return b.Event(b.json("event", v)) }

// AuxState replaces the process's state.
func (b *ResultBuilder) AuxState(state []byte) *ResultBuilder {
	if state == nil {
		state = []byte{} // a nil state would keep the old one
	}
	b.result.AuxState = state
	return b
}

// JSONAuxState replaces the process's state with v, encoded as JSON.
func (b *ResultBuilder) JSONAuxState(v any) *ResultBuilder { return b.AuxState(b.json("state", v)) }

// Metadata replaces the process's searchable attributes.
func (b *ResultBuilder) Metadata(fields map[string]any) *ResultBuilder {
	b.result.Metadata = b.object("metadata", fields)
	return b
}

// Response sets the response to the caller.
func (b *ResultBuilder) Response(response []byte) *ResultBuilder {
	b.result.Response = response
	return b
}

// JSONResponse sets the response to the caller to v, encoded as JSON.
func (b *ResultBuilder) JSONResponse(v any) *ResultBuilder { return b.Response(b.json("response", v)) }

// DeferResponse leaves the CALL or NOTIFY task of this result open, and its caller waits. To end
// the task, the result of a later task calls Reply or RejectTask with the ProcessRequest.task_id of
// the open task.
func (b *ResultBuilder) DeferResponse() *ResultBuilder {
	b.result.DeferResponse = true
	return b
}

// Reply ends a task whose response was deferred, with this response.
func (b *ResultBuilder) Reply(taskID int64, response []byte) *ResultBuilder {
	b.result.Replies = append(b.result.Replies, &progressorv1.Reply{TaskId: taskID, Response: response})
	return b
}

// JSONReply ends a task whose response was deferred, with v, encoded as JSON, as its response.
func (b *ResultBuilder) JSONReply(taskID int64, v any) *ResultBuilder {
	return b.Reply(taskID, b.json("reply", v))
}

// RejectTask ends a task whose response was deferred: its caller gets err as a rejection. Unlike a
// rejection that a processor returns, this result also changes the process.
func (b *ResultBuilder) RejectTask(taskID int64, err *RejectionError) *ResultBuilder {
	b.result.Replies = append(b.result.Replies, &progressorv1.Reply{TaskId: taskID, Rejection: err.Rejection})
	return b
}

// SetTimerAfter sets the default timer and replaces a pending one. A TIMEOUT task runs after d, or
// at once if d is 0 or less.
func (b *ResultBuilder) SetTimerAfter(d time.Duration) *ResultBuilder {
	return b.setTimer(&progressorv1.SetTimer{When: after(d)})
}

// SetTimerAt sets the default timer and replaces a pending one. A TIMEOUT task runs at t, or at
// once if t is past.
func (b *ResultBuilder) SetTimerAt(t time.Time) *ResultBuilder {
	return b.setTimer(&progressorv1.SetTimer{When: at(t)})
}

// RemoveAfter sets the default timer so that the process is removed after d, with all of its data.
// No task runs.
func (b *ResultBuilder) RemoveAfter(d time.Duration) *ResultBuilder {
	return b.setTimer(&progressorv1.SetTimer{When: after(d), Remove: true})
}

func (b *ResultBuilder) setTimer(timer *progressorv1.SetTimer) *ResultBuilder {
	b.result.Action = &progressorv1.Result_SetTimer{SetTimer: timer}
	return b
}

// UnsetTimers cancels all pending timers.
func (b *ResultBuilder) UnsetTimers() *ResultBuilder {
	b.result.Action = &progressorv1.Result_UnsetTimer{UnsetTimer: &progressorv1.UnsetTimer{}}
	return b
}

// RestartHistory starts a new history that consists of the events of this result and of later ones.
// The process keeps its state, metadata and timers. Earlier events and tasks are removed soon
// afterwards, so the state must contain everything that is still needed.
func (b *ResultBuilder) RestartHistory() *ResultBuilder {
	b.result.RestartHistory = true
	return b
}

// Complete ends the process with the status COMPLETED. Its timers and waiting calls are cancelled.
// A result has one action. If several of Complete, SetTimerAfter, SetTimerAt, RemoveAfter,
// UnsetTimers and Remove are called, the last call wins.
func (b *ResultBuilder) Complete() *ResultBuilder {
	b.result.Action = &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}}
	return b
}

// Remove removes the process at once, with all of its data.
func (b *ResultBuilder) Remove() *ResultBuilder {
	b.result.Action = &progressorv1.Result_Remove{Remove: &progressorv1.Remove{}}
	return b
}

// SetNamedTimerAfter sets the timer with this name; other timers are unaffected.
// ProcessRequest.timer_name is the timer that fired.
func (b *ResultBuilder) SetNamedTimerAfter(name string, d time.Duration) *ResultBuilder {
	b.result.NamedTimers = append(b.result.NamedTimers, &progressorv1.SetTimer{Name: name, When: after(d)})
	return b
}

// SetNamedTimerAt sets the timer with this name; other timers are unaffected.
func (b *ResultBuilder) SetNamedTimerAt(name string, t time.Time) *ResultBuilder {
	b.result.NamedTimers = append(b.result.NamedTimers, &progressorv1.SetTimer{Name: name, When: at(t)})
	return b
}

// UnsetNamedTimer cancels the pending timer with this name, if any.
func (b *ResultBuilder) UnsetNamedTimer(name string) *ResultBuilder {
	b.result.UnsetNamedTimers = append(b.result.UnsetNamedTimers, name)
	return b
}

// Command adds a message to another process (start, notify, cancel), enqueues a job or starts a
// run. The message is delivered exactly once, right after the commit.
func (b *ResultBuilder) Command(c *progressorv1.Command) *ResultBuilder {
	b.result.Commands = append(b.result.Commands, c)
	return b
}

// Start starts a process, unless it exists. An empty namespace means that of this process.
func (b *ResultBuilder) Start(namespace, processID string, args []byte) *ResultBuilder {
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_Start{
		Start: &progressorv1.StartCommand{Namespace: namespace, ProcessId: processID, Args: args},
	}})
}

// StartChild starts a process as Start does. When the child ends, in any way, this process
// receives a NOTIFY task with notifyArgs; ProcessRequest.child contains the end of the child.
func (b *ResultBuilder) StartChild(namespace, processID string, args, notifyArgs []byte) *ResultBuilder {
	if notifyArgs == nil {
		notifyArgs = []byte{} // nil args would mean no notification
	}
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_Start{
		Start: &progressorv1.StartCommand{Namespace: namespace, ProcessId: processID, Args: args,
			NotifyParentArgs: notifyArgs},
	}})
}

// Notify adds a NOTIFY task to another process. An empty namespace means that of this process.
func (b *ResultBuilder) Notify(namespace, processID string, args []byte) *ResultBuilder {
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_Notify{
		Notify: &progressorv1.NotifyCommand{Namespace: namespace, ProcessId: processID, Args: args},
	}})
}

// Cancel cancels another process, as CancelProcess does. An empty namespace means that of this
// process.
func (b *ResultBuilder) Cancel(namespace, processID, reason string) *ResultBuilder {
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_Cancel{
		Cancel: &progressorv1.CancelCommand{Namespace: namespace, ProcessId: processID, Reason: reason},
	}})
}

// Enqueue enqueues a job exactly once, unless a process with its ID exists. An empty namespace
// means that of this process.
func (b *ResultBuilder) Enqueue(job *progressorv1.EnqueueCommand) *ResultBuilder {
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_Enqueue{Enqueue: job}})
}

// StartRun starts a run exactly once, unless a run with its ID exists. An empty namespace means
// that of this process.
func (b *ResultBuilder) StartRun(run *progressorv1.StartRunCommand) *ResultBuilder {
	return b.Command(&progressorv1.Command{Command: &progressorv1.Command_StartRun{StartRun: run}})
}

func (b *ResultBuilder) json(what string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil && b.err == nil {
		b.err = Fail(ReasonError, "encode %s as JSON: %w", what, err).NonRetryable()
	}
	return text
}

// object converts a map to a Struct through JSON, so that the map may contain everything that
// encoding/json accepts.
func (b *ResultBuilder) object(what string, fields map[string]any) *structpb.Struct {
	object := &structpb.Struct{}
	if len(fields) == 0 {
		return object
	}
	if err := object.UnmarshalJSON(b.json(what, fields)); err != nil && b.err == nil {
		b.err = Fail(ReasonError, "encode %s as a JSON object: %w", what, err).NonRetryable()
	}
	return object
}

func after(d time.Duration) *progressorv1.SetTimer_After {
	return &progressorv1.SetTimer_After{After: durationpb.New(d)}
}

func at(t time.Time) *progressorv1.SetTimer_At {
	return &progressorv1.SetTimer_At{At: timestamppb.New(t)}
}
