package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// StartParams is a request to start a process.
type StartParams struct {
	Key            process.Key // the engine chooses an ID if ProcessID is ""
	Args           []byte
	Context        []byte
	Metadata       []byte // JSON object, or nil
	IdempotencyKey string
	Range          *progressorv1.HistoryRange
	Accepted       bool                 // respond when the task is stored, without waiting for its end
	Timeout        time.Duration        // limit of the wait; 0 means the step timeout of the namespace
	StartTime      time.Time            // earliest start; zero means now
	Priority       int32                // tasks with a smaller value run first
	Kind           string               // "" for a plain process
	AuditRecord    *storage.AuditRecord // audit entry for an operator's command, or nil
	Internal       bool                 // see CallParams.Internal
	Asked          []byte               // args that the fingerprint covers; nil means Args
}

// Start creates a process and runs its INIT task.
func (e *Engine) Start(ctx context.Context, p StartParams) (Answer, error) {
	ns, err := e.namespace(ctx, p.Key.Namespace)
	if err != nil {
		return Answer{}, err
	}
	rng, err := wire.RangeJSON(p.Range)
	if err != nil {
		return Answer{}, &process.InvalidError{Field: "range", Message: err.Error()}
	}
	r := &request{ns: ns, method: methodStart, accepted: p.Accepted, timeout: p.Timeout, internal: p.Internal}
	in := &storage.Init{Metadata: p.Metadata, StartTime: p.StartTime, Kind: p.Kind, AuditRecord: p.AuditRecord}
	r.call = storage.Call{
		Key: p.Key, TaskType: process.TaskInit, Args: p.Args, Context: e.traces.keep(ctx, p.Key.ProcessID, p.Context),
		IdempotencyKey: p.IdempotencyKey,
		RequestID:      process.RequestID(p.Key.Namespace, p.Key.ProcessID, p.IdempotencyKey),
		HistoryRange:   rng, Priority: p.Priority, StepTimeout: ns.stepTimeout,
	}
	if p.IdempotencyKey != "" {
		asked := p.Args
		if p.Asked != nil {
			asked = p.Asked
		}
		r.call.Fingerprint = process.Fingerprint(r.method, []byte(p.Key.ProcessID), asked)
	}
	switch {
	case p.Key.ProcessID != "":
	case p.IdempotencyKey != "":
		r.call.Key.ProcessID = process.DerivedProcessID(r.call.RequestID, p.IdempotencyKey)
	default:
		if r.call.Key.ProcessID, err = NewID(); err != nil {
			return Answer{}, fmt.Errorf("start: %w", err)
		}
	}
	later := p.StartTime.After(time.Now())
	return e.accept(ctx, r, process.TaskInit, !later, func() (storage.Prepared, error) {
		in.Call = r.call
		prepared, err := e.store.PrepareInit(in)
		if err == nil && prepared.Outcome == storage.Postponed {
			// The task waits for a slot or for its start time. The scan computes the delay from the
			// database clock.
			e.calls.wake()
			if !p.StartTime.IsZero() {
				e.timers.alarm(p.Key.Namespace, 0)
			}
		}
		return prepared, err
	})
}
