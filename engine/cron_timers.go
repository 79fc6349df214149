package engine

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxCrons is how many tasks of crons of a namespace run on a node beyond its places. Theirs take milliseconds: these are two full
	// flushes, and one more that is being prepared.
	maxCrons = 768
	// cronBatch is the least that is claimed at a time while more is due than may run: a scan for a few costs as much as one for many.
	cronBatch = 128
	// cronsGap is the time between two looks for crons of a node whose places are all taken.
	cronsGap = 200 * time.Millisecond
)

// cronSlots bounds how many timers of crons of a namespace a node runs beside its places.
type cronSlots struct {
	mu    sync.Mutex
	taken int
	short bool // a scan had less room than it could use
	wake  func()
}

// take takes at most limit places for a scan, or none if a scan is not worth it yet.
func (p *cronSlots) take(limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := maxCrons - p.taken
	if p.short = free < cronBatch; p.short {
		return 0
	}
	n := min(free, limit)
	p.taken += n
	return n
}

// giveBack returns slots. It wakes the poller if it had too few.
func (p *cronSlots) giveBack(n int) {
	p.mu.Lock()
	p.taken -= n
	wake := p.short && maxCrons-p.taken >= cronBatch
	if wake {
		p.short = false
	}
	p.mu.Unlock()
	if wake {
		p.wake()
	}
}

// claimCrons claims the timers of crons alone. They wait neither for places nor behind other timers: a cron that is late because users'
// work stands in line would be late by all of it. It costs a statement, so it is asked only where there is such a line. more: it had no
// room for all that may be due, and there is room for the rest.
func (p *timerPoller) claimCrons(ctx context.Context) (more bool) {
	e := p.engine
	if _, runs := e.kinds[cronKind]; !runs {
		return false
	}
	rooms := p.cronRooms()
	if len(rooms.rooms) == 0 {
		return false
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, err := e.store.SearchCronTimers(limit, rooms.rooms)
	p.cronBound.done(err)
	if err != nil {
		e.scanFailed(ctx, "cron timers", err)
		e.doubtClaims()
	}
	for n := range claims {
		e.timerLate(claims[n].RunningTime.Sub(claims[n].ScheduledTime))
	}
	more = p.startCrons(rooms, claims)
	p.setCronsDue(more)
	p.claimCronCalls(ctx)
	return more
}

// claimCronCalls claims what else crons are told, such as the ends of their runs: a timer waits behind it in its process, so that it must not
// wait for places either.
func (p *timerPoller) claimCronCalls(ctx context.Context) {
	e := p.engine
	rooms := p.cronRooms()
	if len(rooms.rooms) == 0 {
		return
	}
	for n := range rooms.rooms {
		rooms.rooms[n].Own, rooms.rooms[n].Crons = true, true
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, err := e.store.SearchCalls(limit, rooms.rooms)
	if err != nil {
		e.scanFailed(ctx, "calls of crons", err)
		e.doubtClaims()
	}
	if p.startCrons(rooms, claims) {
		p.alarm(rooms.rooms[0].Namespace, 0)
	}
}

// cronRooms takes places of crons in all namespaces.
func (p *timerPoller) cronRooms() *rooms {
	e := p.engine
	return e.rooms(&p.cronBound, e.NamespaceNames(), func(ns *namespace, n int) int { return ns.cronSlots.take(n) })
}

// startCrons runs what was claimed for crons, and gives back the places that were too many. more: there were too few.
func (p *timerPoller) startCrons(rooms *rooms, claims []storage.Claim) (more bool) {
	p.cronsRun.Add(int64(len(claims)))
	left, cut := rooms.start(claims, func(ns *namespace) func() { return func() { p.cronEnded(ns) } })
	for n, ns := range rooms.namespaces {
		ns.cronSlots.giveBack(left[n])
		more = more || left[n] == 0
	}
	return more || cut
}

// cronEnded gives the place of a cron's task back.
func (p *timerPoller) cronEnded(ns *namespace) {
	ns.cronSlots.giveBack(1)
	if p.cronsRun.Add(-1) == 0 && !p.cronsDue.Load() {
		p.engine.messages.startWaiting()
	}
}

// cronsDeciding reports whether crons are due or are deciding. The runs that they start wait for that.
func (p *timerPoller) cronsDeciding() bool { return p.cronsDue.Load() || p.cronsRun.Load() > 0 }

// foundCrons looks through what a scan for timers of all kinds has claimed. full: there may be more.
func (p *timerPoller) foundCrons(claims []storage.Claim, full bool) {
	if !full {
		p.setCronsDue(false)
		return
	}
	for n := range claims {
		if claims[n].Kind == cronKind {
			p.setCronsDue(true)
			return
		}
	}
}

// setCronsDue notes whether more crons are due than this node has claimed.
func (p *timerPoller) setCronsDue(due bool) {
	if p.cronsDue.Swap(due) && !p.cronsDeciding() {
		p.engine.messages.startWaiting()
	}
}
