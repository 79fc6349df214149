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
	expires       time.Time // expiry of its lease
	leaseSince    time.Time // when this value of expires was first seen
	overdueSince  time.Time // zero if its deadline has not passed
	lastSuspected int       // the last pass that found it
}

// collect ends the attempts of dead nodes and silent workers, and attempts that exceeded their
// deadline, each by its own fencing token. If a slow node stores its result first, that result is
// kept.
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
// took too long. The database clock raises a suspicion, and the clock of this node confirms it, so
// that a step of the database clock does not turn live attempts into zombies. One of these must be
// true:
//
//   - The lease of a worker has expired, and the worker has not renewed it within Suspect.Renewal.
//   - The attempt has run longer than its timeout since this node began it or leased it to a
//     worker. If this node did neither, the time counts from when the attempt first looked overdue.
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
func (c *collector) margin(s storage.Suspect) time.Duration {
	if s.Leased { // only the collector ends such an attempt
		return 0
	}
	return c.engine.cfg.ZombieMargin
}

func (c *collector) isSaving(ref storage.AttemptRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, saving := c.saving[ref]
	return saving
}

// savingCount returns how many zombies are being saved.
func (c *collector) savingCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.saving)
}

// cancelRequested cancels the attempts of this node whose cancellation a message, or a request to
// another node, has requested. See Kind.CancelsAttempts.
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

// cancelLost cancels the attempts of this node that no longer hold their process, because another
// attempt replaced them or a database failover lost their rows. It also finds claims that were made
// before a gap between heartbeats but whose response arrived after the gap.
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
