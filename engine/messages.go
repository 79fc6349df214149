package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// deliverer brings messages to their targets: those of this node's results right after their commit, and by a scan those that a
// dead node has left and those of SQL functions. It holds no message: what it does is known by its target, and the store takes what
// stands for that. Who is late, or comes twice, finds nothing.
type deliverer struct {
	engine *Engine
	woken  chan struct{}
	deaf   atomic.Bool   // nobody hears the NOTIFY of SQL functions: they are looked for often
	active activeCounter // deliveries under way

	mu          sync.Mutex
	under       map[process.Key]bool // targets that are being delivered to; true: something has come since
	resting     map[process.Key]bool // targets that cannot be delivered to now, and are tried again later
	after       map[string]string    // where the scan goes on in each namespace; only the scan uses it
	lowPriority lowPriorityQueue
}

const (
	// messageAge is how old a message of a process has to be before its node is given up: it delivers within milliseconds.
	messageAge = time.Second
	// messagePoll is the time between two looks for messages of SQL functions while nobody hears of them.
	messagePoll = 200 * time.Millisecond
	// messageBatch is how many targets one scan finds in each namespace.
	messageBatch = 64
	// scanWait is how long a scan waits for the deliveries that it has begun: a target that is locked delays the others no longer.
	scanWait = 50 * time.Millisecond
	// fullRetry is the time between two deliveries to a process that has too many waiting tasks.
	fullRetry = 200 * time.Millisecond
	// failedRetry is the time between two deliveries to a process after one failed, because its row is locked, say.
	failedRetry = time.Second
	// maxDeliveries bounds the targets under way on a node; what is beyond is found by the scan.
	maxDeliveries = 4096
	// messageChannel is where SQL functions tell that they have sent something.
	messageChannel = "progressor_messages"
)

func newDeliverer(e *Engine) *deliverer {
	d := &deliverer{engine: e, woken: make(chan struct{}, 1), under: map[process.Key]bool{}, resting: map[process.Key]bool{}, after: map[string]string{}, lowPriority: lowPriorityQueue{waits: map[process.Key]struct{}{}}}
	d.deaf.Store(true)
	return d
}

// deliver begins to deliver what stands for these processes, and does not wait.
func (d *deliverer) deliver(targets []process.Key) {
	for _, k := range targets {
		if d.take(k) {
			go d.run(k)
		}
	}
}

// take begins with a target; false: it is under way already and will be looked at again, or has to wait for the scan or its rest.
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

// run delivers until nothing stands for the target any more, and tells how many messages found their end.
func (d *deliverer) run(k process.Key) (delivered int) {
	defer d.active.leave()
	e := d.engine
	for again := true; again; {
		deliveries, more, err := e.store.DeliverMessages(k)
		if err != nil {
			d.rest(k, failedRetry)
			e.log.Warn("messages not delivered yet", "namespace", k.Namespace, "process_id", k.ProcessID, "error", err)
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

// delivered counts deliveries and has the pollers look for the tasks that they have made.
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
		e.metrics.messages.WithLabelValues(namespace, string(m.Kind), m.Outcome).Inc()
		made := m.Outcome == storage.Delivered
		calls, timers = calls || made && !m.Later, timers || made && m.Later
		noted = noted || m.Outcome == storage.MemberNoted || made && m.Kind == storage.MessageCancel
	}
	if noted {
		e.noted()
	}
	if calls && pulled {
		e.pulls.wake()
	}
	if calls {
		e.calls.wake()
	}
	if timers {
		e.timers.alarm(k.Namespace, 0)
	}
}

// rest leaves a target alone for a while, then delivers to it.
func (d *deliverer) rest(k process.Key, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resting[k] || len(d.resting) >= maxDeliveries {
		return // the scan finds the rest
	}
	d.resting[k] = true
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		delete(d.resting, k)
		d.mu.Unlock()
		d.deliver([]process.Key{k})
	})
}

// Run looks for messages that nobody has delivered, until ctx ends.
func (d *deliverer) Run(ctx context.Context) error {
	go d.engine.store.Listen(ctx, messageChannel, func(up bool) {
		d.deaf.Store(!up)
		signal(d.woken)
	}, func() { signal(d.woken) })
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

// scan begins to deliver a batch, and waits for its end for a short time. found: there may be more.
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

// finish waits for the deliveries of a node that stops; what they do not reach is another node's.
func (d *deliverer) finish() {
	defer d.active.close()
	select {
	case <-d.active.idle():
	case <-time.After(storeTimeout):
	}
}
