package engine

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// slotWait is how long a new request waits in memory for a slot. A request that gets none is
	// stored in the backlog, or rejected.
	slotWait = 100 * time.Millisecond
	// maxSlotWaits limits the wait of a new request while a scan holds slots, in multiples of
	// slotWait. The scan may release the slots, and on a slow database it may take longer than
	// slotWait.
	maxSlotWaits = 10
	// failFastFor is how long maxWaiting stays low after a new request has waited without getting a
	// slot. Overload usually lasts for some time. With a higher limit, another thousand requests
	// per second would wait without getting a slot.
	failFastFor = 10 * time.Second
)

// slots limits how many tasks of a namespace run on this node at a time. A task needs a slot of its
// namespace and one of the node. New requests wait in memory, in the order of their arrival. Stored
// tasks and timers wait in the database, and the pollers take slots for them. If several classes
// wait, shares decides which of them gets a free slot. It is safe for concurrent use.
type slots struct {
	mu     sync.Mutex
	max    int
	shares shares
	waits  [classes]bool   // whether stored tasks or timers may wait because there were too few slots
	queue  []chan struct{} // waiting new requests; a channel is closed when its request has a slot
	scans  int             // scans that hold slots now

	node  *nodeSlots
	share nodeShare

	lastRejected   time.Time // when a new request last waited without getting a slot
	window         time.Time // start of the current window of served
	served, before int       // slots that became free for new requests, in this window and in the previous one

	wakeStored, wakeTimers func() // called if a slot is free for that class
}

// wakeups contains what can use slots that have become free.
type wakeups struct {
	classes    [classes]bool // classes of this namespace whose scans can take slots
	namespaces []*slots      // other namespaces, whose turn to take a slot of the node has come
}

// free returns how many slots of the namespace are free.
func (s *slots) free() int { return s.max - s.shares.total() }

// wanted returns how many slots each class wants.
func (s *slots) wanted() (n [classes]int) {
	n[fresh] = len(s.queue)
	for _, c := range []class{stored, timers} {
		if s.waits[c] {
			n[c] = math.MaxInt
		}
	}
	return n
}

// distribute assigns free slots to the waiting new requests, and at most n slots to class c. It
// does not assign slots that belong to another class, so that the scan of that class can take them.
// If the node has too few slots, the namespace waits for one. The caller holds the lock, and calls
// wake after it has released the lock.
func (s *slots) distribute(c class, n int) (got int, w wakeups) {
	wanted := s.wanted()
	if c != fresh {
		wanted[c] = n
	}
	free, left := s.free(), 0
	if _, wants := s.shares.next(wanted); !wants || free <= 0 {
		w.namespaces = s.node.leave(s)
		return 0, w
	}
	after := s.shares // count the remaining slots as taken
	for range min(free, s.node.free(s)) {
		next, ok := after.next(wanted)
		if !ok {
			break
		}
		if next != fresh && next != c {
			left++
			w.classes[next] = true
			if wanted[fresh] == 0 && (c == fresh || wanted[c] == 0) {
				wanted[next] = 0 // take no more slots for this class
			}
		} else if !s.node.take(s) {
			break // another namespace took the slot first
		} else if s.shares.take(next); next == fresh {
			s.countServed(time.Now(), 1)
			close(s.queue[0])
			s.queue = s.queue[1:]
		} else {
			got++
		}
		after.take(next)
		wanted[next]--
	}
	if _, wants := after.next(wanted); wants && s.free() > left {
		w.namespaces = s.node.wait(s)
	} else if left == 0 {
		w.namespaces = s.node.leave(s)
	}
	return got, w
}

// wake wakes the scans and namespaces that can use the remaining slots.
func (s *slots) wake(w wakeups) {
	if w.classes[stored] {
		s.wakeStored()
	}
	if w.classes[timers] {
		s.wakeTimers()
	}
	for _, other := range w.namespaces {
		other.redistribute()
	}
}

// redistribute distributes slots of the node that have become free.
func (s *slots) redistribute() {
	s.mu.Lock()
	_, w := s.distribute(fresh, 0)
	s.mu.Unlock()
	s.wake(w)
}

// giveBack releases slots that were taken for class c. The caller holds the lock.
func (s *slots) giveBack(c class, n int) (turns []*slots) {
	s.shares.taken[c] -= n
	return s.node.release(s, n)
}

// tryTake takes a slot for a new request if a slot is free and belongs to its class.
func (s *slots) tryTake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 || s.free() <= 0 {
		return false
	}
	if s.waits[stored] || s.waits[timers] {
		wanted := s.wanted()
		wanted[fresh] = 1
		if !s.shares.getsSlot(fresh, min(s.free(), s.node.free(s)), wanted) {
			return false
		}
	}
	if !s.node.take(s) {
		return false
	}
	s.shares.take(fresh)
	return true
}

// tryTakeIdle takes a slot for a request that can be queued instead. It succeeds only if nothing
// waits for a slot.
func (s *slots) tryTakeIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free() <= 0 || s.anyWaits() || !s.node.take(s) {
		return false
	}
	s.shares.take(fresh)
	return true
}

// take waits for a slot for a new request. It waits at most slotWait, or longer while a scan holds
// slots. It fails immediately if maxWaiting requests already wait.
func (s *slots) take(ctx context.Context) bool {
	if s.tryTake() {
		return true
	}
	s.mu.Lock()
	if len(s.queue) >= s.maxWaiting(time.Now()) {
		s.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	s.queue = append(s.queue, turn)
	_, w := s.distribute(fresh, 0)
	s.mu.Unlock()
	s.wake(w)
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	for waits := 1; ; waits++ {
		select {
		case <-turn:
			return true
		case <-timer.C:
		case <-ctx.Done():
		}
		taken, over := s.giveUp(turn, ctx.Err() != nil, waits >= maxSlotWaits)
		if over {
			return taken
		}
		timer.Reset(slotWait)
	}
}

// giveUp ends the wait of a new request. taken is true if the request got a slot at the same time.
// While a scan holds slots, the wait continues, unless the client has disconnected or this was the
// last wait.
func (s *slots) giveUp(turn chan struct{}, gone, last bool) (taken, over bool) {
	s.mu.Lock()
	n := slices.Index(s.queue, turn)
	if n < 0 || s.scans > 0 && !gone && !last {
		s.mu.Unlock()
		return n < 0, n < 0
	}
	s.queue = slices.Delete(s.queue, n, n+1)
	if !gone {
		s.lastRejected = time.Now()
	}
	var w wakeups
	if !s.anyWaits() {
		w.namespaces = s.node.leave(s)
	}
	s.mu.Unlock()
	s.wake(w)
	return false, true
}

// maxWaiting returns how many new requests may wait. After a request has waited without getting a
// slot, maxWaiting returns the number of requests that get a slot within half of slotWait. All
// others would also get none, so they do not wait. The caller holds the lock.
func (s *slots) maxWaiting(now time.Time) int {
	if now.Sub(s.lastRejected) > failFastFor {
		return s.max
	}
	s.countServed(now, 0)
	return min(s.max, max(s.served, s.before, 2)/2)
}

// countServed records that n slots became free for new requests. It also counts slots for which no
// request waited. After a stall no request waits, but maxWaiting must allow requests that arrive
// while all slots are taken. The caller holds the lock.
func (s *slots) countServed(now time.Time, n int) {
	if since := now.Sub(s.window); since >= slotWait {
		s.before = s.served
		if since >= 2*slotWait {
			s.before = 0
		}
		s.served, s.window = 0, now
	}
	s.served += n
}

// release releases a slot that was taken for class c.
func (s *slots) release(c class) {
	s.mu.Lock()
	turns := s.giveBack(c, 1)
	if len(s.queue) == 0 {
		wanted := s.wanted()
		wanted[fresh] = 1
		if next, _ := s.shares.next(wanted); next == fresh {
			s.countServed(time.Now(), 1)
		}
	}
	_, w := s.distribute(fresh, 0)
	s.mu.Unlock()
	w.namespaces = append(w.namespaces, turns...)
	s.wake(w)
}

// takeStored takes at most n slots for a scan of stored tasks. If it takes none, it records that
// stored tasks wait.
func (s *slots) takeStored(n int) int { return s.takeForScan(stored, n) }

// takeTimers takes at most n slots for a scan of timers, and at most half of the free ones. The
// scan may find few timers, and new requests must not wait for it.
func (s *slots) takeTimers(n int) int {
	s.mu.Lock()
	n = min(n, (s.free()+1)/2)
	s.mu.Unlock()
	return s.takeForScan(timers, n)
}

func (s *slots) takeForScan(c class, n int) int {
	s.mu.Lock()
	got, w := s.distribute(c, max(n, 0))
	if got == 0 {
		s.waits[c] = true
	} else {
		s.scans++
	}
	s.mu.Unlock()
	s.wake(w)
	return got
}

// scanned ends a scan that took slots for class c. It releases the unused slots. more is true if
// more tasks may wait than the scan had slots for. again is true if a slot is free for them now.
func (s *slots) scanned(c class, unused int, more bool) (again bool) {
	s.mu.Lock()
	turns := s.giveBack(c, unused)
	s.scans--
	s.waits[c] = more
	_, w := s.distribute(fresh, 0)
	s.mu.Unlock()
	again, w.classes[c] = w.classes[c], false
	w.namespaces = append(w.namespaces, turns...)
	s.wake(w)
	return again
}

// noneStored records that no stored task waits for a slot.
func (s *slots) noneStored() {
	s.mu.Lock()
	changed := s.waits[stored]
	s.waits[stored] = false
	var w wakeups
	if changed {
		_, w = s.distribute(fresh, 0)
	}
	s.mu.Unlock()
	s.wake(w)
}

// pass ends the turn of the namespace to take a slot of the node, because no scan takes tasks of
// this namespace. Other namespaces get the turn.
func (s *slots) pass() { s.wake(wakeups{namespaces: s.node.leave(s)}) }

// contended reports whether anything waits for a slot of this namespace or of the node.
func (s *slots) contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anyWaits() || s.node.contended(s)
}

func (s *slots) anyWaits() bool { return len(s.queue) > 0 || s.waits[stored] || s.waits[timers] }

// resize changes the number of slots. Running tasks continue even if there are fewer slots now.
func (s *slots) resize(n int) {
	s.mu.Lock()
	s.max = n
	_, w := s.distribute(fresh, 0)
	s.mu.Unlock()
	s.wake(w)
}

// inUse returns the number of taken slots and of new requests that wait for one.
func (s *slots) inUse() (taken, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shares.total(), len(s.queue)
}

// demand returns the number of taken slots and of new requests that wait for one. others reports
// whether anything else waits: stored tasks, timers, or another namespace for a slot of the node.
func (s *slots) demand() (taken, waiting int, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others = s.waits[stored] || s.waits[timers] || s.node.contended(s)
	return s.shares.total(), len(s.queue), others
}

// force takes a slot for class c even if none is free, for a task that already runs according to
// the database.
func (s *slots) force(c class) {
	s.mu.Lock()
	s.shares.take(c)
	s.node.force(s)
	s.mu.Unlock()
}

// hasFree reports whether a slot is free for class c, and the node has a slot for it. If not, the
// poller of c is woken when a slot becomes free.
func (s *slots) hasFree(c class) bool {
	if s.takeForScan(c, 1) == 0 {
		return false
	}
	s.scanned(c, 1, false)
	return true
}

// size returns the number of slots.
func (s *slots) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.max
}
