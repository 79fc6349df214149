package processor

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Processor handles the tasks of processes. Implementations are called from many goroutines at once, for one process by
// one at a time. The request must not be changed; neither may the response be after it was returned.
//
// ctx ends when the attempt is over: at its deadline, or because the engine stops or gave the attempt up.
type Processor interface {
	Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
}

// Func is a function as a Processor.
type Func func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)

// Process calls f.
func (f Func) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return f(ctx, req)
}

// Guard makes every way in which user code can end an answer:
//
//   - a RejectionError becomes a Rejection, a FailureError a Failure;
//   - any other error becomes a Failure with reason "error" and the error's text;
//   - a panic becomes a Failure with reason "panic", and is logged with its stack;
//   - neither a response nor an error is a BadResponseError.
//
// Errors that are about the way to the user code are handed on as they are: UnreachableError, LostError,
// BadResponseError, and those of ctx once it is over. Handler and Serve guard by themselves. A nil logger is slog.Default().
func Guard(p Processor, logger *slog.Logger) Processor {
	if logger == nil {
		logger = slog.Default()
	}
	return &guarded{processor: p, logger: logger}
}

type guarded struct {
	processor Processor
	logger    *slog.Logger
}

func (g *guarded) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (resp *progressorv1.ProcessResponse, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == any(http.ErrAbortHandler) {
			panic(v) // net/http's own way to cut a connection: not ours to answer
		}
		g.logger.ErrorContext(ctx, "processor panicked",
			"namespace", req.GetProcess().GetNamespace(), "process_id", req.GetProcess().GetProcessId(),
			"task_id", req.GetTaskId(), "panic", v, "stack", string(debug.Stack()))
		resp, err = failed(panicked(v).Failure), nil
	}()
	resp, err = g.processor.Process(ctx, req)
	if err == nil {
		if resp == nil {
			return nil, &BadResponseError{Err: errors.New("the processor returned neither a response nor an error")}
		}
		return resp, nil
	}
	return settle(ctx, err)
}

// settle turns an error of user code into an answer where it is one.
func settle(ctx context.Context, err error) (*progressorv1.ProcessResponse, error) {
	if rejection, ok := errors.AsType[*RejectionError](err); ok {
		return &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Rejection{Rejection: rejection.Rejection},
		}, nil
	}
	if _, ok := errors.AsType[*FailureError](err); !ok {
		over := ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
		if over || Unreachable(err) || BadResponse(err) || lost(err) {
			return nil, err
		}
	}
	return failed(FailureOf(err)), nil
}

func failed(f *progressorv1.Failure) *progressorv1.ProcessResponse {
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: f}}
}
