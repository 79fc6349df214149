package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// heartbeater keeps the node alive in table nodes, and cancels its attempts when it cannot: other nodes may take them over.
//
// Times are compared by Go's monotonic clock. It counts the time for which the program is stopped (SIGSTOP, a debugger, a cgroup
// freezer). On Linux it does not count the time for which the machine is suspended; then the first heartbeat after the wake-up
// tells the node that it was declared dead.
type heartbeater struct {
	engine   *Engine
	interval time.Duration
}

func newHeartbeater(e *Engine) *heartbeater {
	return &heartbeater{engine: e, interval: e.cfg.ZombieAfter * 3 / 10}
}

// Run sends heartbeats until ctx ends.
func (h *heartbeater) Run(ctx context.Context) error {
	ticker := time.NewTicker(h.interval)
	defer ticker.Stop()
	for {
		h.runOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *heartbeater) runOnce(ctx context.Context) {
	e := h.engine
	e.beating.Lock()
	defer e.beating.Unlock()
	if !e.isConnected() { // the program may have been stopped: nothing comes before this
		e.fence()
	}
	limit, cancel := context.WithTimeout(ctx, h.interval)
	defer cancel()
	sent := e.age()
	drain, err := e.store.Beat(limit, e.minuteStats.report(time.Now(), e.draining.Load()))
	if errors.Is(err, process.ErrFenced) {
		e.fence()
		old := e.store.NodeID()
		sent = e.age()
		_, err = e.store.RegisterNode(limit, e.cfg.Address, e.cfg.Version)
		e.log.Warn("another node has declared this one dead: new identity", "old_node_id", old, "node_id", e.store.NodeID())
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

// watch fences the node off when it has had no heartbeat for too long, until ctx ends. It does not depend on runOnce, which may
// wait for the database.
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
			e.fence()
			left = h.interval / 3 // a claim may arrive late
		}
		timer.Reset(left)
	}
}

var errNoHeartbeat = errors.New("the node lost its heartbeat")

// fence cancels all attempts of this node: other nodes may have taken their tasks over, or may do so soon. What workers hold is
// theirs, whichever node handed it out.
func (e *Engine) fence() {
	if n := e.attempts.cancelAll(errNoHeartbeat); n > 0 {
		e.metrics.fenced.Add(float64(n))
		e.log.Warn("attempts cancelled: the node had no heartbeat for too long", "attempts", n, "since", e.sinceBeat().Round(time.Millisecond))
	}
}

// recordHeartbeat records a heartbeat that was sent at the given age of the node. After a gap the node cancels what it runs, and claims tasks
// again.
func (e *Engine) recordHeartbeat(sent time.Duration) {
	gap := !e.isConnected()
	if gap {
		e.fence()
		e.doubtClaims()
	}
	e.lastBeat.Store(int64(sent))
	if gap {
		e.wakeAll()
	}
}

// sinceBeat returns the time since the last successful heartbeat was sent.
func (e *Engine) sinceBeat() time.Duration { return e.age() - time.Duration(e.lastBeat.Load()) }

// fenceAfter is how long after its last heartbeat a node stops what it runs. What is left until other nodes take its tasks over is
// for attempts to end.
func (e *Engine) fenceAfter() time.Duration { return e.cfg.ZombieAfter * 2 / 3 }

// isConnected reports whether the last heartbeat is recent. A node that is not in touch claims nothing and cancels what it runs.
func (e *Engine) isConnected() bool { return e.sinceBeat() <= e.fenceAfter() }
