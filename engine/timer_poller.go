package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// timerPoller claims due tasks. It keeps the time of the next timer of each namespace in memory. It
// learns immediately of timers that this node sets. Every three ScanIntervals, it queries the
// timers that are due soon, to find those that other nodes set.
type timerPoller struct {
	engine *Engine
	woken  chan struct{}
	mu     sync.Mutex
	due    map[string]time.Time // when to scan a namespace; no entry if no timer is known
	all    bool                 // the next scan first queries the timers of all namespaces
	next   time.Time            // time of the first scan; zero if no timer is known

	bound         scanBound
	urgentBound   scanBound
	failures      int          // consecutive failed scans; used only by Run
	crowded       bool         // more timers were due than the last scan could claim; used only by Run
	urgentDue     atomic.Bool  // more urgent tasks are due than this node has claimed
	urgentRunning atomic.Int64 // urgent tasks that run in addition to the slots
}

// minTimerGap is the minimum time between scans. Timers that are due within it are claimed
// together.
const minTimerGap = 2 * time.Millisecond

func newTimerPoller(e *Engine) *timerPoller {
	return &timerPoller{
		engine: e, woken: make(chan struct{}, 1), due: map[string]time.Time{},
		bound: scanBound{rows: maxScanRows}, urgentBound: scanBound{rows: maxScanRows},
	}
}

// wake makes the poller query the timers of all namespaces.
func (p *timerPoller) wake() {
	if p.engine.cfg.RequestsOnly {
		p.engine.notices.stored()
		return
	}
	p.mu.Lock()
	p.all = true
	p.schedule(time.Now())
}

// alarm makes the poller scan a namespace when the given time has passed. On a node that takes only
// requests, it wakes the other nodes, so that they learn when the timer is due.
func (p *timerPoller) alarm(namespace string, after time.Duration) {
	if p.engine.cfg.RequestsOnly {
		p.engine.notices.stored()
		return
	}
	at := time.Now().Add(after)
	p.mu.Lock()
	if old, ok := p.due[namespace]; ok && !at.Before(old) {
		p.mu.Unlock()
		return
	}
	p.due[namespace] = at
	p.schedule(at)
}

// schedule makes the next scan begin no later than at. The caller holds the lock, which schedule
// releases.
func (p *timerPoller) schedule(at time.Time) {
	earlier := p.next.IsZero() || at.Before(p.next)
	if earlier {
		p.next = at
	}
	p.mu.Unlock()
	if earlier {
		signal(p.woken)
	}
}

// timerRest is the interval between queries of the timers of all namespaces.
func timerRest(e *Engine) time.Duration { return 3 * e.cfg.ScanInterval }

// until returns how long to sleep, which is at most rest.
func (p *timerPoller) until(rest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() {
		return rest
	}
	return min(rest, max(time.Until(p.next), 0))
}

// Run polls until ctx is cancelled.
func (p *timerPoller) Run(ctx context.Context) error {
	rest := timerRest(p.engine)
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	lastScan := time.Time{}
	nextQuery := time.Now() // when to query all namespaces
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-sleep.C:
		}
		now := time.Now()
		wait := min(p.until(rest), nextQuery.Sub(now))
		if gap := minTimerGap - now.Sub(lastScan); wait < gap {
			wait = gap
		}
		if wait > 0 {
			sleep.Reset(wait)
			continue
		}
		lastScan = now
		if !now.Before(nextQuery) {
			p.wake()
			nextQuery = now.Add(rest)
		}
		for p.runOnce(ctx) && ctx.Err() == nil {
			lastScan = time.Now()
		}
		sleep.Reset(p.until(rest))
	}
	return nil
}

// take returns the due namespaces, sorted, and removes them from due. If all is set, it first
// queries the timers of all namespaces.
func (p *timerPoller) take(ctx context.Context) ([]string, error) {
	p.mu.Lock()
	all := p.all
	p.all = false
	p.mu.Unlock()
	if all {
		// The horizon is twice the interval, because the next query may be late.
		timers, err := p.engine.store.NextTimers(ctx, 2*timerRest(p.engine))
		if err != nil {
			return nil, err
		}
		for namespace, delay := range timers {
			p.alarm(namespace, delay)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	now := time.Now()
	p.next = time.Time{}
	for name, at := range p.due {
		switch {
		case !at.After(now):
			names = append(names, name)
			delete(p.due, name)
		case p.next.IsZero() || at.Before(p.next):
			p.next = at
		}
	}
	if p.all {
		p.next = now
	}
	slices.Sort(names)
	return names, nil
}

// runOnce claims once for all due namespaces. more is true if further timers could run now.
func (p *timerPoller) runOnce(ctx context.Context) (more bool) {
	e := p.engine
	e.backlog.wait(ctx)
	limit, cancel := scanContext(ctx)
	defer cancel()
	defer e.metrics.timersScanned(time.Now())
	names, err := p.take(limit)
	if err != nil {
		e.scanFailed(ctx, "timers", err)
		p.failures++
		time.AfterFunc(min(pauseAfter(p.failures), e.cfg.ScanInterval), p.wake)
		return false
	}
	p.release(ctx, names)
	limits := e.newScanLimits(&p.bound, names, func(ns *namespace, n int) int { return ns.slots.takeTimers(n) })
	moreUrgent := false
	if p.crowded || len(limits.full) > 0 {
		moreUrgent = p.claimUrgent(ctx)
	}
	for _, name := range limits.postponed {
		p.alarm(name, 0)
	}
	for _, name := range limits.full {
		p.alarm(name, urgentGap) // the scan did not report when the next timer is due
	}
	more = len(limits.postponed) > 0
	if len(limits.limits) > 0 {
		more = p.scan(ctx, limit, limits) || more
	}
	p.crowded = more || moreUrgent || len(limits.full) > 0
	return more || moreUrgent
}

// scan claims the due timers in limits. more is true if further timers could run now.
func (p *timerPoller) scan(ctx, limit context.Context, limits *scanLimits) (more bool) {
	e := p.engine
	claims, next, err := e.store.SearchTimers(limit, limits.limits)
	p.bound.done(err)
	pause := time.Duration(-1)
	if p.failures++; err == nil {
		p.failures = 0
	} else {
		e.scanFailed(ctx, "timers", err)
		e.expectLostClaims()
		pause = min(pauseAfter(p.failures), e.cfg.ScanInterval)
	}
	for n := range claims {
		e.timerLate(claims[n].RunningTime.Sub(claims[n].ScheduledTime))
	}
	left, cut := limits.start(claims, releaseOf(timers))
	if err == nil {
		p.bound.scanned(limits.limits, left, cut)
	}
	for n, ns := range limits.namespaces {
		again := left[n] == 0 || cut
		ns.slots.scanned(timers, left[n], again)
		delay, known := next[ns.name]
		switch {
		case err != nil:
			p.alarm(ns.name, pause)
		case again:
			more = true
			p.alarm(ns.name, 0)
		case known:
			p.alarm(ns.name, delay)
		}
	}
	p.foundUrgent(claims, more)
	return more
}

// release moves the due tasks of namespaces with workers to the wait queue of the workers.
func (p *timerPoller) release(ctx context.Context, due []string) {
	e := p.engine
	var names []string
	for _, name := range due {
		if ns, ok := e.registry.all()[name]; ok && ns.pulled() {
			names = append(names, name)
		}
	}
	if len(names) == 0 || !e.takesTasks() {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	released, err := e.store.ReleaseTimers(limit, names)
	if err != nil {
		e.scanFailed(ctx, "released timers", err)
		for _, name := range names {
			p.alarm(name, e.cfg.ScanInterval)
		}
		return
	}
	for name := range released {
		p.alarm(name, 0) // there may be more
	}
	if len(released) > 0 {
		e.wakeKinds()
		e.workers.Wake()
	}
}
