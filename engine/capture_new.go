package engine

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
)

// CaptureNew stores a new task by calling store, and runs it at once. It needs a slot for which
// nothing waits, so that the task does not overtake others. If this node may not run the task, or
// has no such slot, CaptureNew does not call store and returns false. The claim that store returns
// is nil if nothing runs.
func (e *Engine) CaptureNew(
	ctx context.Context, namespace string, store func() (*storage.Claim, error),
) (tried bool, err error) {
	ns, ok := e.registry.all()[namespace]
	if !ok || e.cfg.RequestsOnly || !e.takesTasks() || !ns.servable() || e.hasPausedNames(namespace) ||
		!e.active.enter() {
		return false, nil
	}
	if !ns.slots.tryTakeIdle() {
		e.active.leave()
		return false, nil
	}
	release := func() { ns.slots.release(fresh) }
	c, err := store()
	if c == nil {
		release()
		e.active.leave()
		return true, err
	}
	asked := e.traces.asked(ctx, c.ProcessID, c.Context)
	e.runners.Go(func() { e.run(ns, c, origin{asked: asked, release: release}) })
	return true, err
}
