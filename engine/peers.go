package engine

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// peers watches the heartbeats of the other nodes. A node is dead if its heartbeat has not changed
// for zombie_after by the monotonic clock of this node, so no node is declared dead because of a
// step of the database clock. A node never declares itself dead.
type peers struct {
	engine  *Engine
	seen    map[int64]beatSighting
	lastRun time.Time // when runOnce last ran
	clock   clockWatch

	// requestsOnly reports whether another node takes requests only.
	requestsOnly atomic.Bool
	alone        bool // no other node runs tasks; used only by runOnce

	mu   sync.Mutex
	live []int64 // nodes that claim tasks, without this one
}

// beatSighting is the heartbeat of a node, and the time when it was first seen.
type beatSighting struct{ beat, since time.Time }

func newPeers(e *Engine) *peers { return &peers{engine: e, seen: map[int64]beatSighting{}} }

// Run watches the nodes until ctx is cancelled.
func (p *peers) Run(ctx context.Context) error {
	pass := func() {
		limit, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if err := p.runOnce(limit); err != nil && ctx.Err() == nil {
			p.engine.log.Warn("cannot read the heartbeats of the other nodes", "error", err)
		}
	}
	pass()
	return Every(ctx, min(2*time.Second, p.engine.cfg.ZombieAfter/5), pass)
}

func (p *peers) runOnce(ctx context.Context) error {
	e := p.engine
	asked := time.Now()
	// If this node was stopped or disconnected, the other nodes may have been as well. They get as
	// much time to send a heartbeat as this node.
	if !e.isConnected() || asked.Sub(p.lastRun) > e.cfg.ZombieAfter/2 {
		clear(p.seen)
	}
	p.lastRun = asked
	beats, err := e.store.ListBeats(ctx)
	if err != nil || !e.isConnected() {
		return err
	}
	answered := time.Now()
	seen := make(map[int64]beatSighting, len(beats))
	var live []int64
	requestsOnly := false
	for _, b := range beats {
		if b.NodeID == e.store.NodeID() {
			e.clockStep(p.clock.step(b.Now, asked, answered))
			continue
		}
		s, known := p.seen[b.NodeID]
		if !known || !s.beat.Equal(b.BeatTime) {
			s = beatSighting{b.BeatTime, answered}
		}
		seen[b.NodeID] = s
		requestsOnly = requestsOnly || b.RequestsOnly
		if !b.Draining && !b.RequestsOnly {
			live = append(live, b.NodeID)
		}
		if !p.dead(asked.Sub(s.since), b.Now.Sub(b.BeatTime)) {
			continue
		}
		declared, err := e.store.DeclareDead(ctx, b.NodeID, b.BeatTime)
		if err != nil {
			return err
		}
		if declared {
			e.metrics.declaredDead.Inc()
			e.log.Warn("node declared dead", "node_id", b.NodeID, "last_heartbeat", b.BeatTime)
		}
	}
	p.seen = seen
	p.requestsOnly.Store(requestsOnly)
	p.warnIfAlone(len(live) == 0)
	p.mu.Lock()
	p.live = live
	p.mu.Unlock()
	return nil
}

// warnIfAlone logs when a node that takes only requests finds that no node runs tasks, and when it
// finds one again.
func (p *peers) warnIfAlone(alone bool) {
	if !p.engine.cfg.RequestsOnly || alone == p.alone {
		return
	}
	if p.alone = alone; alone {
		p.engine.log.Warn("no node runs tasks: requests to this node wait until one starts (engine.requests_only is " +
			"set)")
	} else {
		p.engine.log.Info("another node runs tasks again")
	}
}

// dead reports whether a node is dead. unchanged is how long this node has seen the heartbeat
// unchanged, and age is the age of the heartbeat by the database clock. A node stops its tasks
// after fenceAfter. When unchanged has reached fenceAfter, dead also trusts the database clock.
// Otherwise, a node that has just started would have to wait for zombie_after again.
func (p *peers) dead(unchanged, age time.Duration) bool {
	e := p.engine
	return unchanged >= e.cfg.ZombieAfter || unchanged >= e.fenceAfter() && age >= e.cfg.ZombieAfter
}

// others returns how many other live nodes run tasks.
func (p *peers) others() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}

// IsResponsibleFor reports whether this node does a chore that one live node does for all nodes.
func (e *Engine) IsResponsibleFor(chore string) bool { return e.peers.isResponsibleFor(chore) }

// isResponsibleFor reports whether this node does a chore that one node does for all nodes. It uses
// rendezvous hashing over the live nodes.
func (p *peers) isResponsibleFor(chore string) bool {
	p.mu.Lock()
	live := p.live
	p.mu.Unlock()
	own := weight(chore, p.engine.store.NodeID())
	return !slices.ContainsFunc(live, func(id int64) bool { return weight(chore, id) > own })
}

func weight(chore string, nodeID int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(chore))                      // Write never returns an error
	_, _ = h.Write(strconv.AppendInt(nil, nodeID, 10)) // Write never returns an error
	// The last bytes of an FNV input hardly change the high bits.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// clockWatch compares the database clock with the monotonic clock of this node.
type clockWatch struct {
	known     bool
	low, high time.Duration // bounds of the difference between the clocks
	origin    time.Time
}

// clockStep is the smallest step of the clock that is reported. Slewing is slower.
const clockStep = 500 * time.Millisecond

// step returns the minimum by which the clock was set since the last call, or 0 if the clock was
// not set. The result is negative if the clock was set back. now was read from the database between
// asked and answered.
func (c *clockWatch) step(now, asked, answered time.Time) time.Duration {
	if !c.known {
		c.origin = asked
	}
	since := now.Sub(c.origin.Round(0)) // Round strips the monotonic reading
	low, high := since-answered.Sub(c.origin), since-asked.Sub(c.origin)
	forward, backward := low-c.high, c.low-high
	known := c.known
	c.known, c.low, c.high = true, low, high
	switch {
	case !known:
		return 0
	case forward >= clockStep:
		return forward
	case backward >= clockStep:
		return -backward
	}
	return 0
}

// clockStep records a step of the database clock.
func (e *Engine) clockStep(step time.Duration) {
	if step == 0 {
		return
	}
	direction := "forward"
	if step < 0 {
		direction = "backward"
		e.setBack.Store(true)
	}
	e.metrics.clockSteps.WithLabelValues(direction).Inc()
	e.log.Warn("the database clock was set", "direction", direction, "by", step.Abs().Round(time.Millisecond))
}
