package processor

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Echo is the smallest processor there is: whatever the task, INIT too, it answers with the args, appends them as an event
// and keeps them as the state. A CANCEL has no args: it answers with the reason, and leaves the state as it is. It is built into
// the engine under the name "echo".
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
