package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Engine is one node: it serves requests and runs tasks. Several engines share one database.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	store    *storage.Store
	metrics  *engineMetrics
	registry registry
	waiters  *waiters
	attempts *attempts
	calls    *callPoller
	timers   *timerPoller

	inFlight atomic.Int64
	draining atomic.Bool
	lastBeat atomic.Int64 // when the node last beat, in nanoseconds since started
	started  time.Time
	running  sync.WaitGroup // claims that this node runs

	doing     context.Context // of attempts; ends when the drain is over
	stopDoing context.CancelFunc
}

// New registers the node and reads the namespaces. Run must follow.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.setDefaults()
	e := &Engine{cfg: cfg, log: cfg.Logger, store: cfg.Store, started: time.Now(), attempts: newAttempts()}
	e.doing, e.stopDoing = context.WithCancel(context.Background())
	e.metrics = newEngineMetrics(cfg.Registerer, e)
	e.waiters = newWaiters(e)
	e.calls, e.timers = newCallPoller(e), newTimerPoller(e)
	e.store.OnAdopt(e.adopt)
	if _, err := e.store.RegisterNode(ctx, cfg.Address, cfg.Version); err != nil {
		return nil, err
	}
	e.beaten()
	if err := e.reloadNamespaces(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Run takes and does tasks until ctx ends. Then it drains: it takes nothing new, lets what runs come to its end, gives back what
// has not after DrainTimeout, and returns nil.
func (e *Engine) Run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	var takers, keepers errgroup.Group
	for _, run := range []func(context.Context) error{e.calls.Run, e.timers.Run, newCollector(e).Run} {
		takers.Go(func() error { return run(taking) })
	}
	for _, run := range []func(context.Context) error{newHeart(e).Run, e.waiters.Run} {
		keepers.Go(func() error { return run(keeping) })
	}
	<-ctx.Done()
	e.log.Info("draining", "running", e.attempts.count())
	e.draining.Store(true)
	err := takers.Wait()
	e.drain()
	stopKeeping()
	err = errors.Join(err, keepers.Wait())
	e.waiters.close()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if deleteErr := e.store.DeleteNode(end); deleteErr != nil {
		e.log.Warn("node row stays behind", "error", deleteErr)
	}
	return err
}

// drain waits for what runs, then gives the rest back to other nodes. A late result finds its token gone.
func (e *Engine) drain() {
	done := make(chan struct{})
	go func() { e.running.Wait(); close(done) }()
	select {
	case <-done:
		e.stopDoing()
		return
	case <-time.After(e.cfg.DrainTimeout):
	}
	claims := e.attempts.claims()
	e.log.Warn("drain timeout: giving tasks back", "tasks", len(claims))
	var group errgroup.Group
	for _, c := range claims {
		group.Go(func() error {
			completion := giveBack(c)
			_, err := e.store.SaveResult(&completion)
			if err != nil && !errors.Is(err, process.ErrFenced) {
				e.log.Warn("task not given back: it becomes a zombie", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait()
	e.stopDoing()
}

// Ready tells why the node should not be sent requests; nil: it may.
func (e *Engine) Ready() error {
	if e.draining.Load() {
		return errors.New("draining")
	}
	if since := e.sinceBeat(); since > e.cfg.ZombieAfter*2/3 {
		return fmt.Errorf("no heartbeat to the database for %s", since.Round(time.Millisecond))
	}
	return nil
}

func (e *Engine) beaten() { e.lastBeat.Store(int64(time.Since(e.started))) }

func (e *Engine) sinceBeat() time.Duration {
	return time.Since(e.started) - time.Duration(e.lastBeat.Load())
}

// admit counts a request in, or refuses it: nothing is stored that this node cannot hold.
func (e *Engine) admit() error {
	if e.draining.Load() {
		return fmt.Errorf("the node is draining: %w", process.ErrUnavailable)
	}
	if e.inFlight.Add(1) > int64(e.cfg.MaxInFlight) {
		e.inFlight.Add(-1)
		e.metrics.refused.WithLabelValues("in_flight").Inc()
		return fmt.Errorf("%d requests in flight on this node: %w", e.cfg.MaxInFlight, process.ErrOverloaded)
	}
	return nil
}

func (e *Engine) leave() { e.inFlight.Add(-1) }

// wakeAll makes the pollers look.
func (e *Engine) wakeAll() {
	if e.calls != nil {
		e.calls.wake()
		e.timers.wake()
	}
}
