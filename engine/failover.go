package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// failovers compares the memory of the node with the database after a failover or restore. The new
// server may have lost the last commits of the old one.
type failovers struct{ engine *Engine }

const (
	// failoverChecks is the number of comparisons after a failover, and failoverRest is the time
	// between them. A response of the old server may reach the waiting goroutine only after the
	// first check.
	failoverChecks = 5
	failoverRest   = time.Second
)

func newFailovers(e *Engine) *failovers { return &failovers{e} }

// Run compares the memory with the database after each failover, until ctx is cancelled.
func (f *failovers) Run(ctx context.Context) error {
	rest := time.NewTimer(failoverRest)
	defer rest.Stop()
	for left := 0; ; {
		var again <-chan time.Time
		if left > 0 {
			rest.Reset(failoverRest)
			again = rest.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.engine.generations:
			left = failoverChecks
			f.begin(ctx)
		case <-again:
		}
		if err := f.check(ctx); err == nil {
			left--
		} else if ctx.Err() == nil {
			f.engine.log.Warn("cannot check which commits the database failover lost, will retry", "error", err)
		}
	}
}

// begin clears the cached leases, and registers the node again if its row was lost. It also makes
// the collector search for lost claims, and wakes the pollers.
func (f *failovers) begin(ctx context.Context) {
	e := f.engine
	e.workers.Forget()
	newHeartbeater(e).runOnce(ctx)
	e.expectLostClaims()
	e.wakeAll()
}

// check notifies clients whose tasks were lost. The collector cancels the attempts that were lost.
func (f *failovers) check(ctx context.Context) error {
	e := f.engine
	limit, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	tasks := e.waiters.refs()
	for len(tasks) > 0 {
		batch := tasks[:min(len(tasks), maxPolled)]
		tasks = tasks[len(batch):]
		missing, err := e.store.MissingTasks(limit, batch)
		if err != nil {
			return err
		}
		for _, at := range missing {
			f.lost(batch[at])
		}
	}
	return nil
}

func (f *failovers) lost(ref storage.TaskRef) {
	e := f.engine
	name := ""
	if _, known := e.registry.all()[ref.Key.Namespace]; known {
		name = ref.Key.Namespace
	}
	e.metrics.lost.WithLabelValues(e.NamespaceLabel(name)).Inc()
	e.log.Warn("task lost by a failover of the database", "namespace", ref.Key.Namespace, "process_id",
		ref.Key.ProcessID, "task_id", ref.TaskID)
	e.waiters.deliver(ref, taskEnd{status: process.TaskStatusError, lost: true})
}
