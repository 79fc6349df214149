package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// heartbeater keeps the row of the node in table nodes alive. If it cannot, it cancels the attempts
// of the node, because other nodes may take over their tasks.
//
// Times are compared by Go's monotonic clock. It counts time during which the program is stopped
// (SIGSTOP, a debugger, a cgroup freezer). On Linux it does not count time during which the machine
// is suspended. In that case the first heartbeat after the wake-up reports that the node was
// declared dead.
type heartbeater struct {
	engine   *Engine
	interval time.Duration
}

func newHeartbeater(e *Engine) *heartbeater {
	return &heartbeater{engine: e, interval: e.cfg.ZombieAfter * 3 / 10}
}

// Run sends heartbeats until ctx is cancelled.
func (h *heartbeater) Run(ctx context.Context) error {
	h.runOnce(ctx)
	return Every(ctx, h.interval, func() { h.runOnce(ctx) })
}

func (h *heartbeater) runOnce(ctx context.Context) {
	e := h.engine
	e.beating.Lock()
	defer e.beating.Unlock()
	if !e.isConnected() { // the program may have been stopped; cancel first
		e.cancelAttempts()
	}
	limit, cancel := context.WithTimeout(ctx, h.interval)
	defer cancel()
	sent := e.age()
	drain, err := e.store.Beat(limit, e.minuteStats.report(time.Now(), e.draining.Load()))
	if errors.Is(err, process.ErrFenced) {
		e.cancelAttempts()
		old := e.store.NodeID()
		sent = e.age()
		_, err = e.store.RegisterNode(limit, e.nodeDescription())
		e.log.Warn("another node declared this node dead; continuing with a new node ID", "old_node_id", old, "node_id",
			e.store.NodeID())
	}
	if err == nil {
		e.recordHeartbeat(sent)
		if drain {
			e.beginDrain()
		}
		return
	}
	if ctx.Err() == nil {
		e.log.Warn("heartbeat failed", "since", e.sinceBeat().Round(time.Millisecond), "error", err)
	}
}

// watch cancels the attempts of the node when the node has had no heartbeat for too long. It runs
// until ctx is cancelled. It is independent of runOnce, which may block on the database.
func (h *heartbeater) watch(ctx context.Context) error {
	e := h.engine
	timer := time.NewTimer(e.fenceAfter())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		left := e.fenceAfter() - e.sinceBeat() + time.Millisecond
		if !e.isConnected() {
			e.cancelAttempts()
			left = h.interval / 3 // a claim may arrive late
		}
		timer.Reset(left)
	}
}

var errNoHeartbeat = errors.New("the node could not store its heartbeat")

// cancelAttempts cancels all attempts of this node, because other nodes may take over their tasks.
// It does not affect leases of workers, which are valid on every node.
func (e *Engine) cancelAttempts() {
	if n := e.attempts.cancelAll(errNoHeartbeat); n > 0 {
		e.metrics.fenced.Add(float64(n))
		e.log.Warn("attempts cancelled: the node could not store its heartbeat for too long", "attempts", n, "since",
			e.sinceBeat().Round(time.Millisecond))
	}
}

// recordHeartbeat records a heartbeat that was sent at the given age of the node. If the previous
// heartbeat is too old, it first cancels the attempts of the node.
func (e *Engine) recordHeartbeat(sent time.Duration) {
	gap := !e.isConnected()
	if gap {
		e.cancelAttempts()
		e.expectLostClaims()
	}
	e.lastBeat.Store(int64(sent))
	if gap {
		e.wakeAll()
	}
}

// sinceBeat returns the time since the last successful heartbeat was sent.
func (e *Engine) sinceBeat() time.Duration { return e.age() - time.Duration(e.lastBeat.Load()) }

// fenceAfter is the time after its last heartbeat at which a node cancels its attempts. In the rest
// of ZombieAfter, the attempts can end before other nodes take over their tasks.
func (e *Engine) fenceAfter() time.Duration { return e.cfg.ZombieAfter * 2 / 3 }

// isConnected reports whether the last heartbeat is recent. A node that is not connected claims
// nothing and cancels its attempts.
func (e *Engine) isConnected() bool { return e.sinceBeat() <= e.fenceAfter() }
