package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// maxSuspects is the maximum number of running rows that one pass checks.
const maxSuspects = 10_000

// suspicion records how long a running row has looked like a zombie, by the clock of this node.
type suspicion struct {
	expires       time.Time // when the lease of the row expires, by the clock of the database
	leaseSince    time.Time // when this node first saw this value of expires
	overdueSince  time.Time // when the row first looked overdue, or zero if it does not
	lastSuspected int       // the last pass that found the row
}

// collect ends the attempts of dead nodes and silent workers, and attempts that exceeded their
// deadline. It ends an attempt by its fencing token. If a slow node stores the result of the
// attempt first, that result is kept.
func (c *collector) collect(ctx context.Context) error {
	e := c.engine
	if !e.isConnected() { // a disconnected node does not know which other nodes are alive
		clear(c.suspects)
		return nil
	}
	began := time.Now()
	defer e.metrics.zombiesScanned(began)
	suspects, err := e.store.ListSuspects(ctx, e.cfg.ZombieMargin, maxSuspects)
	if err != nil {
		return err
	}
	var due []storage.Suspect
	overdue := map[storage.AttemptRef]bool{}
	room := maxZombieSaves - c.savingCount()
	for _, s := range suspects {
		zombie, late := c.suspect(s, began)
		if zombie && len(due) < room && !c.isSaving(s.AttemptRef) {
			due = append(due, s)
			overdue[s.AttemptRef] = late
		}
	}
	for ref, s := range c.suspects {
		if s.lastSuspected != c.passes {
			delete(c.suspects, ref)
		}
	}
	if len(due) == 0 {
		return nil
	}
	zombies, err := e.store.ReadZombies(ctx, due, e.cfg.ZombieMargin)
	if err != nil {
		return err
	}
	for _, z := range zombies {
		z.TimedOut = z.TimedOut && (z.WorkerID == "" || overdue[zombieRef(&z)])
		ns, err := e.namespace(ctx, z.Namespace)
		if errors.Is(err, process.ErrNamespaceDeleting) || errors.Is(err, process.ErrNamespaceNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if c.begin(zombieRef(&z)) {
			go c.save(ns, z)
		}
	}
	return nil
}

// suspect reports whether a running row is a zombie, and whether the reason is that its attempt
// took too long. If its node is dead, an attempt that is not leased is always a zombie. For other
// attempts, the clock of this node must confirm what the database clock suggests. Otherwise, a jump
// of the database clock would turn live attempts into zombies. Such an attempt is a zombie if one
// of these is true:
//
//   - The lease of a worker has expired, and the worker has not renewed it within Suspect.Renewal.
//   - The attempt has run longer than its timeout since this node began it or leased it to a
//     worker. If another node did that, the time counts from when the attempt first looked overdue
//     to this node.
func (c *collector) suspect(s storage.Suspect, now time.Time) (zombie, late bool) {
	if s.NodeDead && !s.Leased {
		return true, false
	}
	known, seen := c.suspects[s.AttemptRef]
	if !seen || !known.expires.Equal(s.Expires) {
		known.expires, known.leaseSince = s.Expires, now
	}
	switch {
	case !s.Overdue:
		known.overdueSince = time.Time{}
	case known.overdueSince.IsZero():
		known.overdueSince = now
	}
	known.lastSuspected = c.passes
	c.suspects[s.AttemptRef] = known
	late = s.Overdue && now.Sub(c.begunAt(s.AttemptRef, known.overdueSince)) >= s.Timeout+c.margin(s)
	silent := s.Leased && s.Expired && now.Sub(known.leaseSince) >= s.Renewal
	return late || silent, late
}

// begunAt returns when this node began an attempt or leased it to a worker. It returns fallback if
// this node did neither.
func (c *collector) begunAt(ref storage.AttemptRef, fallback time.Time) time.Time {
	if at, ok := c.engine.attempts.begunAt(ref); ok {
		return at
	}
	if at, ok := c.engine.workers.LeasedSince(ref); ok {
		return at
	}
	return fallback
}

// margin returns the time by which an attempt may exceed its timeout before the collector ends it.
// It leaves time for the node of the attempt, which usually ends the attempt itself.
func (c *collector) margin(s storage.Suspect) time.Duration {
	if s.Leased { // only the collector ends the attempts of workers
		return 0
	}
	return c.engine.cfg.ZombieMargin
}

// isSaving reports whether the end of an attempt is being saved.
func (c *collector) isSaving(ref storage.AttemptRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, saving := c.saving[ref]
	return saving
}

// savingCount returns how many attempts have an end that is being saved.
func (c *collector) savingCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.saving)
}

// cancelRequested cancels the attempts of this node that have a cancel request from a message, or
// from a request to another node. See Kind.CancelsAttempts.
func (c *collector) cancelRequested(ctx context.Context) error {
	e := c.engine
	if !e.attempts.cancellable() {
		return nil
	}
	cancelled, err := e.store.CancelledAttempts(ctx)
	for _, ref := range cancelled {
		e.attempts.cancelAttempt(ref, errCancelRequested)
	}
	return err
}

// cancelLost cancels the attempts of this node that no longer hold their process: their row in
// table running is gone, because another node has ended them, or because a database failover lost
// the row. Some of these attempts were claimed before a gap between the heartbeats of this node,
// but the response to the claim arrived after the gap.
func (c *collector) cancelLost(ctx context.Context) error {
	e := c.engine
	attempts := e.attempts.refs()
	if len(attempts) == 0 {
		return nil
	}
	missing, err := e.store.MissingAttempts(ctx, attempts)
	if err != nil {
		return err
	}
	lost := make([]storage.AttemptRef, len(missing))
	for n, at := range missing {
		lost[n] = attempts[at]
	}
	if n := e.attempts.cancelRefs(lost, errNoHeartbeat); n > 0 {
		e.metrics.fenced.Add(float64(n))
		e.log.Warn("attempts cancelled: they no longer hold their process", "attempts", n)
	}
	return nil
}
