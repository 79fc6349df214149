package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// RepairParams is a request to take a process out of ERROR.
type RepairParams struct {
	Key            process.Key
	Simple         bool // without calling the processor
	Args           []byte
	Context        []byte
	IdempotencyKey string
	Range          *progressorv1.HistoryRange
	Accepted       bool          // respond when the task is stored
	Timeout        time.Duration // limit of the wait; 0 means the step timeout of the namespace
	Actor          process.Actor
}

// Repair takes a process out of ERROR, with a REPAIR task or, if Simple is set, without its
// processor. Timers that the error had cancelled are set again, including the timer that caused the
// error.
func (e *Engine) Repair(ctx context.Context, p RepairParams) (Answer, error) {
	ns, err := e.namespace(ctx, p.Key.Namespace)
	if err != nil {
		return Answer{}, err
	}
	rng, err := wire.RangeJSON(p.Range)
	if err != nil {
		return Answer{}, &process.InvalidError{Field: "processor.range", Message: err.Error()}
	}
	r := &request{ns: ns, method: methodRepair, accepted: p.Accepted, timeout: p.Timeout}
	prepare := e.store.PrepareRepair
	if p.Simple {
		r.method = methodSimpleRepair
		prepare = func(c *storage.Call) (storage.Prepared, error) { return e.store.SimpleRepair(c, p.Actor) }
	}
	r.call = storage.Call{
		Key: p.Key, TaskType: process.TaskRepair, Args: p.Args, Context: e.traces.keep(ctx, p.Key.ProcessID, p.Context),
		IdempotencyKey: p.IdempotencyKey,
		RequestID:      process.RequestID(p.Key.Namespace, p.Key.ProcessID, p.IdempotencyKey),
		HistoryRange:   rng, StepTimeout: ns.stepTimeout,
		Fingerprint: process.Fingerprint(r.method, []byte(p.Key.ProcessID), p.Args),
	}
	return e.accept(ctx, r, process.TaskRepair, !p.Simple, func() (storage.Prepared, error) { return prepare(&r.call) })
}
