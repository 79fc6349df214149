package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slotWait is how long a fresh request waits in memory for a place before it is refused.
const slotWait = 100 * time.Millisecond

// maxLooks is how many times slotWait a request waits while a scan holds free places for what it may find: these are not taken yet, and on a
// slow database a scan may last longer than slotWait.
const maxLooks = 10

// failFastFor is how long it is remembered that a request has waited in vain. Overload lasts: a second of it forgotten lets a thousand more
// wait for nothing.
const failFastFor = 10 * time.Second

// places bounds how many tasks of a namespace run on this node at a time. Fresh requests wait first in, first out; a task that is
// stored and waits for a place goes before all of them: while the pollers are owed a place, none is given to a fresh request.
type slots struct {
	mu       sync.Mutex
	max      int
	taken    int
	reserved bool // a place is the call poller's before any fresh request's: stored tasks wait, or may wait
	missed   bool // the timer poller found less room than it could use
	looks    int  // scans that hold places now
	waiting  []chan struct{}

	lastRejected   time.Time // when a request has last waited in vain
	window         time.Time // when the count of served began
	served, before int       // places that came free for fresh requests, in this window and in the one before

	wakeCalls, wakeTimers func() // a place is free that is owed, or was missed
}

// tryTake takes a place if one is free for a fresh request.
func (p *slots) tryTake() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved || p.taken >= p.max || len(p.waiting) > 0 {
		return false
	}
	p.taken++
	return true
}

// take waits for a place, not longer than slotWait where all are taken; at most as many wait as there are places.
func (p *slots) take(ctx context.Context) bool {
	if p.tryTake() {
		return true
	}
	p.mu.Lock()
	if len(p.waiting) >= p.room(time.Now()) {
		p.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	p.hand()
	p.mu.Unlock()
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	for waits := 1; ; waits++ {
		select {
		case <-turn:
			return true
		case <-timer.C:
		case <-ctx.Done():
		}
		given, over := p.giveUp(turn, ctx.Err() != nil, waits >= maxLooks)
		if over {
			return given
		}
		timer.Reset(slotWait)
	}
}

// giveUp ends the wait of a request, unless a scan holds places. given: one was handed over at the same moment.
func (p *slots) giveUp(turn chan struct{}, gone, last bool) (given, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := slices.Index(p.waiting, turn)
	if n < 0 {
		return true, true
	}
	if p.looks > 0 && !gone && !last {
		return false, false
	}
	p.waiting = slices.Delete(p.waiting, n, n+1)
	if !gone {
		p.lastRejected = time.Now()
	}
	return false, true
}

// room is how many may wait at a time. Where a request has waited in vain, these are as many as get a place in half of that time: who
// comes behind them would be refused too, and is told so at once. The caller holds the lock.
func (p *slots) room(now time.Time) int {
	if now.Sub(p.lastRejected) > failFastFor {
		return p.max
	}
	p.count(now, 0)
	return min(p.max, max(p.served, p.before, 2)/2)
}

// count notes that n places came free for fresh requests, whether one waited or not: after a stall nobody waits, and there is still room
// for those who come while all places are taken.
func (p *slots) count(now time.Time, n int) {
	if since := now.Sub(p.window); since >= slotWait {
		p.before = p.served
		if since >= 2*slotWait {
			p.before = 0
		}
		p.served, p.window = 0, now
	}
	p.served += n
}

// hand gives free places to those who wait, if they may have them. The caller holds the lock.
func (p *slots) hand() {
	for p.taken < p.max && len(p.waiting) > 0 && !p.reserved {
		p.taken++
		p.count(time.Now(), 1)
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
}

// release gives a place back.
func (p *slots) release() {
	p.mu.Lock()
	p.taken--
	if !p.reserved && len(p.waiting) == 0 {
		p.count(time.Now(), 1)
	}
	p.hand()
	free := p.taken < p.max
	calls, timers := free && p.reserved, free && p.missed
	p.mu.Unlock()
	if calls {
		p.wakeCalls()
	}
	if timers {
		p.wakeTimers()
	}
}

// takeUpTo takes as many places as are free, at most n, for tasks that are stored. Where none is free the next one is owed to them:
// nobody knows whether there are any before a place lets somebody look.
func (p *slots) takeUpTo(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := max(min(n, p.max-p.taken), 0)
	p.taken += got
	p.reserved = p.reserved || got == 0
	p.look(got)
	return got
}

// takeForTimers leaves the other half of what is free to calls, so that a flood of timers does not shut them out.
func (p *slots) takeForTimers(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.max - p.taken
	got := max(min(n, (free+1)/2), 0)
	p.missed = got == 0
	p.taken += got
	p.look(got)
	return got
}

// look notes that a scan begins which holds places, if it has got any.
func (p *slots) look(got int) {
	if got > 0 {
		p.looks++
	}
}

// callsScanned returns the places that a scan for calls took for more tasks than it found. owed: there may be more tasks than it
// had places for; then the next free place is theirs. It tells whether one is free at this very moment: nobody's release will say
// so any more.
func (p *slots) callsScanned(left int, owed bool) (free bool) {
	p.mu.Lock()
	p.taken -= left
	p.looks--
	p.reserved = owed
	p.hand()
	free = p.taken < p.max
	timers := free && p.missed
	p.mu.Unlock()
	if timers {
		p.wakeTimers()
	}
	return free && owed
}

// noneStored notes that no stored task waits for a place.
func (p *slots) noneStored() {
	p.mu.Lock()
	p.reserved = false
	p.hand()
	p.mu.Unlock()
}

// timersScanned returns the places that a scan for timers took for more than it found. missed: it could have used more.
func (p *slots) timersScanned(left int, missed bool) {
	p.mu.Lock()
	p.taken -= left
	p.looks--
	p.missed = missed
	p.hand()
	calls := p.reserved && p.taken < p.max
	p.mu.Unlock()
	if calls {
		p.wakeCalls()
	}
}

// contended tells whether anybody waits for a place.
func (p *slots) contended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reserved || len(p.waiting) > 0 || p.missed
}

func (p *slots) resize(n int) {
	p.mu.Lock()
	p.max = n
	p.hand()
	p.mu.Unlock()
}

// inUse tells how many places are taken and how many requests wait for one.
func (p *slots) inUse() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.waiting)
}

// force takes a place beyond the bound: for a task that runs already, by the database's word.
func (p *slots) force() {
	p.mu.Lock()
	p.taken++
	p.mu.Unlock()
}

// free tells whether a place is free.
func (p *slots) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken < p.max
}

// size is how many places there are.
func (p *slots) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.max
}
