package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// deliverer delivers messages to their targets. Messages in results of this node are delivered
// right after the commit. A scan finds messages of dead nodes and of SQL functions. The deliverer
// stores only targets; the store then takes all messages for a target. Duplicate or late deliveries
// are no-ops.
type deliverer struct {
	engine *Engine
	woken  chan struct{}
	deaf   atomic.Bool   // NOTIFY of SQL functions does not work, so scan often
	active activeCounter // deliveries in progress

	mu sync.Mutex
	// under has the targets with a delivery in progress, and whether more messages have arrived
	// since.
	under       map[process.Key]bool
	resting     map[process.Key]bool // targets that cannot take messages now and are retried later
	after       map[string]string    // where the scan continues in each namespace; used only by the scan
	lowPriority lowPriorityQueue
}

const (
	// messageAge is the minimum age of a message that other nodes deliver. The node that stored it
	// delivers within milliseconds.
	messageAge = time.Second
	// messagePoll is the interval between scans for messages of SQL functions while NOTIFY does not
	// work.
	messagePoll = 200 * time.Millisecond
	// messageBatch is how many targets per namespace one scan finds.
	messageBatch = 64
	// scanWait is how long a scan waits for the deliveries that it started. A locked target must
	// not delay the others longer.
	scanWait = 50 * time.Millisecond
	// fullRetry is the interval between deliveries to a process with too many waiting tasks.
	fullRetry = 200 * time.Millisecond
	// failedRetry is the interval between deliveries to a process after a failed one, for example
	// because its row is locked.
	failedRetry = time.Second
	// maxDeliveries is how many targets are in progress on a node. The scan finds the others.
	maxDeliveries = 4096
)

func newDeliverer(e *Engine) *deliverer {
	d := &deliverer{
		engine: e, woken: make(chan struct{}, 1), under: map[process.Key]bool{}, resting: map[process.Key]bool{},
		after: map[string]string{}, lowPriority: lowPriorityQueue{waits: map[process.Key]struct{}{}},
	}
	d.deaf.Store(true)
	return d
}

// deliver starts deliveries to these processes and does not block.
func (d *deliverer) deliver(targets []process.Key) {
	for _, k := range targets {
		if d.take(k) {
			go d.run(k)
		}
	}
}

// take marks a target as in progress. It returns false if a delivery is already in progress and
// will continue, or if the target must wait for the scan or its retry.
func (d *deliverer) take(k process.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lowPriority.waits, k)
	if _, under := d.under[k]; under {
		d.under[k] = true
		return false
	}
	if d.resting[k] || len(d.under) >= maxDeliveries || !d.active.join() {
		return false
	}
	d.under[k] = false
	return true
}

// run delivers until no message for the target is left. It returns the number of delivered
// messages.
func (d *deliverer) run(k process.Key) (delivered int) {
	defer d.active.leave()
	e := d.engine
	for again := true; again; {
		deliveries, more, err := d.next(k)
		if err != nil {
			d.rest(k, failedRetry)
			e.log.Warn("cannot deliver messages, will retry", "namespace", k.Namespace, "process_id", k.ProcessID,
				"error", err)
		}
		d.delivered(k, deliveries)
		if len(deliveries) > 0 && deliveries[0].Outcome != storage.TargetFull {
			delivered += len(deliveries)
		}
		d.mu.Lock()
		again = err == nil && (more || d.under[k])
		if again {
			d.under[k] = false
		} else {
			delete(d.under, k)
		}
		d.mu.Unlock()
	}
	return delivered
}

// next delivers the next messages for a target.
func (d *deliverer) next(k process.Key) (deliveries []storage.Delivery, more bool, err error) {
	if err := d.engine.beforeStarts(k); err != nil {
		return nil, false, err
	}
	return d.engine.store.DeliverMessages(k)
}

// delivered counts deliveries and wakes the pollers for the tasks that they created.
func (d *deliverer) delivered(k process.Key, deliveries []storage.Delivery) {
	e := d.engine
	namespace, pulled := "", false
	if ns, known := e.registry.all()[k.Namespace]; known {
		namespace, pulled = k.Namespace, ns.pulled()
	}
	calls, timers, noted := false, false, false
	for _, m := range deliveries {
		if m.Overdue {
			e.endOverdueCancel(k)
		}
		if m.Outcome == storage.TargetFull {
			d.rest(k, fullRetry)
			continue
		}
		e.metrics.messages.WithLabelValues(e.NamespaceLabel(namespace), string(m.Kind), m.Outcome).Inc()
		made := m.Outcome == storage.Delivered
		calls, timers = calls || made && !m.Later, timers || made && m.Later
		noted = noted || m.Outcome == storage.MemberRecorded || made && m.Kind == storage.MessageCancel
	}
	if noted {
		e.wakeKinds()
	}
	if calls && pulled {
		e.workers.Wake()
	}
	if calls {
		e.calls.wake()
	}
	if timers {
		e.timers.alarm(k.Namespace, 0)
	}
}

// rest delivers to a target after a wait.
func (d *deliverer) rest(k process.Key, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resting[k] || len(d.resting) >= maxDeliveries {
		return // the scan finds the target
	}
	d.resting[k] = true
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		delete(d.resting, k)
		d.mu.Unlock()
		d.deliver([]process.Key{k})
	})
}

// listening records whether NOTIFY of SQL functions works, and looks for missed messages.
func (d *deliverer) listening(up bool) {
	d.deaf.Store(!up)
	signal(d.woken)
}

// Run scans for undelivered messages until ctx is cancelled.
func (d *deliverer) Run(ctx context.Context) error {
	rest := 3 * d.engine.cfg.ScanInterval
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.woken:
		case <-sleep.C:
		}
		found, err := d.scan(ctx)
		wait := rest
		if d.deaf.Load() {
			wait = min(rest, messagePoll)
		}
		if failures++; err == nil {
			failures = 0
		} else {
			wait = min(rest, pauseAfter(failures))
		}
		if found {
			wait = 0
		}
		sleep.Reset(wait)
	}
}

// scan starts the deliveries of a batch and waits for them for a short time. found reports that
// there may be more.
func (d *deliverer) scan(ctx context.Context) (found bool, err error) {
	e := d.engine
	if !e.isConnected() {
		return false, nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	targets, found, err := e.store.SearchMessages(limit, d.age(), messageBatch, d.after)
	if err != nil {
		e.scanFailed(ctx, "messages", err)
		return false, err
	}
	ended := make(chan int, len(targets))
	begun := 0
	for _, k := range targets {
		if d.take(k) {
			begun++
			go func() { ended <- d.run(k) }()
		}
	}
	wait := time.NewTimer(scanWait)
	defer wait.Stop()
	for range begun {
		select {
		case n := <-ended:
			found = found || n > 0
		case <-wait.C:
			return true, nil
		}
	}
	return found, nil
}

// finish waits for the deliveries of a stopping node. Other nodes deliver the rest.
func (d *deliverer) finish() {
	defer d.active.close()
	select {
	case <-d.active.idle():
	case <-time.After(storeTimeout):
	}
}
