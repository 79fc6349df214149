package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// pullRest is the time between two looks for what other nodes have left to workers: while some wait here it is one query for all of them.
const pullRest = 200 * time.Millisecond

// pulls are the polls of workers that wait for tasks on this node. They are woken by what this node stores, and by a look every pullRest.
type pulls struct {
	engine *Engine
	woken  chan struct{}

	mu      sync.Mutex
	waiting map[*pull]struct{}
	groups  map[string]time.Time // namespaces that may have places of groups, each until when that is believed
}

// pull is one poll that waits.
type pull struct {
	workerID      string
	namespaces    []string // all that it asks for; lines has none of those that are paused
	subscriptions []storage.Subscription
	woken         chan struct{} // closed once
	began         time.Time
}

func newPulls(e *Engine) *pulls {
	return &pulls{engine: e, woken: make(chan struct{}, 1), waiting: map[*pull]struct{}{}, groups: map[string]time.Time{}}
}

// groupsBelieved is how long a namespace counts as one that has places of groups, once they were seen: longer than the time between two passes of the
// collector, which sees them: a second, and what the passes take that have much to remove.
const groupsBelieved = 5 * time.Second

// believe notes that namespaces have places of groups.
func (p *pulls) believe(namespaces ...string) {
	until := time.Now().Add(groupsBelieved)
	p.mu.Lock()
	for _, ns := range namespaces {
		p.groups[ns] = until
	}
	p.mu.Unlock()
}

// grouped tells whether a poll has to look for places of groups.
func (p *pulls) grouped(lines []storage.Subscription) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.groups) == 0 {
		return false
	}
	now, grouped := time.Now(), false
	for _, l := range lines {
		if until, ok := p.groups[l.Namespace]; ok && now.After(until) {
			delete(p.groups, l.Namespace)
		} else if ok {
			grouped = true
		}
	}
	return grouped
}

// join enters a poll, before it looks: what comes between its look and its wait wakes it.
func (p *pulls) join(params *PollParams, lines []storage.Subscription) *pull {
	w := &pull{
		workerID: params.WorkerID, namespaces: params.Namespaces, subscriptions: lines, woken: make(chan struct{}), began: time.Now(),
	}
	p.mu.Lock()
	p.waiting[w] = struct{}{}
	p.mu.Unlock()
	return w
}

func (p *pulls) leave(w *pull) {
	p.mu.Lock()
	delete(p.waiting, w)
	p.mu.Unlock()
}

// wake has the lines looked at.
func (p *pulls) wake() {
	p.mu.Lock()
	waits := len(p.waiting) > 0
	p.mu.Unlock()
	if waits {
		signal(p.woken)
	}
}

// end wakes a poll, which waits no longer. The caller holds the lock.
func (p *pulls) end(w *pull) {
	delete(p.waiting, w)
	close(w.woken)
}

// wakeWorker has the polls of a worker look at what it was told.
func (p *pulls) wakeWorker(workerID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if w.workerID == workerID {
			p.end(w)
		}
	}
}

// wakeNamespaces wakes the polls of namespaces that have changed: one that was resumed is among their lines only from now on.
func (p *pulls) wakeNamespaces(changed map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if slices.ContainsFunc(w.namespaces, func(name string) bool { _, ok := changed[name]; return ok }) {
			p.end(w)
		}
	}
}

// offer wakes polls for n tasks of a line, those that have waited longest first.
func (p *pulls) offer(namespace, jobName string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0; n-- {
		var longest *pull
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

func (w *pull) wants(namespace, jobName string) bool {
	for _, l := range w.subscriptions {
		if l.Namespace == namespace && (l.JobName == "" || l.JobName == jobName) {
			return true
		}
	}
	return false
}

// subscription is where a poll looks, as the key of a map.
type subscription struct {
	namespace, jobName string
	jobsOnly           bool
}

func subscriptionOf(l storage.Subscription) subscription {
	return subscription{l.Namespace, l.JobName, l.JobsOnly}
}

// subscriptions are the lines that somebody waits at.
func (p *pulls) subscriptions() []storage.Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[subscription]struct{}{}
	var lines []storage.Subscription
	for w := range p.waiting {
		for _, l := range w.subscriptions {
			key := subscriptionOf(l)
			if _, twice := seen[key]; !twice {
				seen[key] = struct{}{}
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// Run looks until ctx ends.
func (p *pulls) Run(ctx context.Context) error {
	rest := min(p.engine.cfg.ScanInterval, pullRest)
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

// countedPulls is up to how many tasks of a line are counted for the polls that wait there.
const countedPulls = 256

func (p *pulls) runOnce(ctx context.Context) {
	lines := p.subscriptions()
	if len(lines) == 0 {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	counts, err := p.engine.store.CountPollable(limit, lines, countedPulls)
	if err != nil {
		p.engine.scanFailed(ctx, "pulls", err)
		return
	}
	for n, l := range lines {
		p.offerSubscription(l, counts[n])
	}
	workers, lines := p.workers()
	wanted, err := p.engine.store.WantedTakers(limit, workers, lines)
	if err != nil {
		p.engine.scanFailed(ctx, "takers", err)
		return
	}
	for _, n := range wanted {
		p.believe(lines[n].Namespace)
		p.offerWorker(workers[n], lines[n])
	}
}

// workers are those that wait, each with a line that it waits at.
func (p *pulls) workers() (workers []string, lines []storage.Subscription) {
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
				workers, lines = append(workers, w.workerID), append(lines, l)
			}
		}
	}
	return workers, lines
}

// offerWorker wakes one of the polls of a worker that wait at a line.
func (p *pulls) offerWorker(workerID string, l storage.Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if w.workerID == workerID && w.at(l) {
			p.end(w)
			return
		}
	}
}

// at tells whether a poll waits at exactly this line.
func (w *pull) at(l storage.Subscription) bool {
	return slices.ContainsFunc(w.subscriptions, func(own storage.Subscription) bool { return subscriptionOf(own) == subscriptionOf(l) })
}

// offerSubscription wakes n of the polls that wait at a line.
func (p *pulls) offerSubscription(l storage.Subscription, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if n <= 0 {
			return
		}
		if w.at(l) {
			p.end(w)
			n--
		}
	}
}
