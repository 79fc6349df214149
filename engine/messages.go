package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// deliverer delivers messages to their targets. It delivers the messages in results of this node
// right after the commit. A scan finds the messages of dead nodes and of SQL functions. The
// deliverer keeps only the keys of targets. A delivery takes all messages for its target. Duplicate
// or late deliveries are no-ops.
type deliverer struct {
	engine     *Engine
	woken      chan struct{}
	notifyDown atomic.Bool   // the node receives no NOTIFYs of SQL functions, so it scans often
	active     activeCounter // deliveries in progress

	mu sync.Mutex
	// inProgress contains the targets with a delivery in progress. The value reports whether more
	// messages have arrived since the delivery began.
	inProgress  map[process.Key]bool
	retrying    map[process.Key]bool // targets that wait for a retry
	after       map[string]string    // the last target of the previous scan, by namespace; used only by the scan
	lowPriority lowPriorityQueue
}

const (
	// messageAge is the minimum age of a message that other nodes deliver. The node that stored a
	// message delivers it within milliseconds.
	messageAge = time.Second
	// messagePoll is the interval between scans for messages of SQL functions while NOTIFY does not
	// work.
	messagePoll = 200 * time.Millisecond
	// messageBatch limits the targets per namespace that one scan returns.
	messageBatch = 64
	// scanWait limits how long a scan waits for the deliveries that it started, so that a locked
	// target does not delay the others for long.
	scanWait = 50 * time.Millisecond
	// fullRetry is the interval between deliveries to a process with too many waiting tasks.
	fullRetry = 200 * time.Millisecond
	// failedRetry is the wait after a failed delivery to a process, for example because its row is
	// locked.
	failedRetry = time.Second
	// maxDeliveries limits the deliveries in progress on a node. The scan finds the others later.
	maxDeliveries = 4096
)

func newDeliverer(e *Engine) *deliverer {
	d := &deliverer{
		engine: e, woken: make(chan struct{}, 1), inProgress: map[process.Key]bool{}, retrying: map[process.Key]bool{},
		after: map[string]string{}, lowPriority: lowPriorityQueue{waits: map[process.Key]struct{}{}},
	}
	d.notifyDown.Store(true)
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
	if _, found := d.inProgress[k]; found {
		d.inProgress[k] = true
		return false
	}
	if d.retrying[k] || len(d.inProgress) >= maxDeliveries || !d.active.join() {
		return false
	}
	d.inProgress[k] = false
	return true
}

// run delivers messages until the target has none left. It returns the number of delivered
// messages.
func (d *deliverer) run(k process.Key) (delivered int) {
	defer d.active.leave()
	e := d.engine
	for again := true; again; {
		deliveries, more, err := d.next(k)
		if err != nil {
			d.retryAfter(k, failedRetry)
			e.log.Warn("cannot deliver messages, will retry", "namespace", k.Namespace, "process_id", k.ProcessID,
				"error", err)
		}
		d.delivered(k, deliveries)
		if len(deliveries) > 0 && deliveries[0].Outcome != storage.TargetFull {
			delivered += len(deliveries)
		}
		d.mu.Lock()
		again = err == nil && (more || d.inProgress[k])
		if again {
			d.inProgress[k] = false
		} else {
			delete(d.inProgress, k)
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

// delivered counts deliveries, and wakes the pollers for the tasks that the deliveries created.
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
			d.retryAfter(k, fullRetry)
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

// retryAfter starts a delivery to a target after a wait.
func (d *deliverer) retryAfter(k process.Key, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retrying[k] || len(d.retrying) >= maxDeliveries {
		return // the scan finds the target later
	}
	d.retrying[k] = true
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		delete(d.retrying, k)
		d.mu.Unlock()
		d.deliver([]process.Key{k})
	})
}

// listening records whether NOTIFY of SQL functions works, and looks for missed messages.
func (d *deliverer) listening(up bool) {
	d.notifyDown.Store(!up)
	signal(d.woken)
}

// Run scans for undelivered messages until ctx is cancelled.
func (d *deliverer) Run(ctx context.Context) error {
	interval := 3 * d.engine.cfg.ScanInterval
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
		wait := interval
		if d.notifyDown.Load() {
			wait = min(interval, messagePoll)
		}
		if failures++; err == nil {
			failures = 0
		} else {
			wait = min(interval, pauseAfter(failures))
		}
		if found {
			wait = 0
		}
		sleep.Reset(wait)
	}
}

// scan starts the deliveries to a batch of targets and waits up to scanWait for them. found is true
// if there may be more.
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

// finish waits for the deliveries in progress while the node stops. Other nodes deliver the
// remaining messages.
func (d *deliverer) finish() {
	defer d.active.close()
	select {
	case <-d.active.idle():
	case <-time.After(storeTimeout):
	}
}
