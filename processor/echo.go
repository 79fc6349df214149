package processor

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Echo returns the smallest useful processor. It answers every task, including INIT, with the args
// of the task, appends them as an event and keeps them as the state. It answers a CANCEL, which has
// no args, with the reason, and leaves the state unchanged. It is built into the engine under the
// name "echo".
func Echo() Processor {
	return Func(func(_ context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL {
			reason := []byte(req.GetCancelReason())
			return Result().Event(reason).Response(reason).Done()
		}
		args := req.GetArgs()
		return Result().Event(args).AuxState(args).Response(args).Done()
	})
}
