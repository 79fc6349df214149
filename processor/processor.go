package processor

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Processor handles the tasks of processes. Process must be safe for concurrent use; the engine
// calls it for one task of a process at a time. It must not modify the request, nor the response
// after returning it.
//
// ctx ends with the attempt: at its deadline, or when the engine stops or gives up the attempt.
type Processor interface {
	Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
}

// Func is a function that implements Processor.
type Func func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)

// Process calls f.
func (f Func) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return f(ctx, req)
}

// Guard returns a Processor that turns every way in which p can fail into an answer:
//
//   - a RejectionError becomes a Rejection, a FailureError a Failure
//   - any other error becomes a Failure with the reason "error" and the error's text
//   - a panic, except http.ErrAbortHandler, becomes a Failure with the reason "panic", and is
//     logged with its stack
//   - returning neither a response nor an error becomes a BadResponseError
//
// Errors about the transport are returned unchanged: UnreachableError, LostError, BadResponseError,
// and the error of ctx once it has ended. Handler and Serve use Guard. A nil logger means
// slog.Default().
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
			panic(v) // net/http aborts the connection
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

// settle converts an error of user code to an answer, unless it is about the transport.
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
