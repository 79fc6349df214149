package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// callPoller claims stored tasks that wait for a place. It looks at once while there is work, is woken inside the node when a
// place becomes free or a task is left, and looks every ScanInterval otherwise, for what other nodes have left.
type callPoller struct {
	engine *Engine
	woken  chan struct{}
}

func newCallPoller(e *Engine) *callPoller {
	return &callPoller{engine: e, woken: make(chan struct{}, 1)}
}

func (p *callPoller) wake() {
	signal(p.woken)
	p.engine.pulls.wake()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// minCallGap is the least time until a scan is repeated that passed over a task; it grows with the time that this goes on.
const minCallGap = time.Millisecond

// Run polls until ctx ends.
func (p *callPoller) Run(ctx context.Context) error {
	rest := p.engine.cfg.ScanInterval
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	asked := false      // this look is not only the regular one
	var began time.Time // when scans began to pass over tasks
	failures := 0       // of scans in a row
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

// passedOver tells whether tasks were left for which there was room: a flush held their process at the moment of the scan. Of a
// process that gets many requests some flush does so most of the time.
func (p *callPoller) passedOver(ctx context.Context) bool {
	e := p.engine
	var names []string
	for _, ns := range e.registry.all() {
		if ns.servable() && ns.places.free() {
			names = append(names, ns.name)
		}
	}
	if len(names) == 0 || !e.inTouch() || ctx.Err() != nil {
		return false
	}
	left, err := e.store.CallsLeft(ctx, names)
	return err == nil && left
}

// runOnce claims once for all namespaces. more: there is more that could run now.
func (p *callPoller) runOnce(ctx context.Context) (claimed int, more bool, err error) {
	e := p.engine
	rooms := e.rooms(func(ns *namespace) int { return ns.places.takeUpTo(scanLimit) })
	if len(rooms.rooms) == 0 {
		return 0, false, nil
	}
	began := time.Now()
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, err := e.store.SearchCalls(limit, rooms.rooms)
	e.metrics.callsScanned(began)
	if err != nil {
		e.scanFailed(ctx, "calls", err)
		e.doubtClaims()
	}
	got := rooms.start(claims, placeOf)
	for n, room := range rooms.rooms {
		left := room.Places - got[room.Namespace]
		if rooms.namespaces[n].places.callsScanned(left, left == 0) {
			more = true
		}
	}
	return len(claims), more, err
}

// scanLimit is the most that one scan claims of a namespace.
const scanLimit = 256

// rooms is what a scan may claim, with the places taken for it.
type rooms struct {
	engine     *Engine
	rooms      []storage.Room
	namespaces []*namespace
}

// rooms takes places for a scan. Paused namespaces and those that this node cannot serve are left out; a node that has lost its
// heartbeat takes nothing.
func (e *Engine) rooms(take func(*namespace) int) *rooms {
	r := &rooms{engine: e}
	if !e.inTouch() || e.draining.Load() {
		return r
	}
	for _, ns := range e.registry.all() {
		if !ns.servable() && !ns.pulled() {
			continue
		}
		if n := take(ns); n > 0 {
			r.rooms = append(r.rooms, storage.Room{Namespace: ns.name, Places: n, StepTimeout: ns.stepTimeout, Own: ns.pulled()})
			r.namespaces = append(r.namespaces, ns)
		}
	}
	return r
}

// placeOf gives back the place of a task of a user.
func placeOf(ns *namespace) func() { return ns.places.release }

// start runs claims, each in a place that was taken for it. It tells how many there were of each namespace.
func (r *rooms) start(claims []storage.Claim, release func(*namespace) func()) map[string]int {
	got := map[string]int{}
	byName := map[string]*namespace{}
	for _, ns := range r.namespaces {
		byName[ns.name] = ns
	}
	for n := range claims {
		if !r.engine.crew.join() {
			continue // pollers end before the crew closes
		}
		got[claims[n].Namespace]++
		ns := byName[claims[n].Namespace]
		r.engine.runners.Go(func() { r.engine.run(ns, &claims[n], nil, release(ns)) })
	}
	return got
}

// scanTimeout bounds a scan on a connection that does not answer; statement_timeout ends a slow one before. A scan does not end
// with its poller: what it has claimed has to be known.
const scanTimeout = 12 * time.Second

// pauseAfter is how long a scan waits after so many that failed: the first ones may only have met connections that were dead.
func pauseAfter(failures int) time.Duration {
	return 10 * time.Millisecond << min(3*(failures-1), 20)
}

func scanContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), scanTimeout)
}

func (e *Engine) scanFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		e.metrics.scanErrors.WithLabelValues(what).Inc()
		e.log.Warn("scan failed", "what", what, "error", err)
	}
}

// timerPoller claims tasks whose time has come. It keeps the time of the next one in memory: of timers that this node has set it
// knows at once, of others by a look every third ScanInterval.
type timerPoller struct {
	engine *Engine
	woken  chan struct{}
	mu     sync.Mutex
	next   time.Time // zero: none known

	failures int          // of scans in a row; Run alone looks at it
	crowded  bool         // more was due than the last scan had room for; likewise
	cronsDue atomic.Bool  // more crons are due than this node has claimed
	cronsRun atomic.Int64 // tasks of crons that run beyond the places
}

// minTimerGap is the least time between two scans: timers that are due within it are claimed together.
const minTimerGap = 2 * time.Millisecond

func newTimerPoller(e *Engine) *timerPoller {
	return &timerPoller{engine: e, woken: make(chan struct{}, 1)}
}

func (p *timerPoller) wake() { p.alarm(0) }

// alarm has the poller look after a while.
func (p *timerPoller) alarm(after time.Duration) {
	at := time.Now().Add(after)
	p.mu.Lock()
	earlier := p.next.IsZero() || at.Before(p.next)
	if earlier {
		p.next = at
	}
	p.mu.Unlock()
	if earlier {
		signal(p.woken)
	}
}

// until is how long to sleep, at most rest.
func (p *timerPoller) until(rest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() {
		return rest
	}
	return min(rest, max(time.Until(p.next), 0))
}

// Run polls until ctx ends.
func (p *timerPoller) Run(ctx context.Context) error {
	rest := 3 * p.engine.cfg.ScanInterval
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	looked := time.Time{}
	due := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-sleep.C:
		}
		now := time.Now()
		wait := min(p.until(rest), due.Sub(now))
		if gap := minTimerGap - now.Sub(looked); wait < gap {
			wait = gap
		}
		if wait > 0 {
			sleep.Reset(wait)
			continue
		}
		looked = now
		for p.runOnce(ctx) && ctx.Err() == nil {
			looked = time.Now()
		}
		due = time.Now().Add(rest)
		sleep.Reset(p.until(rest))
	}
	return nil
}

// runOnce claims once for all namespaces; true: there is more that could run now.
func (p *timerPoller) runOnce(ctx context.Context) (more bool) {
	e := p.engine
	p.mu.Lock()
	p.next = time.Time{}
	p.mu.Unlock()
	p.release(ctx)
	rooms := e.rooms(func(ns *namespace) int { return ns.places.takeForTimers(scanLimit) })
	moreCrons := false
	if p.crowded || len(rooms.rooms) == 0 {
		moreCrons = p.claimCrons(ctx)
	}
	if p.crowded = len(rooms.rooms) == 0; p.crowded {
		if !moreCrons {
			p.alarm(cronsGap) // no scan says when the next one is due
		}
		return moreCrons
	}
	began := time.Now()
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, next, err := e.store.SearchTimers(limit, rooms.rooms)
	e.metrics.timersScanned(began)
	if err != nil {
		e.scanFailed(ctx, "timers", err)
		e.doubtClaims()
		p.failures++
		p.alarm(min(pauseAfter(p.failures), e.cfg.ScanInterval))
	} else {
		p.failures = 0
	}
	for n := range claims {
		e.timerLate(claims[n].RunningTime.Sub(claims[n].ScheduledTime))
	}
	got := rooms.start(claims, placeOf)
	for n, room := range rooms.rooms {
		left := room.Places - got[room.Namespace]
		rooms.namespaces[n].places.timersScanned(left, left == 0)
		more = more || left == 0
	}
	if next >= 0 && !more {
		p.alarm(next)
	}
	p.crowded = more || moreCrons
	p.foundCrons(claims, more)
	return more || moreCrons
}

// release lets what is due in namespaces whose tasks workers take wait for these.
func (p *timerPoller) release(ctx context.Context) {
	e := p.engine
	var names []string
	for _, ns := range e.registry.all() {
		if ns.pulled() {
			names = append(names, ns.name)
		}
	}
	if len(names) == 0 || !e.inTouch() || e.draining.Load() {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	released, err := e.store.ReleaseTimers(limit, names)
	if err != nil {
		e.scanFailed(ctx, "released timers", err)
		return
	}
	if len(released) > 0 {
		e.noted()
		e.pulls.wake()
		p.alarm(0) // there may be more of them
	}
}
