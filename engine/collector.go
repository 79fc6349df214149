package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
)

// collector runs once a second. It reloads the namespaces and ends zombies: attempts whose node or
// worker is dead, or that exceeded their deadline. It also adopts attempts of this node that are in
// table running but not in memory, ends overdue cancels and continues removals.
type collector struct {
	engine  *Engine
	passes  int
	endNext int // number of the first pass that may end overdue cancels
	// unknown contains the attempts of this node that the last pass found in table running but not
	// in memory. If the next pass finds them again, it adopts them.
	unknown map[storage.AttemptRef]struct{}
	// expiring is true if the last pass ran out of time before it removed all expired processes.
	// expiry limits the time of a pass for them.
	expiring bool
	expiry   time.Duration
	// settling is true if the last pass ran out of time before it settled all large queues.
	settling bool
	// trimming is true if the last pass ran out of time before it removed all old histories.
	trimming bool
	// orphans is the position after which the next pass searches for orphaned failed attempts. It
	// is zero if the last search is complete.
	orphans storage.AttemptKey
	// sealing is true if the last pass did not add all audit entries to the hash chain.
	sealing bool
	// forgetting is true if the last pass ran out of time before it removed all old rows of kinds.
	forgetting bool

	suspects map[storage.AttemptRef]suspicion

	mu sync.Mutex
	// saving contains the zombies that are being saved. A save may wait for a row that another
	// session has locked.
	saving map[storage.AttemptRef]struct{}
}

func newCollector(e *Engine) *collector {
	return &collector{
		engine: e, unknown: map[storage.AttemptRef]struct{}{}, suspects: map[storage.AttemptRef]suspicion{},
		saving: map[storage.AttemptRef]struct{}{}, expiry: purgeTime,
	}
}

const (
	// maxZombieSaves is the maximum number of zombies that a node saves at the same time.
	maxZombieSaves = 2000
	// purgeTime is the time limit of removals in one pass.
	purgeTime = 500 * time.Millisecond
	// adoptAge is the minimum age of a row that is considered unknown. adoptDoubt applies instead
	// while lost claims are expected.
	adoptAge   = 5 * time.Second
	adoptDoubt = time.Second
)

// Run collects until ctx is cancelled.
func (c *collector) Run(ctx context.Context) error {
	pass := func() {
		if err := c.runOnce(ctx); err != nil && ctx.Err() == nil {
			c.engine.log.Warn("collector pass failed", "error", err)
		}
	}
	pass() // run the first pass immediately: the kinds of this node need the list of namespaces
	return Every(ctx, time.Second, pass)
}

func (c *collector) runOnce(ctx context.Context) error {
	c.passes++
	c.engine.parking.Expire(time.Now().Add(-parked.MaxTime))
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if c.engine.cfg.RequestsOnly {
		return c.readOnly(limit)
	}
	overdue, err := c.engine.reloadNamespaces(limit)
	errs := []error{err}
	if c.due("zombies", 1) { // after the reload, so that the newest zombie policy applies
		errs = append(errs, c.collect(limit))
	}
	if (overdue || err != nil) && c.passes >= c.endNext {
		if err := c.engine.endOverdueCancels(limit); err != nil {
			errs = append(errs, err)
			c.endNext = c.passes + 3 // another session has locked the process; each try delays its lane
		}
	}
	errs = append(errs, c.cancelRequested(limit))
	switch {
	case c.engine.expectsLostClaims():
		errs = append(errs, c.adopt(limit, adoptDoubt), c.cancelLost(limit))
	case c.passes%10 == 0 || len(c.unknown) > 0:
		errs = append(errs, c.adopt(limit, adoptAge))
	}
	if c.due("queues", 10) || c.settling {
		errs = append(errs, c.settleQueues(limit))
	}
	return errors.Join(append(errs, c.remove(limit))...)
}

// readOnly is a pass on a node that takes only requests. Other nodes do the rest.
func (c *collector) readOnly(ctx context.Context) error {
	_, err := c.engine.reloadNamespaces(ctx)
	return err
}

// A node also does the chores of other nodes, in case these are alive but cannot do them.
// backupFactor is how much less often it does so.
const backupFactor = 20

// due reports whether this node does a shared chore in this pass. The node that is responsible for
// the chore does it once every `every` passes.
func (c *collector) due(chore string, every int) bool {
	if !c.engine.peers.isResponsibleFor(chore) {
		every *= backupFactor
	}
	return c.passes%every == 0
}

// repairTimes corrects times that are in the future because the clock was set back. If setBack is
// true, this node has noticed the change of the clock, and repairTimes also corrects the times of
// retries.
func (c *collector) repairTimes(ctx context.Context, setBack bool) error {
	n, err := c.engine.store.RepairTimes(ctx, setBack)
	if n > 0 {
		c.engine.log.Warn("corrected times in the future: the database clock was set back", "rows", n)
	}
	if n > 0 && setBack {
		c.engine.wakeAll()
	}
	return err
}

// remove deletes data whose retention is over. It also does other maintenance that not every pass
// needs: it seals the audit log, corrects times in the future and maintains the change stream.
func (c *collector) remove(ctx context.Context) error {
	var errs []error
	if c.due("purge", 30) || c.engine.removals.Swap(false) {
		errs = append(errs, c.purge(ctx))
	}
	if c.due("audit", 5) || c.sealing {
		more, err := c.engine.store.SealAudit(ctx)
		c.sealing = more
		errs = append(errs, err)
	}
	if c.due("forget", 30) {
		errs = append(errs, c.engine.store.DeleteDeadNodes(ctx), c.engine.store.ForgetAudit(ctx),
			deleteBatches(ctx, c.engine.store.ForgetLeases))
	}
	if c.due("logins", 60) {
		errs = append(errs, deleteBatches(ctx, c.engine.store.ForgetLogins))
	}
	if c.due("kinds", 300) || c.forgetting {
		errs = append(errs, c.forgetOfKinds(ctx))
	}
	if setBack := c.engine.setBack.Swap(false); setBack || c.due("times", 60) {
		errs = append(errs, c.repairTimes(ctx, setBack))
	}
	if c.due("expire", 10) || c.expiring {
		errs = append(errs, c.expire(ctx))
	}
	if c.due("trim", 5) || c.trimming {
		errs = append(errs, c.trim(ctx))
	}
	if c.due("changes", c.engine.changesEvery()) {
		errs = append(errs, changes.Maintain(ctx, c.engine.store))
	}
	if c.due("orphans", 3600) || c.orphans != (storage.AttemptKey{}) {
		errs = append(errs, c.deleteOrphans(ctx))
	}
	return errors.Join(errs...)
}

func zombieRef(z *storage.Zombie) storage.AttemptRef {
	return storage.AttemptRef{
		Key: process.Key{Namespace: z.Namespace, ProcessID: z.ProcessID}, FencingToken: z.FencingToken,
	}
}

func (c *collector) begin(ref storage.AttemptRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.saving[ref]; ok {
		return false
	}
	c.saving[ref] = struct{}{}
	return true
}

// save ends the attempt of a zombie.
func (c *collector) save(ns *namespace, z storage.Zombie) {
	defer func() {
		c.mu.Lock()
		delete(c.saving, zombieRef(&z))
		c.mu.Unlock()
	}()
	e := c.engine
	ns = e.effectiveConfig(ns, z.Kind)
	d := decideZombie(z, ns.zombie, ns.retry, e.kinds[z.Kind])
	d.completion.Leased = z.WorkerID != ""
	d.completion.StepTimeout = ns.stepTimeout
	saved, err := e.store.SaveResult(&d.completion)
	if errors.Is(err, process.ErrFenced) {
		return // the attempt ended first
	}
	if err != nil {
		e.log.WarnContext(e.traces.of(&storage.Claim{Context: z.Context}), "cannot collect zombie", "namespace",
			z.Namespace, "process_id", z.ProcessID, "task_id", z.TaskID, "error", err)
		return
	}
	ns.metrics.zombies.Inc()
	e.traces.lost(&z, d, saved.Now)
	if stored := e.kinds[z.Kind].Stored; stored != nil && d.claim != nil {
		stored(d.claim, &d.completion, saved.Now)
	}
	e.log.WarnContext(e.traces.of(&storage.Claim{Context: z.Context}), "zombie collected", "namespace", z.Namespace,
		"process_id", z.ProcessID, "task_id", z.TaskID, "node_id", z.NodeID,
		"attempt", z.Attempt, "outcome", d.completion.Outcome)
	e.waiters.recheck(d.completion.Key)
	e.watchers.recheck(d.completion.Key)
	if saved.Deferred || saved.ResponseLost {
		e.wakeAll()
	}
}

// deleteBatches deletes old rows until none are left or the pass has no time left for them.
func deleteBatches(ctx context.Context, batch func(context.Context) (more bool, err error)) error {
	for began := time.Now(); time.Since(began) < purgeTime; {
		if more, err := batch(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// forgetOfKinds deletes old rows in the tables of kinds. These rows are kept for days, so it runs
// only every five minutes, to avoid load on an idle database.
func (c *collector) forgetOfKinds(ctx context.Context) error {
	c.forgetting = false
	var errs []error
	for _, k := range c.engine.kinds {
		for began := time.Now(); k.Forget != nil && time.Since(began) < purgeTime; {
			more, err := k.Forget(ctx)
			if errs = append(errs, err); err != nil || !more {
				break
			}
			c.forgetting = time.Since(began) >= purgeTime
		}
	}
	return errors.Join(errs...)
}

// expire removes processes whose retention is over, in batches, until the time limit of the pass.
// The next pass continues.
func (c *collector) expire(ctx context.Context) error {
	e := c.engine
	c.expiring = false
	retention, longest := map[string]storage.Retention{}, map[string]time.Duration{}
	for name, ns := range e.registry.all() {
		if ns.retention != (storage.Retention{}) {
			retention[name] = ns.retention
		}
		if d := ns.retention.Longest(); d > 0 {
			longest[name] = d
		}
	}
	for _, k := range e.kinds {
		for began, more := time.Now(), k.Expire != nil; more && time.Since(began) < c.expiry/2; {
			var err error
			if more, err = k.Expire(ctx, longest); err != nil {
				return err
			}
		}
	}
	for began := time.Now(); time.Since(began) < c.expiry; {
		expired, err := e.store.Expire(ctx, retention)
		if err != nil || len(expired) == 0 {
			return err
		}
		for name, n := range expired {
			if ns, known := e.registry.all()[name]; known {
				ns.metrics.expired.Add(float64(n))
			}
		}
		if _, err := e.store.PurgeRemoved(ctx); err != nil {
			return err
		}
		e.removals.Store(true)
	}
	c.expiring = true
	return nil
}

// settleQueues moves waiting tasks that a change of status has not moved yet, because the queue of
// the process is large.
func (c *collector) settleQueues(ctx context.Context) error {
	c.settling = false
	for began := time.Now(); time.Since(began) < purgeTime; {
		if n, err := c.engine.store.SettleQueues(ctx); err != nil || n == 0 {
			return err
		}
	}
	c.settling = true
	return nil
}

// trim removes the events and tasks that are older than a restart of their history, for at most
// purgeTime. The next pass continues.
func (c *collector) trim(ctx context.Context) error {
	c.trimming = false
	for began := time.Now(); time.Since(began) < purgeTime; {
		if n, err := c.engine.store.TrimHistories(ctx); err != nil || n == 0 {
			return err
		}
	}
	c.trimming = true
	return nil
}

// deleteOrphans deletes failed attempts whose task does not exist, for at most purgeTime. The next
// pass continues.
func (c *collector) deleteOrphans(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < purgeTime; {
		var err error
		c.orphans, err = c.engine.store.DeleteOrphanedAttempts(ctx, c.orphans)
		if err != nil || c.orphans == (storage.AttemptKey{}) {
			return err
		}
	}
	return nil
}

// purge continues removals. The first transaction of a removal deletes only a part of a long
// history, and a node may die before it deletes the rest.
func (c *collector) purge(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < purgeTime; {
		if n, err := c.engine.store.PurgeRemoved(ctx); err != nil || n == 0 {
			return err
		}
	}
	c.engine.removals.Store(true) // the next pass continues
	return nil
}

// adopt runs tasks of this node that are in table running but not in memory. It waits until two
// passes have found a task, because the response of its claim may still arrive.
func (c *collector) adopt(ctx context.Context, age time.Duration) error {
	e := c.engine
	claims, err := e.store.ListRunning(ctx, e.attempts.tokens(), age)
	if err != nil {
		return err
	}
	seen := map[storage.AttemptRef]struct{}{}
	lost := claims[:0]
	for _, cl := range claims {
		ref := attemptOf(&cl)
		seen[ref] = struct{}{}
		if _, twice := c.unknown[ref]; twice && !e.attempts.known(ref) {
			lost = append(lost, cl)
		}
	}
	c.unknown = seen
	e.adopt(lost)
	return nil
}
