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
	Accepted       bool          // answer when the task is durable: it becomes a NOTIFY
	Timeout        time.Duration // of the wait; 0: the namespace's step timeout
	Priority       int32         // smaller first, between processes
	// Internal says that the process is one of the engine's own, and that the request is to run though its namespace is paused: it is carried out at
	// once, where the process is idle.
	Internal bool
}

// Call runs a CALL task on a process and answers with its response.
func (e *Engine) Call(ctx context.Context, p CallParams) (Answer, error) {
	r, err := e.callRequest(ctx, &p)
	if err != nil {
		return Answer{}, err
	}
	return e.accept(ctx, r, r.call.TaskType, true, func() (storage.Prepared, error) { return e.store.PrepareCall(&r.call) })
}

// callRequest is apart from Call so that its stack is free again while the answer is waited for: the goroutines of 10,000 waiting clients
// have stacks of 8 KiB instead of 16.
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
		Key: p.Key, TaskType: taskType, Args: p.Args, Context: e.traces.keep(ctx, p.Key.ProcessID, p.Context), IdempotencyKey: p.IdempotencyKey,
		RequestID:    process.RequestID(p.Key.Namespace, p.Key.ProcessID, p.IdempotencyKey),
		HistoryRange: rng, Priority: p.Priority, StepTimeout: ns.stepTimeout, MaxWaiting: ns.maxWaiting,
	}
	if p.IdempotencyKey != "" {
		r.call.Fingerprint = process.Fingerprint(r.method, []byte(p.Key.ProcessID), p.Args)
	}
	return r, nil
}
