package engine

// class is the origin of a task that needs a slot.
type class int

const (
	fresh   class = iota // a request that has just arrived
	stored               // a task in table schedule that waits for a slot
	timers               // a task that is due
	classes              // number of classes
)

// weights are the shares of the slots that the classes get while all of them wait: 2 of 4, 1 of 4,
// 1 of 4.
var weights = [classes]int{fresh: 2, stored: 1, timers: 1}

// shares divides the slots of a namespace among classes of tasks. A slot goes to the waiting class
// that has taken the fewest slots for its weight. As a result, no class starves, and a class that
// waits alone gets all slots.
type shares struct {
	taken  [classes]int
	latest [classes]uint64 // number of the last slot that the class took
	count  uint64          // slots taken so far
}

// total returns the number of taken slots.
func (s *shares) total() int {
	n := 0
	for _, taken := range s.taken {
		n += taken
	}
	return n
}

// take takes a slot for a class.
func (s *shares) take(c class) {
	s.count++
	s.taken[c]++
	s.latest[c] = s.count
}

// next returns the class that gets the next slot. If two classes have taken equally many slots for
// their weights, the class that got its last slot earlier goes first, so that the classes share
// even a single slot. ok is false if no class wants a slot.
func (s *shares) next(wanted [classes]int) (next class, ok bool) {
	for c := range classes {
		if wanted[c] > 0 && (!ok || s.before(c, next)) {
			next, ok = c, true
		}
	}
	return next, ok
}

// before reports whether class a gets a slot before class b.
func (s *shares) before(a, b class) bool {
	partA, partB := s.taken[a]*weights[b], s.taken[b]*weights[a]
	return partA < partB || partA == partB && s.latest[a] < s.latest[b]
}

// getsSlot reports whether class c gets one of the free slots.
func (s shares) getsSlot(c class, free int, wanted [classes]int) bool {
	for range free {
		next, ok := s.next(wanted)
		if !ok || next == c {
			return ok
		}
		s.take(next)
		wanted[next]--
	}
	return false
}
