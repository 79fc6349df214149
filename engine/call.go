package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// CallParams is a request to a process.
type CallParams struct {
	Key            process.Key
	Args           []byte
	Context        []byte
	IdempotencyKey string
	Range          *progressorv1.HistoryRange
	Accepted       bool          // respond when the task is stored; the task is a NOTIFY
	Timeout        time.Duration // limit of the wait; 0 means the step timeout of the namespace
	Priority       int32         // tasks with a smaller value run first
	// Internal is true if the process belongs to the engine itself. The request runs even if the
	// namespace is paused, and immediately if the process is idle.
	Internal bool
}

// Call runs a CALL task on a process and returns its response.
func (e *Engine) Call(ctx context.Context, p CallParams) (Answer, error) {
	r, err := e.callRequest(ctx, &p)
	if err != nil {
		return Answer{}, err
	}
	return e.accept(ctx, r, r.call.TaskType, true, func() (storage.Prepared, error) {
		return e.store.PrepareCall(&r.call)
	})
}

// callRequest is not inlined into Call, so that its stack frame is free while Call waits for the
// response. This halves the stacks of 10,000 waiting clients from 16 KiB to 8 KiB.
//
//go:noinline
func (e *Engine) callRequest(ctx context.Context, p *CallParams) (*request, error) {
	ns, err := e.namespace(ctx, p.Key.Namespace)
	if err != nil {
		return nil, err
	}
	rng, err := wire.RangeJSON(p.Range)
	if err != nil {
		return nil, &process.InvalidError{Field: "range", Message: err.Error()}
	}
	r := &request{ns: ns, method: methodCall, accepted: p.Accepted, timeout: p.Timeout, internal: p.Internal}
	taskType := process.TaskCall
	if p.Accepted {
		taskType = process.TaskNotify
	}
	r.call = storage.Call{
		Key: p.Key, TaskType: taskType, Args: p.Args, Context: e.traces.keep(ctx, p.Key.ProcessID, p.Context),
		IdempotencyKey: p.IdempotencyKey,
		RequestID:      process.RequestID(p.Key.Namespace, p.Key.ProcessID, p.IdempotencyKey),
		HistoryRange:   rng, Priority: p.Priority, StepTimeout: ns.stepTimeout, MaxWaiting: ns.maxWaiting,
	}
	if p.IdempotencyKey != "" {
		r.call.Fingerprint = process.Fingerprint(r.method, []byte(p.Key.ProcessID), p.Args)
	}
	return r, nil
}
