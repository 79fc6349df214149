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

	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/internal/warm"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Engine is one node: it serves requests and runs tasks. Several engines share one database.
type Engine struct {
	services
	liveness
	lifecycle
	cfg       Config
	log       *slog.Logger
	store     *storage.Store
	metrics   *engineMetrics
	registry  registry
	kinds     map[string]Kind
	workers   Workers
	attempts  *attempts
	backlog   backlogResults
	nodeSlots *nodeSlots
	runners   *warm.Goroutines
	traces    *traces // nil if tracing is off
	inFlight  inFlight
	unknown   *requestShares // requests for namespaces that this node does not know
	deletions knownDeletions
	labels    namespaceLabels
	responses *budget.Budget // limits the memory for large responses of processors
}

// services are the parts of an engine that work in the background.
type services struct {
	waiters     *waiters
	watchers    *watchers
	minuteStats *minuteStats
	calls       *callPoller
	timers      *timerPoller
	messages    *deliverer
	peers       *peers
	notices     *notices
	parking     *parking
}

// liveness contains the state of an engine's heartbeats, and events of the database that can leave
// tasks without a node that runs them.
type liveness struct {
	started     time.Time
	beating     sync.Mutex    // held during a heartbeat; two concurrent ones would register a lost node twice
	lastBeat    atomic.Int64  // when the last successful heartbeat was sent, in nanoseconds since started
	doubtUntil  atomic.Int64  // time until which the collector searches for lost claims, in nanoseconds since started
	setBack     atomic.Bool   // the database clock was set back since the collector last ran
	removals    atomic.Bool   // a process was removed since the collector last ran; its history may remain
	generations chan struct{} // receives a value after a database failover
}

// lifecycle contains the state for draining a node.
type lifecycle struct {
	active    activeCounter
	draining  atomic.Bool
	drainOnce sync.Once
	drained   chan struct{}   // closed when the drain begins
	doing     context.Context // context of attempts; cancelled when the drain ends
	stopDoing context.CancelFunc
}

// New registers the node and reads the namespaces. The caller must then call Run.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.setDefaults()
	if cfg.Secrets == nil {
		vault, err := secrets.New(cfg.Store.Secrets(), nil)
		if err != nil {
			return nil, err
		}
		cfg.Secrets = vault
	}
	kinds := map[string]Kind{}
	e := &Engine{
		cfg: cfg, log: cfg.Logger, store: cfg.Store, kinds: kinds, attempts: newAttempts(kinds),
		unknown:   newRequestShares("namespaces that it does not know"),
		backlog:   backlogResults{pending: cfg.Store.Pending, aside: cfg.Store.PutAside},
		workers:   noWorkers{},
		liveness:  liveness{started: time.Now(), generations: make(chan struct{}, 1)},
		lifecycle: lifecycle{drained: make(chan struct{})},
		responses: budget.New(responseBudget),
	}
	e.nodeSlots, e.notices = &nodeSlots{max: cfg.MaxRunning}, newNotices(e)
	e.parking = newParking(parked.MaxValues)
	e.doing, e.stopDoing = context.WithCancel(context.Background())
	e.runners, e.traces = warm.New(), newTraces(cfg.Traces, kinds)
	e.metrics = newEngineMetrics(cfg.Registerer, e)
	e.waiters, e.watchers, e.minuteStats = newWaiters(e), newWatchers(e), newMinuteStats(e.started)
	e.peers = newPeers(e)
	e.calls, e.timers = newCallPoller(e), newTimerPoller(e)
	e.store.OnAdopt(e.adopt)
	e.store.OnNewGeneration(func() {
		e.parking.Clear()
		signal(e.generations)
	})
	e.store.OnEventMode(e.eventMode)
	e.messages = newDeliverer(e)
	e.store.OnMessages(e.messages.deliverStored)
	sent := e.age()
	if _, err := e.store.RegisterNode(ctx, e.nodeDescription()); err != nil {
		return nil, err
	}
	e.lastBeat.Store(int64(sent))
	if _, err := e.reloadNamespaces(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Run runs tasks until ctx is cancelled. If an operator drains the node, Run stops taking new tasks
// and waits for ctx.
//
// Before Run returns, it drains the node: it takes no new tasks, waits up to DrainTimeout for
// running attempts, and releases the rest.
func (e *Engine) Run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	var takers, keepers errgroup.Group
	for _, run := range e.takers() {
		takers.Go(func() error { return run(taking) })
	}
	for _, k := range e.kinds {
		if k.Run != nil {
			takers.Go(func() error { return k.Run(taking) })
		}
	}
	beat := newHeartbeater(e)
	for _, run := range []func(context.Context) error{
		beat.Run, beat.watch, e.waiters.Run, e.watchers.Run, newFailovers(e).Run, e.notices.Run,
	} {
		keepers.Go(func() error { return run(keeping) })
	}
	select {
	case <-ctx.Done():
	case <-e.drained: // an operator requested a drain
		stopTaking()
		e.awaitIdle(ctx)
		<-ctx.Done()
	}
	e.beginDrain()
	err := takers.Wait()
	e.drain()
	e.parking.Close(drainGrace)
	e.messages.finish()
	stopKeeping()
	err = errors.Join(err, keepers.Wait())
	e.waiters.close()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if deleteErr := e.store.DeleteNode(end); deleteErr != nil {
		e.log.Warn("cannot delete the node row", "error", deleteErr)
	}
	return err
}

// takers returns the loops that run until the node drains: those that take new tasks, and the
// maintenance of the database.
func (e *Engine) takers() []func(context.Context) error {
	takers := []func(context.Context) error{
		e.workers.Run, e.peers.Run, newCollector(e).Run, e.listen, e.mergeMetadataIndex,
	}
	if e.cfg.RequestsOnly {
		return takers
	}
	return append(takers, e.calls.Run, e.timers.Run, e.messages.Run, e.forgetKeys, newNamespaceRemover(e).Run)
}

// RequestsOnly reports whether this node accepts requests but runs no tasks.
func (e *Engine) RequestsOnly() bool { return e.cfg.RequestsOnly }

func (e *Engine) nodeDescription() storage.NodeDescription {
	return storage.NodeDescription{Address: e.cfg.Address, Version: e.cfg.Version, RequestsOnly: e.cfg.RequestsOnly}
}

// beginDrain stops taking new work. Running attempts continue.
func (e *Engine) beginDrain() {
	e.drainOnce.Do(func() {
		e.log.Info("draining", "running", e.attempts.count())
		e.draining.Store(true)
		close(e.drained)
		e.active.refuse()
	})
}

// awaitIdle logs when a node that is draining has become idle.
func (e *Engine) awaitIdle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.active.idle():
		e.log.Info("drained: no task is running on this node; it can be stopped")
	}
}

const (
	// drainGrace is how long an attempt may take to return after its context was cancelled. An
	// attempt that returns in time releases its own task, so that no other node starts the task
	// before the attempt has returned.
	drainGrace = time.Second
	// storeTimeout limits short statements, and how long a stopping node waits for the database.
	storeTimeout = 5 * time.Second
)

// drain waits for running attempts, then releases the remaining tasks to other nodes. Results that
// arrive later are rejected because their fencing token is no longer valid.
func (e *Engine) drain() {
	defer e.active.close()
	defer e.stopDoing()
	select {
	case <-e.active.idle():
		return
	case <-time.After(e.cfg.DrainTimeout):
	}
	e.log.Warn("drain timeout: releasing tasks", "tasks", e.attempts.count())
	e.stopDoing()
	select {
	case <-e.active.idle():
		return
	case <-time.After(drainGrace):
	}
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		e.releaseAll()
	}()
	select {
	case <-stored:
	case <-time.After(storeTimeout):
		e.log.Warn("tasks not released, because the database does not respond; they become zombies", "tasks",
			e.attempts.count())
	}
}

// releaseAll releases the tasks of all attempts that are still running.
func (e *Engine) releaseAll() {
	var group sync.WaitGroup
	for _, c := range e.attempts.claims() {
		group.Go(func() {
			completion := releaseCompletion(End{Claim: c}, e.kinds[c.Kind])
			_, err := e.store.SaveResult(&completion)
			if err != nil && !errors.Is(err, process.ErrFenced) {
				e.log.WarnContext(e.traces.of(c), "task not released: it becomes a zombie", "namespace", c.Namespace,
					"process_id", c.ProcessID, "task_id", c.TaskID, "error", err)
			}
		})
	}
	group.Wait()
}

// Ready returns nil if the node accepts requests, or an error with the reason if it does not.
func (e *Engine) Ready() error {
	if e.draining.Load() {
		return errors.New("draining")
	}
	if !e.isConnected() {
		return fmt.Errorf("no heartbeat to the database for %s", e.sinceBeat().Round(time.Millisecond))
	}
	return e.store.Ready()
}

func (e *Engine) age() time.Duration { return time.Since(e.started) }

var errDraining = fmt.Errorf("%w (%w)", process.ErrDraining, process.ErrUnavailable)

// wakeAll wakes the pollers.
func (e *Engine) wakeAll() {
	e.calls.wake()
	e.timers.wake()
}

// lostClaimTime is how long the collector searches for lost claims of this node after the response
// of a scan was lost: as long as the statement may still run, plus two collector passes.
const lostClaimTime = scanTimeout + 3*time.Second

// expectLostClaims makes the collector search for claims that this node may hold without knowing
// it.
func (e *Engine) expectLostClaims() { e.doubtUntil.Store(int64(e.age() + lostClaimTime)) }

func (e *Engine) expectsLostClaims() bool { return int64(e.age()) < e.doubtUntil.Load() }
