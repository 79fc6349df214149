package engine

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// EraseBatch is like EraseProcess, but a request erases only one batch with at most the given
// number of rows.
func (e *Engine) EraseBatch(
	ctx context.Context, r *progressorv1.EraseProcessRequest, by process.Actor, rows int,
) (*progressorv1.EraseProcessResponse, error) {
	return e.eraseProcess(ctx, r, by, erasurePage{rows: rows})
}

// Slots returns how many slots of a namespace are taken, and how many requests wait for a slot.
func (e *Engine) Slots(namespace string) (taken, waiting int) {
	return e.registry.all()[namespace].slots.inUse()
}

// Demand returns the number of new requests that wait for a slot of a namespace, and reports
// whether stored tasks or timers also wait.
func (e *Engine) Demand(namespace string) (waiting int, others bool) {
	_, waiting, others = e.registry.all()[namespace].slots.demand()
	return waiting, others
}

// Storing simulates a task that holds a slot while its result is being stored, until free is
// called. took is how long storing earlier results took.
func (e *Engine) Storing(namespace string, took time.Duration) (free func()) {
	ns := e.registry.all()[namespace]
	ns.usage.storing.Add(int64(took))
	ns.slots.force(fresh)
	return func() { ns.slots.release(fresh) }
}

// StoringTime returns how long the results and requests of a namespace took to store.
func (e *Engine) StoringTime(namespace string) time.Duration {
	return time.Duration(e.registry.all()[namespace].usage.storing.Load())
}

// Attempts returns how many tasks the node runs.
func (e *Engine) Attempts() int { return e.attempts.count() }

// Removes reports whether this node is responsible for the deletion of namespaces.
func (e *Engine) Removes() bool { return e.peers.isResponsibleFor("namespaces") }

// ScanNow wakes the pollers.
func (e *Engine) ScanNow() { e.wakeAll() }

// BacklogResults returns how many results of scanned tasks wait to be stored.
func (e *Engine) BacklogResults() int {
	e.backlog.mu.Lock()
	defer e.backlog.mu.Unlock()
	return e.backlog.results
}

// Serves reports whether the node has a processor for a namespace.
func (e *Engine) Serves(namespace string) bool { return e.registry.all()[namespace].processor != nil }

// Waiting returns the number of tasks that clients of this node wait for.
func (e *Engine) Waiting() int { return e.waiters.count() }

// Paused reports whether the node knows that a namespace is paused.
func (e *Engine) Paused(namespace string) bool { return e.registry.all()[namespace].paused }

// ExpireTwice runs two passes of a collector. The first one has no time to remove anything.
func (e *Engine) ExpireTwice(ctx context.Context, between func()) error {
	c := newCollector(e)
	c.passes, c.expiry = 9, 0
	if err := c.runOnce(ctx); err != nil {
		return err
	}
	between()
	c.expiry = purgeTime
	return c.runOnce(ctx)
}

// CollectionPasses collects zombies until none are left, and returns the number of passes that
// ended attempts. It treats each lease that it finds as if its worker had been silent for a long
// time. Each pass starts when the results of all zombies of the previous pass are stored.
func (e *Engine) CollectionPasses(ctx context.Context) (passes int, err error) {
	c := newCollector(e)
	for err == nil {
		c.passes++
		if err = c.collect(ctx); err != nil || len(c.suspects) == 0 {
			break
		}
		if c.passes > 1 {
			passes++
		}
		for c.savingCount() > 0 {
			runtime.Gosched()
		}
		for ref, s := range c.suspects {
			s.leaseSince = time.Time{}
			c.suspects[ref] = s
		}
	}
	return passes, err
}

// AssumeUrgent makes the node assume that an urgent task is running until ended is called.
func (e *Engine) AssumeUrgent() (ended func()) {
	ns := e.registry.all()["ns"]
	e.timers.urgentRunning.Add(1)
	ns.urgentSlots.taken++
	return sync.OnceFunc(func() { e.timers.urgentEnded(ns) })
}

// WaitingTargets returns the number of targets whose messages wait until no urgent task is due or
// running.
func (e *Engine) WaitingTargets() int {
	e.messages.mu.Lock()
	defer e.messages.mu.Unlock()
	return len(e.messages.lowPriority.targets)
}

// DoubtClaims makes the collector search for unknown claims and lost attempts.
func (e *Engine) DoubtClaims() { e.expectLostClaims() }

// SetBack reports to the collector that the database clock was set back.
func (e *Engine) SetBack() { e.setBack.Store(true) }

// Owns reports whether this node is responsible for a chore.
func (e *Engine) Owns(chore string) bool { return e.IsResponsibleFor(chore) }

// KnowsPeers reports whether the node knows n other live nodes.
func (e *Engine) KnowsPeers(n int) bool {
	e.peers.mu.Lock()
	defer e.peers.mu.Unlock()
	return len(e.peers.live) == n
}

// KnowsRequestsOnly reports whether the node knows of another node that takes only requests.
func (e *Engine) KnowsRequestsOnly() bool { return e.peers.requestsOnly.Load() }
