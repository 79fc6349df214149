package engine

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxCrons is how many tasks of crons of a namespace run on a node in addition to its slots.
	// These tasks take milliseconds. The limit is two full flushes, and one more that is being
	// prepared.
	maxCrons = 768
	// cronBatch is the minimum size of a claim while more crons are due than may run. A scan for a
	// few rows costs as much as one for many.
	cronBatch = 128
	// cronsGap is the interval between scans for crons while all slots of the node are taken.
	cronsGap = 200 * time.Millisecond
)

// cronSlots limits how many timers of crons of a namespace run on this node in addition to its
// slots.
type cronSlots struct {
	mu    sync.Mutex
	taken int
	short bool // a scan could have used more slots
	wake  func()
}

// take takes at most limit slots for a scan. It returns 0 if too few are free to be worth a scan.
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

// claimCrons claims only the timers of crons. These do not wait for slots or behind other timers,
// because a cron would otherwise be late by the whole backlog of other tasks. It costs a statement,
// so it runs only if there is a backlog. more reports that more crons may be due and that there are
// slots for them.
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

// claimCronCalls claims the other tasks of crons, such as the ends of their runs. A timer waits
// behind them in its process, so they must not wait for slots either.
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

// cronRooms takes cron slots in all namespaces.
func (p *timerPoller) cronRooms() *rooms {
	e := p.engine
	return e.rooms(&p.cronBound, e.NamespaceNames(), func(ns *namespace, n int) int { return ns.cronSlots.take(n) })
}

// startCrons runs claimed tasks of crons and returns the unused slots. more reports that there were
// too few slots.
func (p *timerPoller) startCrons(rooms *rooms, claims []storage.Claim) (more bool) {
	p.cronsRun.Add(int64(len(claims)))
	left, cut := rooms.start(claims, func(ns *namespace) func() { return func() { p.cronEnded(ns) } })
	for n, ns := range rooms.namespaces {
		ns.cronSlots.giveBack(left[n])
		more = more || left[n] == 0
	}
	return more || cut
}

// cronEnded returns the slot of a cron's task.
func (p *timerPoller) cronEnded(ns *namespace) {
	ns.cronSlots.giveBack(1)
	if p.cronsRun.Add(-1) == 0 && !p.cronsDue.Load() {
		p.engine.messages.startWaiting()
	}
}

// cronsDeciding reports whether crons are due or running. The runs that they start wait for that.
func (p *timerPoller) cronsDeciding() bool { return p.cronsDue.Load() || p.cronsRun.Load() > 0 }

// foundCrons checks the claims of a scan for timers of all kinds. full reports that there may be
// more.
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

// setCronsDue records whether more crons are due than this node has claimed.
func (p *timerPoller) setCronsDue(due bool) {
	if p.cronsDue.Swap(due) && !p.cronsDeciding() {
		p.engine.messages.startWaiting()
	}
}
