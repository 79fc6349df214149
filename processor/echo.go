package processor

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Echo is the smallest processor there is: whatever the task, INIT too, it answers with the args, appends them as an event
// and keeps them as the state. It is built into the engine under the name "echo".
func Echo() Processor {
	return Func(func(_ context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		args := req.GetArgs()
		return Result().Event(args).AuxState(args).Response(args).Done()
	})
}
