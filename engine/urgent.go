package engine

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Urgent claims the tasks of a kind whose attempts take milliseconds. They run in addition to the
// slots and before all other timers. Otherwise, they would have to wait for the complete backlog of
// other tasks. Messages that their results send are not delivered until no urgent task is due or
// running, but wait at most maxLowPriorityWait.
type Urgent struct {
	// Timers claims due timers of the kind, in the order in which they were due. Calls claims its
	// other tasks. A timer waits behind the other tasks of its process, so these must not wait for
	// slots either.
	Timers, Calls func(context.Context, []storage.ClaimLimit) ([]storage.Claim, error)
}

// isUrgent reports whether a kind is urgent.
func (e *Engine) isUrgent(kind string) bool { return e.kinds[kind].Urgent != nil }

const (
	// maxUrgent is the maximum number of urgent tasks of a namespace that run on a node in addition
	// to its slots: two full flushes, and a third one that is being prepared.
	maxUrgent = 768
	// urgentBatch is the minimum size of a claim while more urgent tasks are due than may run. A
	// scan for a few rows costs as much as one for many.
	urgentBatch = 128
	// urgentGap is the interval between scans for urgent tasks while all slots of the node are
	// taken.
	urgentGap = 200 * time.Millisecond
)

// urgentSlots limits the urgent tasks of a namespace that run on this node in addition to its
// slots.
type urgentSlots struct {
	mu    sync.Mutex
	taken int
	short bool // a scan could have used more slots
	wake  func()
}

// take takes at most limit slots for a scan. It returns 0 if there are too few free slots for a
// scan to be worthwhile.
func (p *urgentSlots) take(limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := maxUrgent - p.taken
	if p.short = free < urgentBatch; p.short {
		return 0
	}
	n := min(free, limit)
	p.taken += n
	return n
}

// giveBack releases slots. It wakes the poller if the poller had too few slots.
func (p *urgentSlots) giveBack(n int) {
	p.mu.Lock()
	p.taken -= n
	wake := p.short && maxUrgent-p.taken >= urgentBatch
	if wake {
		p.short = false
	}
	p.mu.Unlock()
	if wake {
		p.wake()
	}
}

// claimUrgent claims only urgent tasks. It needs additional statements, so it runs only if there is
// a backlog. more is true if more urgent timers may be due.
func (p *timerPoller) claimUrgent(ctx context.Context) (more bool) {
	for _, k := range p.engine.kinds {
		if k.Urgent != nil {
			more = p.claimUrgentTimers(ctx, k) || more
			p.claimUrgentCalls(ctx, k)
		}
	}
	return more
}

// claimUrgentTimers claims the timers of an urgent kind. more is true if more of them may be due.
func (p *timerPoller) claimUrgentTimers(ctx context.Context, k Kind) (more bool) {
	e := p.engine
	limits := p.urgentLimits()
	if len(limits.limits) == 0 {
		return false
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, err := k.Urgent.Timers(limit, limits.limits)
	p.urgentBound.done(err)
	if err != nil {
		e.scanFailed(ctx, urgentTimers(k), err)
		e.expectLostClaims()
	}
	for n := range claims {
		e.timerLate(claims[n].RunningTime.Sub(claims[n].ScheduledTime))
	}
	more = p.startUrgent(limits, claims)
	p.setUrgentDue(more)
	return more
}

// claimUrgentCalls claims the other tasks of an urgent kind, such as messages.
func (p *timerPoller) claimUrgentCalls(ctx context.Context, k Kind) {
	e := p.engine
	limits := p.urgentLimits()
	if len(limits.limits) == 0 {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	claims, err := k.Urgent.Calls(limit, limits.limits)
	if err != nil {
		e.scanFailed(ctx, urgentCalls(k), err)
		e.expectLostClaims()
	}
	if p.startUrgent(limits, claims) {
		p.alarm(limits.limits[0].Namespace, 0)
	}
}

// urgentLimits takes slots for urgent tasks in all namespaces.
func (p *timerPoller) urgentLimits() *scanLimits {
	return p.engine.newScanLimits(&p.urgentBound, p.engine.NamespaceNames(),
		func(ns *namespace, n int) int { return ns.urgentSlots.take(n) })
}

// startUrgent runs claimed urgent tasks and releases the unused slots. more is true if more urgent
// tasks may be due: the claims used all slots of a namespace, or reached the byte limit of a scan.
func (p *timerPoller) startUrgent(limits *scanLimits, claims []storage.Claim) (more bool) {
	p.urgentRunning.Add(int64(len(claims)))
	left, cut := limits.start(claims, func(ns *namespace) func() { return func() { p.urgentEnded(ns) } })
	for n, ns := range limits.namespaces {
		ns.urgentSlots.giveBack(left[n])
		more = more || left[n] == 0
	}
	return more || cut
}

// urgentEnded releases the slot of an urgent task.
func (p *timerPoller) urgentEnded(ns *namespace) {
	ns.urgentSlots.giveBack(1)
	if p.urgentRunning.Add(-1) == 0 && !p.urgentDue.Load() {
		p.engine.messages.startWaiting()
	}
}

// isUrgentPending reports whether urgent tasks are due or running. While it returns true, messages
// that their results send wait, at most for maxLowPriorityWait.
func (p *timerPoller) isUrgentPending() bool { return p.urgentDue.Load() || p.urgentRunning.Load() > 0 }

// foundUrgent looks for urgent tasks among the claims of a scan for timers of all kinds. full is
// true if more timers may be due.
func (p *timerPoller) foundUrgent(claims []storage.Claim, full bool) {
	if !full {
		p.setUrgentDue(false)
		return
	}
	for n := range claims {
		if p.engine.isUrgent(claims[n].Kind) {
			p.setUrgentDue(true)
			return
		}
	}
}

// setUrgentDue records whether more urgent tasks are due than this node has claimed.
func (p *timerPoller) setUrgentDue(due bool) {
	if p.urgentDue.Swap(due) && !p.isUrgentPending() {
		p.engine.messages.startWaiting()
	}
}

// urgentTimers and urgentCalls return the names of the scans of an urgent kind.
func urgentTimers(k Kind) string { return k.Name + " timers" }
func urgentCalls(k Kind) string  { return "calls of " + k.Name + "s" }
