package pull

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage/pull"
)

// pullRest is the interval between queries for tasks that other nodes have stored, while polls
// wait. One query serves all polls.
const pullRest = 200 * time.Millisecond

// pulls holds the polls of workers that wait for tasks on this node. They are woken by tasks that
// this node stores and by a query every pullRest.
type pulls struct {
	server *Server
	woken  chan struct{}

	mu      sync.Mutex
	active  map[*activePoll]struct{}
	waiting map[*waitingPoll]struct{}
	changes int                  // number of changes of namespaces
	groups  map[string]time.Time // namespaces that are assumed to have group slots, and until when
	// preferred contains, by namespace, the workers that get the next task first, and until when.
	preferred map[string]map[string]time.Time
}

// waitingPoll is a poll that waits for tasks.
type waitingPoll struct {
	workerID      string
	namespaces    []string // all requested namespaces; subscriptions omits paused ones
	subscriptions []pull.Subscription
	woken         chan struct{} // closed once
	began         time.Time
}

func newPulls(s *Server) *pulls {
	return &pulls{
		server: s, woken: make(chan struct{}, 1), active: map[*activePoll]struct{}{},
		waiting: map[*waitingPoll]struct{}{}, groups: map[string]time.Time{},
		preferred: map[string]map[string]time.Time{},
	}
}

// membersExpectedFor is how long a namespace is assumed to have group slots after the collector has
// seen them. It is longer than the interval of the collector plus a long pass.
const membersExpectedFor = 5 * time.Second

// expectMembers records that namespaces have group slots.
func (p *pulls) expectMembers(namespaces ...string) {
	until := time.Now().Add(membersExpectedFor)
	p.mu.Lock()
	for _, ns := range namespaces {
		p.groups[ns] = until
	}
	p.mu.Unlock()
}

// grouped reports whether a poll must look for group slots.
func (p *pulls) grouped(subscriptions []pull.Subscription) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.groups) == 0 {
		return false
	}
	now, grouped := time.Now(), false
	for _, l := range subscriptions {
		if until, ok := p.groups[l.Namespace]; ok && now.After(until) {
			delete(p.groups, l.Namespace)
		} else if ok {
			grouped = true
		}
	}
	return grouped
}

// join adds a poll before the poll queries tasks, so that tasks that arrive between the query and
// the wait wake the poll.
func (p *pulls) join(params *PollParams, subscriptions []pull.Subscription) *waitingPoll {
	w := &waitingPoll{
		workerID: params.WorkerID, namespaces: params.Namespaces, subscriptions: subscriptions,
		woken: make(chan struct{}), began: time.Now(),
	}
	p.mu.Lock()
	p.waiting[w] = struct{}{}
	p.mu.Unlock()
	return w
}

func (p *pulls) leave(w *waitingPoll) {
	p.mu.Lock()
	delete(p.waiting, w)
	p.mu.Unlock()
}

// wake makes Run query the subscriptions.
func (p *pulls) wake() {
	p.mu.Lock()
	waits := len(p.waiting) > 0
	p.mu.Unlock()
	if !waits {
		return
	}
	select {
	case p.woken <- struct{}{}:
	default: // a query is already requested
	}
}

// end wakes a poll and removes it. The caller holds the lock.
func (p *pulls) end(w *waitingPoll) {
	delete(p.waiting, w)
	close(w.woken)
}

// wakeWorker wakes the polls of a worker so that they see its new command.
func (p *pulls) wakeWorker(workerID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if w.workerID == workerID {
			p.end(w)
		}
	}
}

// wakeNamespaces wakes the polls of changed namespaces. A woken poll determines its subscriptions
// again, so that they include a resumed namespace.
func (p *pulls) wakeNamespaces(changed map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++
	for w := range p.waiting {
		if slices.ContainsFunc(w.namespaces, func(name string) bool { _, ok := changed[name]; return ok }) {
			p.end(w)
		}
	}
}

// changeCount returns the number of changes of namespaces so far.
func (p *pulls) changeCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}

// offer wakes polls for n tasks of a subscription. Those that have waited longest come first.
func (p *pulls) offer(namespace, jobName string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0; n-- {
		var longest *waitingPoll
		for w := range p.waiting {
			if w.wants(namespace, jobName) && (longest == nil || w.began.Before(longest.began)) {
				longest = w
			}
		}
		if longest == nil {
			return
		}
		p.end(longest)
	}
}

func (w *waitingPoll) wants(namespace, jobName string) bool {
	for _, l := range w.subscriptions {
		if l.Namespace == namespace && (l.JobName == "" || l.JobName == jobName) {
			return true
		}
	}
	return false
}

// subscription is a pull.Subscription as a map key.
type subscription struct {
	namespace, jobName string
	jobsOnly           bool
}

func subscriptionOf(l pull.Subscription) subscription {
	return subscription{l.Namespace, l.JobName, l.JobsOnly}
}

// subscriptions returns the subscriptions of all waiting polls.
func (p *pulls) subscriptions() []pull.Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[subscription]struct{}{}
	var subscriptions []pull.Subscription
	for w := range p.waiting {
		for _, l := range w.subscriptions {
			key := subscriptionOf(l)
			if _, twice := seen[key]; !twice {
				seen[key] = struct{}{}
				subscriptions = append(subscriptions, l)
			}
		}
	}
	return subscriptions
}

// Run queries tasks until ctx is cancelled.
func (p *pulls) Run(ctx context.Context) error {
	rest := min(p.server.scan, pullRest)
	sleep := time.NewTimer(rest)
	defer sleep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-sleep.C:
		}
		p.runOnce(ctx)
		sleep.Reset(rest)
	}
}

// countedPulls is the maximum number of tasks that are counted for a subscription.
const countedPulls = 256

func (p *pulls) runOnce(ctx context.Context) {
	subscriptions := p.subscriptions()
	if len(subscriptions) == 0 {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	counts, err := pull.CountPollable(limit, p.server.store, subscriptions, countedPulls)
	if err != nil {
		p.server.engine.ReportScanError(ctx, "pulls", err)
		return
	}
	for n, l := range subscriptions {
		p.offerSubscription(l, counts[n])
	}
	workers, subscriptions := p.workers()
	wanted, err := pull.FindMemberWorkers(limit, p.server.store, workers, subscriptions)
	if err != nil {
		p.server.engine.ReportScanError(ctx, "takers", err)
		return
	}
	for _, n := range wanted {
		p.expectMembers(subscriptions[n].Namespace)
		p.offerWorker(workers[n], subscriptions[n])
	}
}

// workers returns the waiting workers with their subscriptions. A worker appears once for each of
// its subscriptions.
func (p *pulls) workers() (workers []string, subscriptions []pull.Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	type at struct {
		subscription
		worker string
	}
	seen := map[at]struct{}{}
	for w := range p.waiting {
		for _, l := range w.subscriptions {
			key := at{subscriptionOf(l), w.workerID}
			if _, twice := seen[key]; !twice {
				seen[key] = struct{}{}
				workers, subscriptions = append(workers, w.workerID), append(subscriptions, l)
			}
		}
	}
	return workers, subscriptions
}

// offerWorker wakes one poll of a worker that has the subscription.
func (p *pulls) offerWorker(workerID string, l pull.Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if w.workerID == workerID && w.hasSubscription(l) {
			p.end(w)
			return
		}
	}
}

// hasSubscription reports whether a poll has exactly this subscription.
func (w *waitingPoll) hasSubscription(l pull.Subscription) bool {
	return slices.ContainsFunc(w.subscriptions, func(own pull.Subscription) bool {
		return subscriptionOf(own) == subscriptionOf(l)
	})
}

// preferTime is how long a worker is preferred.
const preferTime = 2 * time.Second

// maxPreferred is the maximum number of namespaces with preferred workers, and of such workers in a
// namespace.
const maxPreferred = 10_000

// prefer makes the next offer of a namespace wake a poll of this worker first.
func (p *pulls) prefer(namespace, workerID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	workers, ok := p.preferred[namespace]
	if !ok {
		if len(p.preferred) >= maxPreferred {
			clear(p.preferred) // most of them are out of date
		}
		workers = map[string]time.Time{}
		p.preferred[namespace] = workers
	}
	if len(workers) >= maxPreferred {
		clear(workers)
	}
	workers[workerID] = time.Now().Add(preferTime)
}

// offerPreferred wakes at most n polls of preferred workers, and returns how many it woke. The
// caller holds the lock.
func (p *pulls) offerPreferred(l pull.Subscription, n int) (woken int) {
	workers := p.preferred[l.Namespace]
	if n <= 0 || len(workers) == 0 || l.JobName != "" || l.JobsOnly {
		return 0
	}
	now := time.Now()
	maps.DeleteFunc(workers, func(_ string, until time.Time) bool { return now.After(until) })
	for w := range p.waiting {
		if woken == n || len(workers) == 0 {
			break
		}
		if _, ok := workers[w.workerID]; ok && w.hasSubscription(l) {
			delete(workers, w.workerID)
			p.end(w)
			woken++
		}
	}
	if len(workers) == 0 {
		delete(p.preferred, l.Namespace)
	}
	return woken
}

// offerSubscription wakes n polls that have the subscription, first those of preferred workers.
func (p *pulls) offerSubscription(l pull.Subscription, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n -= p.offerPreferred(l, n)
	for w := range p.waiting {
		if n <= 0 {
			return
		}
		if w.hasSubscription(l) {
			p.end(w)
			n--
		}
	}
}
