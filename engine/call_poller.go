package engine

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// callPoller claims stored tasks that wait for a slot. While there is work, it scans continuously.
// When a slot becomes free or a task is queued on this node, it scans immediately. Otherwise it
// scans every ScanInterval, to find tasks that other nodes stored.
type callPoller struct {
	engine *Engine
	woken  chan struct{}
	bound  scanBound

	// The following fields are used only by Run.
	names   []string             // namespaces with waiting tasks in the last scan
	skipped map[string]time.Time // since when scans have skipped all tasks of a namespace
	turn    int                  // chooses among the namespaces that were skipped for a long time
	locked  string               // the next scan waits for the lock of the first process in this namespace; "" if none
}

func newCallPoller(e *Engine) *callPoller {
	return &callPoller{
		engine: e, woken: make(chan struct{}, 1), bound: scanBound{rows: maxScanRows}, skipped: map[string]time.Time{},
	}
}

// wake makes Run scan, and makes the node look for tasks that wait for workers. On a node that runs
// no tasks, it also wakes the other nodes.
func (p *callPoller) wake() {
	if p.engine.cfg.RequestsOnly {
		p.engine.notices.stored()
	}
	signal(p.woken)
	p.engine.workers.Wake()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// minCallGap is the minimum time before a scan that skipped a task is repeated. The gap grows while
// scans skip tasks.
const minCallGap = time.Millisecond

// After scans have skipped all tasks of a namespace for skipPatience, a scan waits for a lock. The
// maximum wait is the time for which the tasks have been skipped, but at most maxLockWait, because
// the wait delays the tasks of other namespaces.
const (
	skipPatience = 20 * time.Millisecond
	maxLockWait  = 100 * time.Millisecond
)

// Run polls until ctx ends.
func (p *callPoller) Run(ctx context.Context) error {
	rest := p.engine.cfg.ScanInterval
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	asked := false      // the scan was requested; otherwise it is a regular one
	var began time.Time // time since which scans have skipped tasks
	failures := 0       // consecutive failed scans
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
			asked = true
		case <-sleep.C:
		}
		claimed := false
		for more := true; more && ctx.Err() == nil; {
			var n int
			var err error
			n, more, err = p.runOnce(ctx)
			claimed = claimed || n > 0
			if failures++; err == nil {
				failures = 0
			}
		}
		if failures > 0 {
			sleep.Reset(min(pauseAfter(failures), rest))
			continue
		}
		if claimed || began.IsZero() {
			began = time.Now()
		}
		if (asked || claimed) && p.hasSkipped(ctx) {
			sleep.Reset(min(minCallGap+time.Since(began)/8, rest))
			continue
		}
		asked, began = false, time.Time{}
		sleep.Reset(rest)
	}
}

// hasSkipped reports whether a scan may have skipped tasks although slots are free, because a flush
// held the lock of their process. If no slot is free, the next free slot wakes the poller: a
// request may have got the slot that the scan did not need. Skips are common for a process with
// many requests. A scan may never find such a process unlocked, so if it was skipped for a long
// time, the next scan waits for its lock.
func (p *callPoller) hasSkipped(ctx context.Context) bool {
	e := p.engine
	var limits []storage.ClaimLimit
	for _, name := range p.names {
		if ns, ok := e.registry.all()[name]; ok && ns.servable() && ns.slots.hasFree(stored) {
			limits = append(limits, storage.ClaimLimit{Namespace: name, Pauses: e.hasPausedNames(name)})
		}
	}
	var names []string
	if len(limits) > 0 && e.isConnected() && ctx.Err() == nil {
		var err error
		if names, err = e.store.ListSkippedCalls(ctx, limits); err != nil {
			return true // tasks may have been skipped
		}
	}
	since := map[string]time.Time{}
	var long []string
	for _, name := range names {
		began, ok := p.skipped[name]
		if !ok {
			began = time.Now()
		}
		since[name] = began
		if time.Since(began) >= skipPatience {
			long = append(long, name)
		}
	}
	if p.skipped = since; len(long) > 0 {
		p.turn++
		p.locked = long[p.turn%len(long)]
	}
	return len(names) > 0
}

// runOnce claims once for all namespaces with waiting tasks. more reports whether further tasks
// could run now.
func (p *callPoller) runOnce(ctx context.Context) (claimed int, more bool, err error) {
	e := p.engine
	e.backlog.wait(ctx)
	if !e.takesTasks() {
		return 0, false, nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	defer e.metrics.callsScanned(time.Now())
	if err := p.findWaiting(limit); err != nil {
		e.scanFailed(ctx, "calls", err)
		return 0, false, err
	}
	limits := e.newScanLimits(&p.bound, p.names, func(ns *namespace, n int) int { return ns.slots.takeStored(n) })
	if len(limits.limits) == 0 {
		return 0, false, nil
	}
	claims, err := p.search(limit, limits.limits)
	p.bound.done(err)
	if err != nil {
		e.scanFailed(ctx, "calls", err)
		e.expectLostClaims()
	}
	left, cut := limits.start(claims, releaseOf(stored))
	if err == nil {
		p.bound.scanned(limits.limits, left, cut)
	}
	more = cut || len(limits.postponed) > 0
	for n, ns := range limits.namespaces {
		if ns.slots.scanned(stored, left[n], left[n] == 0 || cut) {
			more = true
		}
	}
	return len(claims), more, err
}

// search claims tasks. If p.locked names a namespace in limits, search first waits for the lock of
// the process whose task is first in this namespace.
func (p *callPoller) search(ctx context.Context, limits []storage.ClaimLimit) (claims []storage.Claim, err error) {
	n := slices.IndexFunc(limits, func(l storage.ClaimLimit) bool { return l.Namespace == p.locked })
	if p.locked = ""; n < 0 {
		claims, err = p.engine.store.SearchCalls(ctx, limits)
	} else {
		first := storage.FirstCall{Namespace: limits[n].Namespace, SkipPaused: limits[n].Pauses}
		wait := min(time.Since(p.skipped[first.Namespace]), maxLockWait)
		claims, err = p.engine.store.SearchLockedCalls(ctx, limits, first, wait)
	}
	for n := range claims {
		delete(p.skipped, claims[n].Namespace)
	}
	return claims, err
}

// findWaiting finds the namespaces with tasks that wait for a slot.
func (p *callPoller) findWaiting(ctx context.Context) error {
	waiting, err := p.engine.store.NamespacesWaiting(ctx)
	if err != nil {
		return err
	}
	p.names = p.names[:0]
	all := p.engine.registry.all()
	for _, w := range waiting {
		if ns, ok := all[w.Namespace]; ok && (w.Own || !ns.pulled()) {
			p.names = append(p.names, w.Namespace)
		}
	}
	for name, ns := range all {
		if _, found := slices.BinarySearch(p.names, name); !found {
			ns.slots.noneStored()
		}
	}
	return nil
}
