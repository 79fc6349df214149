package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// heart keeps the node alive in table nodes and gives its attempts up when it cannot: what a node that nobody hears from would
// store is another node's by then.
type heart struct {
	engine   *Engine
	interval time.Duration
}

func newHeart(e *Engine) *heart {
	return &heart{engine: e, interval: e.cfg.ZombieAfter * 3 / 10}
}

// Run beats until ctx ends.
func (h *heart) Run(ctx context.Context) error {
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

func (h *heart) runOnce(ctx context.Context) {
	e := h.engine
	e.beating.Lock()
	defer e.beating.Unlock()
	limit, cancel := context.WithTimeout(ctx, h.interval)
	defer cancel()
	drain, err := e.store.Beat(limit, e.minute.pulse(time.Now(), e.draining.Load()))
	if errors.Is(err, process.ErrFenced) {
		// The node was away for so long that another has buried it: it begins anew.
		_, err = e.store.RegisterNode(limit, e.cfg.Address, e.cfg.Version)
		e.log.Warn("the node was given up by the others: new identity", "node_id", e.store.NodeID())
	}
	if err == nil {
		e.beaten()
		if drain {
			e.beginDrain()
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	e.log.Warn("heartbeat failed", "since", e.sinceBeat().Round(time.Millisecond), "error", err)
	if !e.inTouch() {
		if n := e.attempts.cancelAll(errNoHeartbeat); n > 0 {
			e.log.Warn("attempts given up: the database has not heard from this node", "attempts", n)
		}
	}
}

var errNoHeartbeat = errors.New("the node lost its heartbeat")
