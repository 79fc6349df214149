package engine

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// collector looks once a second for what dead nodes have left: tasks in running (zombies), and this node's own rows that nobody
// in memory knows. It also reads the namespaces anew, and goes on with removals.
type collector struct {
	engine *Engine
	passes int
	// unknown are tokens of this node that the last pass saw and nobody ran: seen twice, they are adopted.
	unknown map[int64]struct{}
}

func newCollector(e *Engine) *collector {
	return &collector{engine: e, unknown: map[int64]struct{}{}}
}

// zombieBatch is how many zombies one pass collects.
const zombieBatch = 200

// Run collects until ctx ends.
func (c *collector) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := c.runOnce(ctx); err != nil && ctx.Err() == nil {
			c.engine.log.Warn("collector", "error", err)
		}
	}
}

func (c *collector) runOnce(ctx context.Context) error {
	c.passes++
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	errs := []error{c.collect(limit), c.engine.reloadNamespaces(limit)}
	if c.passes%5 == 0 {
		errs = append(errs, c.adopt(limit))
	}
	if c.passes%30 == 0 {
		_, err := c.engine.store.PurgeRemoved(limit)
		errs = append(errs, err, c.engine.store.BuryNodes(limit))
	}
	return errors.Join(errs...)
}

// collect ends the attempts of dead nodes, each under its own token: a node that was only slow wins if it stores first.
func (c *collector) collect(ctx context.Context) error {
	e := c.engine
	if e.sinceBeat() > e.cfg.ZombieAfter*2/3 {
		return nil // this node is the one that is out of touch
	}
	began := time.Now()
	zombies, err := e.store.CollectZombies(ctx, e.cfg.ZombieAfter, e.cfg.ZombieMargin, zombieBatch)
	e.metrics.zombiesScanned(began)
	if err != nil {
		return err
	}
	for _, z := range zombies {
		ns, err := e.namespace(ctx, z.Namespace)
		if err != nil {
			return err
		}
		d := decideZombie(z, ns.zombie, ns.retry)
		d.completion.StepTimeout = ns.stepTimeout
		saved, err := e.store.SaveResult(&d.completion)
		if errors.Is(err, process.ErrFenced) {
			continue
		}
		if err != nil {
			return err
		}
		ns.metrics.zombies.Inc()
		e.log.Warn("zombie collected", "namespace", z.Namespace, "process_id", z.ProcessID, "task_id", z.TaskID, "node_id", z.NodeID,
			"attempt", z.Attempt, "outcome", d.completion.Outcome)
		e.waiters.recheck(d.completion.Key)
		if saved.Deferred {
			e.wakeAll()
		}
	}
	return nil
}

// adopt runs what stands in running for this node although nobody runs it, once it was seen so by two passes: a claim whose
// answer is still on its way is not among them.
func (c *collector) adopt(ctx context.Context) error {
	e := c.engine
	claims, err := e.store.ListRunning(ctx, e.attempts.tokens(), 5*time.Second)
	if err != nil {
		return err
	}
	seen := map[int64]struct{}{}
	lost := claims[:0]
	for _, cl := range claims {
		seen[cl.FencingToken] = struct{}{}
		if _, twice := c.unknown[cl.FencingToken]; twice && !e.attempts.known(cl.FencingToken) {
			lost = append(lost, cl)
		}
	}
	c.unknown = seen
	e.adopt(lost)
	return nil
}
