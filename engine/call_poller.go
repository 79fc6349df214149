package engine

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// callPoller claims stored tasks that wait for a slot. While there is work, it scans continuously.
// It is woken when a slot becomes free or a task is queued on this node. Otherwise it scans every
// ScanInterval, for tasks that other nodes stored.
type callPoller struct {
	engine *Engine
	woken  chan struct{}
	bound  scanBound
	names  []string // namespaces with waiting tasks in the last scan; used only by Run
}

func newCallPoller(e *Engine) *callPoller {
	return &callPoller{engine: e, woken: make(chan struct{}, 1), bound: scanBound{rows: maxScanRows}}
}

// wake makes Run scan. On a node for requests only, it wakes the other nodes.
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
		if (asked || claimed) && p.passedOver(ctx) {
			sleep.Reset(min(minCallGap+time.Since(began)/8, rest))
			continue
		}
		asked, began = false, time.Time{}
		sleep.Reset(rest)
	}
}

// passedOver reports whether a scan has skipped tasks although slots are free, because a flush held
// the lock of their process. This is common for a process with many requests.
func (p *callPoller) passedOver(ctx context.Context) bool {
	e := p.engine
	var limits []storage.ClaimLimit
	for _, name := range p.names {
		if ns, ok := e.registry.all()[name]; ok && ns.servable() && ns.slots.hasFree() {
			limits = append(limits, storage.ClaimLimit{Namespace: name, Pauses: e.hasPausedNames(name)})
		}
	}
	if len(limits) == 0 || !e.isConnected() || ctx.Err() != nil {
		return false
	}
	left, err := e.store.HasWaitingCalls(ctx, limits)
	return err == nil && left
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
	claims, err := e.store.SearchCalls(limit, limits.limits)
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
