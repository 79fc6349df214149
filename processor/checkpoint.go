package processor

import (
	"context"
	"errors"

	"google.golang.org/protobuf/reflect/protoreflect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Checkpointer stores checkpoints of one attempt. It is safe for concurrent use.
type Checkpointer interface {
	// Checkpoint stores the events, state and metadata of r, which must have no other fields and
	// must not be modified afterwards. See the function Checkpoint.
	Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error)
}

// ErrNoCheckpoints is the error of Checkpoint if the attempt cannot store checkpoints.
var ErrNoCheckpoints = errors.New("this attempt cannot store checkpoints")

// Checkpoint stores the events, state and metadata of b before the attempt ends. ctx must be that
// of Process. If the attempt is lost afterwards, its task is retried, and the next attempt receives
// the process with the events of the checkpoint. The result of the attempt is added to them.
//
// Only a TIMEOUT or CANCEL task can store checkpoints, because it cannot be rejected and its
// failures are retried. The processor must run inside the engine's program, in a client.Worker or
// in a Handler with WithCheckpoints. Otherwise the error is ErrNoCheckpoints. A checkpoint must
// have at least one event, and the limits of a result apply to it.
//
// If the error is process.ErrFenced, the attempt is already over, and its result will not be stored
// either. After process.ErrUnavailable, it is unknown whether the checkpoint was stored: the result
// of the attempt is ignored, and another attempt follows.
//
// yield is true if the attempt should end with a result soon: the process is being cancelled or
// suspended, another of its tasks waits, or the engine or the worker stops. For a pushed task,
// yield does not become true when the engine stops.
func Checkpoint(ctx context.Context, b *ResultBuilder) (yield bool, err error) {
	c := CheckpointerOf(ctx)
	switch {
	case c == nil:
		return false, ErrNoCheckpoints
	case b.err != nil:
		return false, b.err
	}
	return c.Checkpoint(ctx, b.result)
}

type checkpointerKey struct{}

// WithCheckpointer returns a context for an attempt that can store checkpoints.
func WithCheckpointer(ctx context.Context, c Checkpointer) context.Context {
	return context.WithValue(ctx, checkpointerKey{}, c)
}

// CheckpointerOf returns the Checkpointer of the attempt, or nil if it cannot store checkpoints.
func CheckpointerOf(ctx context.Context) Checkpointer {
	c, _ := ctx.Value(checkpointerKey{}).(Checkpointer)
	return c
}

// AllowsCheckpoints reports whether the attempts at a task of this type can store checkpoints.
func AllowsCheckpoints(task progressorv1.TaskType) bool {
	return task == progressorv1.TaskType_TASK_TYPE_TIMEOUT || task == progressorv1.TaskType_TASK_TYPE_CANCEL
}

// CheckCheckpoint reports whether a result can be stored as a checkpoint. The error is a
// BadResponseError that wraps a process.InvalidError with the field's name.
func CheckCheckpoint(r *progressorv1.Result) error {
	if len(r.GetEvents()) == 0 {
		return &BadResponseError{Err: invalid("result.events", "a checkpoint must have at least one event")}
	}
	var other protoreflect.Name
	r.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch field.Name() {
		case "events", "aux_state", "metadata":
		default:
			other = field.Name()
		}
		return other == ""
	})
	if other != "" {
		return &BadResponseError{Err: invalid("result."+string(other),
			"a checkpoint has only events, aux_state and metadata")}
	}
	return Check(progressorv1.TaskType_TASK_TYPE_TIMEOUT, &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Result{Result: r},
	})
}
