package engine

import (
	"slices"
	"sync"
	"time"
)

const (
	// slotShareFactor limits a namespace to this multiple of the node's free slots. A single busy
	// namespace reaches 80% of Config.MaxRunning, and the rest stays free for others (see
	// shareFactor).
	slotShareFactor = 4
	// guaranteedSlots is the part of Config.MaxRunning (1/100) that a namespace may hold even if
	// few slots are free.
	guaranteedSlots = 100
	// slotTurn is how long a slot stays free for the namespace whose turn has come. The poller
	// needs one scan to use it.
	slotTurn = time.Second
)

// nodeSlots limits how many tasks of all namespaces run on this node at a time. A slot of a
// namespace also needs a slot of the node. Namespaces that were denied a slot wait in the order of
// the denials. A slot that becomes free belongs to the first of them. It is safe for concurrent
// use. Its lock may be taken while the lock of slots is held, but not vice versa.
type nodeSlots struct {
	mu    sync.Mutex
	max   int
	taken int
	// queue contains the waiting namespaces. Those that have reached their share keep their
	// position and are skipped.
	queue []*slots
	waits int // denials so far
}

// nodeShare is the state of a namespace in nodeSlots. The lock of nodeSlots guards it.
type nodeShare struct {
	held    int
	waiting bool      // the namespace is in the queue
	offered time.Time // when its turn came; zero if it has not come
}

// available returns the number of slots that a namespace can get now: the free ones, minus one for
// each namespace ahead of it, up to its share. The caller holds the lock.
func (n *nodeSlots) available(s *slots) int {
	free := n.max - n.taken
	room := min(free, n.rest(s, free))
	if room <= 0 || len(n.queue) == 0 {
		return max(room, 0)
	}
	n.dropExpired(time.Now())
	for _, other := range n.queue {
		if other == s || free == 0 {
			break
		}
		if n.rest(other, n.max-n.taken) > 0 {
			free--
		}
	}
	return min(room, free)
}

// rest returns how many of the free slots a namespace may take without exceeding its share.
func (n *nodeSlots) rest(s *slots, free int) int {
	held := s.share.held
	return max((slotShareFactor*free-held)/(slotShareFactor+1), n.max/guaranteedSlots-held, 1-held)
}

// dropExpired removes namespaces that have not used their turn. The caller holds the lock.
func (n *nodeSlots) dropExpired(now time.Time) {
	n.queue = slices.DeleteFunc(n.queue, func(s *slots) bool {
		expired := !s.share.offered.IsZero() && now.Sub(s.share.offered) > slotTurn
		if expired {
			s.share.waiting, s.share.offered = false, time.Time{}
		}
		return expired
	})
}

// free returns the number of slots that a namespace can get now.
func (n *nodeSlots) free(s *slots) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.available(s)
}

// take takes a slot for a namespace if one is available to it. That ends its turn.
func (n *nodeSlots) take(s *slots) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.available(s) == 0 {
		return false
	}
	n.add(s, 1)
	n.remove(s)
	return true
}

// wait queues a namespace for a slot. It returns the namespaces whose turn has come. The caller
// must call redistribute for them, without holding any lock.
func (n *nodeSlots) wait(s *slots) (turns []*slots) {
	n.mu.Lock()
	defer n.mu.Unlock()
	room := n.available(s)
	if !s.share.waiting {
		n.queue = append(n.queue, s)
		s.share.waiting = true
		n.waits++
	}
	if room == 0 {
		s.share.offered = time.Time{} // it gets another turn
	}
	return n.turns()
}

// release returns slots of a namespace to the node. The caller redistributes them. Like wait, it
// returns the other namespaces whose turn has come.
func (n *nodeSlots) release(s *slots, count int) (turns []*slots) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.add(s, -count)
	return slices.DeleteFunc(n.turns(), func(other *slots) bool { return other == s })
}

// leave removes a namespace that no longer needs a slot from the queue. It returns the others whose
// turn has come.
func (n *nodeSlots) leave(s *slots) (turns []*slots) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !s.share.waiting {
		return nil
	}
	n.remove(s)
	return n.turns()
}

// add changes how many slots a namespace holds. The caller holds the lock.
func (n *nodeSlots) add(s *slots, count int) {
	n.taken += count
	s.share.held += count
}

// remove removes a namespace from the queue. The caller holds the lock.
func (n *nodeSlots) remove(s *slots) {
	if s.share.waiting {
		n.queue = slices.DeleteFunc(n.queue, func(other *slots) bool { return other == s })
	}
	s.share.waiting, s.share.offered = false, time.Time{}
}

// turns returns the namespaces whose turn has come: a slot is free for each of them. The caller
// holds the lock.
func (n *nodeSlots) turns() (turns []*slots) {
	free := n.max - n.taken
	if free <= 0 || len(n.queue) == 0 {
		return nil
	}
	now := time.Now()
	n.dropExpired(now)
	left := free
	for _, s := range n.queue {
		if left == 0 {
			break
		}
		if n.rest(s, free) <= 0 {
			continue
		}
		left--
		if s.share.offered.IsZero() {
			s.share.offered = now
			turns = append(turns, s)
		}
	}
	return turns
}

// force takes a slot even if none is free.
func (n *nodeSlots) force(s *slots) {
	n.mu.Lock()
	n.add(s, 1)
	n.mu.Unlock()
}

// contended reports whether a namespace other than that of s waits for a slot.
func (n *nodeSlots) contended(s *slots) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.queue) > 1 || len(n.queue) == 1 && n.queue[0] != s
}

// inUse returns how many slots are taken, and how often a namespace had to wait for one.
func (n *nodeSlots) inUse() (taken, waits int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.taken, n.waits
}
