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

	"github.com/progressor-engine/progressor/internal/warm"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Engine is one node: it serves requests and runs tasks. Several engines share one database.
type Engine struct {
	cfg           Config
	log           *slog.Logger
	store         *storage.Store
	metrics       *engineMetrics
	registry      registry
	kinds         map[string]Kind
	waiters       *waiters
	watchers      *watchers
	jobEvents     *eventWatchers
	minuteStats   *minuteStats
	sampleHistory *sampleHistory
	attempts      *attempts
	calls         *callPoller
	timers        *timerPoller
	pulls         *pulls
	leased        leased
	polling       chan struct{} // holds an entry for each poll that is in the database
	workers       *workers
	messages      *deliverer
	peers         *peers
	backlog       backlogResults
	runners       *warm.Goroutines
	traces        *traces // nil: tracing is off

	nodeSlots *nodeSlots

	inFlight atomic.Int64
	unknown  share // of namespaces that this node does not know
	draining atomic.Bool
	drained  chan struct{} // closed when the drain begins

	drainOnce   sync.Once
	beating     sync.Mutex   // held during a heartbeat: two at once would both register a lost node
	lastBeat    atomic.Int64 // when the last successful heartbeat was sent, in nanoseconds since started
	started     time.Time
	active      activeCounter
	doubt       atomic.Int64  // until when the collector looks out for claims whose answer was lost, likewise
	setBack     atomic.Bool   // the database's clock was set back since the collector looked
	generations chan struct{} // receives when the database has failed over
	removals    atomic.Bool   // a process was removed since the collector looked: its history may be left

	doing     context.Context // of attempts; ends when the drain is over
	stopDoing context.CancelFunc
}

// New registers the node and reads the namespaces. Run must follow.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.setDefaults()
	e := &Engine{cfg: cfg, log: cfg.Logger, unknown: share{holder: "namespaces that it does not know"}, store: cfg.Store, started: time.Now(), attempts: newAttempts(), drained: make(chan struct{}), generations: make(chan struct{}, 1), kinds: map[string]Kind{}, backlog: backlogResults{pending: cfg.Store.Pending},
		leased: leased{byToken: map[storage.AttemptRef]*heldLease{}}, polling: make(chan struct{}, pollsAtOnce)}
	e.nodeSlots = &nodeSlots{max: cfg.MaxRunning}
	e.doing, e.stopDoing = context.WithCancel(context.Background())
	e.runners, e.traces = warm.New(), newTraces(cfg.Traces)
	e.metrics = newEngineMetrics(cfg.Registerer, e)
	e.waiters, e.watchers, e.minuteStats = newWaiters(e), newWatchers(e), newMinuteStats(e.started)
	e.sampleHistory = newSampleHistory(e)
	e.jobEvents, e.peers = newEventWatchers(e), newPeers(e)
	e.calls, e.timers, e.pulls, e.workers = newCallPoller(e), newTimerPoller(e), newPulls(e), newWorkers(e)
	e.store.OnAdopt(e.adopt)
	e.store.OnNewGeneration(func() { signal(e.generations) })
	e.store.OnEventMode(e.eventMode)
	e.messages = newDeliverer(e)
	e.store.OnMessages(e.messages.deliverStored)
	sent := e.age()
	if _, err := e.store.RegisterNode(ctx, cfg.Address, cfg.Version); err != nil {
		return nil, err
	}
	e.lastBeat.Store(int64(sent))
	if _, err := e.reloadNamespaces(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Run takes and does tasks until ctx ends, or an operator asks the node to drain (it takes nothing new then, and waits for ctx). At
// the end it drains: it takes nothing new, lets what runs come to its end, gives back what has not after DrainTimeout, and returns nil.
func (e *Engine) Run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	var takers, keepers errgroup.Group
	for _, run := range []func(context.Context) error{
		e.calls.Run, e.timers.Run, e.pulls.Run, e.workers.Run, e.messages.Run, e.peers.Run, newCollector(e).Run, e.forgetKeys,
	} {
		takers.Go(func() error { return run(taking) })
	}
	for _, k := range e.kinds {
		if k.Run != nil {
			takers.Go(func() error { return k.Run(taking) })
		}
	}
	beat := newHeartbeater(e)
	for _, run := range []func(context.Context) error{beat.Run, beat.watch, e.waiters.Run, e.watchers.Run, e.jobEvents.Run, e.sampleHistory.Run, newFailovers(e).Run} {
		keepers.Go(func() error { return run(keeping) })
	}
	select {
	case <-ctx.Done():
	case <-e.drained: // an operator has asked for it
		stopTaking()
		e.awaitIdle(ctx)
		<-ctx.Done()
	}
	e.beginDrain()
	err := takers.Wait()
	e.drain()
	e.messages.finish()
	stopKeeping()
	err = errors.Join(err, keepers.Wait())
	e.waiters.close()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if deleteErr := e.store.DeleteNode(end); deleteErr != nil {
		e.log.Warn("node row stays behind", "error", deleteErr)
	}
	return err
}

// beginDrain has the node take nothing new. What runs comes to its end.
func (e *Engine) beginDrain() {
	e.drainOnce.Do(func() {
		e.log.Info("draining", "running", e.attempts.count())
		e.draining.Store(true)
		close(e.drained)
		e.active.refuse()
	})
}

// awaitIdle tells the log when nothing runs any more on a node that was asked to drain.
func (e *Engine) awaitIdle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.active.idle():
		e.log.Info("drained: nothing runs on this node any more, and it can be stopped")
	}
}

const (
	// drainGrace is how long attempts may take to end once their contexts have: a task that its processor let go is given back
	// by its attempt, and no other node begins with it before.
	drainGrace = time.Second
	// storeTimeout bounds what a node that stops waits for the database.
	storeTimeout = 5 * time.Second
)

// drain waits for what runs, then gives the rest back to other nodes. A late result finds its token gone.
func (e *Engine) drain() {
	defer e.active.close()
	defer e.stopDoing()
	select {
	case <-e.active.idle():
		return
	case <-time.After(e.cfg.DrainTimeout):
	}
	e.log.Warn("drain timeout: giving tasks back", "tasks", e.attempts.count())
	e.stopDoing()
	select {
	case <-e.active.idle():
		return
	case <-time.After(drainGrace):
	}
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		e.giveAllBack()
	}()
	select {
	case <-stored:
	case <-time.After(storeTimeout):
		e.log.Warn("tasks not given back: the database does not answer, and they become zombies", "tasks", e.attempts.count())
	}
}

// giveAllBack gives the tasks of attempts back that do not end.
func (e *Engine) giveAllBack() {
	var group sync.WaitGroup
	for _, c := range e.attempts.claims() {
		group.Go(func() {
			completion := releaseCompletion(c, e.kinds[c.Kind])
			_, err := e.store.SaveResult(&completion)
			if err != nil && !errors.Is(err, process.ErrFenced) {
				e.log.WarnContext(e.traces.of(c), "task not given back: it becomes a zombie", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID, "error", err)
			}
		})
	}
	group.Wait()
}

// Ready returns nil if the node takes requests, or an error that says why it does not.
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

// wakeAll makes the pollers look.
func (e *Engine) wakeAll() {
	e.calls.wake()
	e.timers.wake()
}

// doubtTime is how long the collector looks out for claims of this node after a scan whose answer was lost: as long as that
// statement may still run, and two passes.
const doubtTime = scanTimeout + 3*time.Second

// doubtClaims has the collector look out for claims that this node may hold without knowing.
func (e *Engine) doubtClaims() { e.doubt.Store(int64(e.age() + doubtTime)) }

func (e *Engine) doubts() bool { return int64(e.age()) < e.doubt.Load() }
