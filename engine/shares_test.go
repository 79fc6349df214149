package engine

import "testing"

// Each waiting class gets its share of the slots over time, even if there is only one slot. No slot
// stays free, and a class that waits alone gets all slots.
func TestSharesOfWaitingClasses(t *testing.T) {
	t.Parallel()
	const most = 1 << 30
	for _, tc := range []struct {
		slots  int
		wanted [classes]int
		least  [classes]int // minimum of 100 ended tasks
	}{
		{1, [classes]int{most, most, most}, [classes]int{33, 33, 33}},
		{2, [classes]int{most, most, most}, [classes]int{33, 33, 33}},
		{4, [classes]int{most, most, most}, [classes]int{45, 20, 20}},
		{100, [classes]int{most, most, most}, [classes]int{45, 20, 20}},
		{4, [classes]int{most, most, 0}, [classes]int{50, 30, 0}},
		{4, [classes]int{0, most, most}, [classes]int{0, 45, 45}},
		{4, [classes]int{0, 0, most}, [classes]int{0, 0, 100}},
		{4, [classes]int{most, 0, 0}, [classes]int{100, 0, 0}},
	} {
		var s shares
		var running []class
		var ended [classes]int
		for range 100 * tc.slots {
			for s.total() < tc.slots {
				c, ok := s.next(tc.wanted)
				if !ok {
					t.Fatalf("%+v: a slot stays free", tc)
				}
				s.take(c)
				running = append(running, c)
			}
			s.taken[running[0]]--
			ended[running[0]]++
			running = running[1:]
		}
		for c, n := range ended {
			if n < tc.least[c]*tc.slots {
				t.Errorf("%+v: class %d ended %d of %d tasks", tc, c, n, 100*tc.slots)
			}
		}
	}
}

// A class that has held all slots while it was alone releases slots to the others until they have
// their shares.
func TestSharesGiveWay(t *testing.T) {
	t.Parallel()
	s := shares{taken: [classes]int{fresh: 8}}
	wanted := [classes]int{1 << 30, 1 << 30, 1 << 30}
	for range 4 {
		s.taken[fresh]--
		c, _ := s.next(wanted)
		s.take(c)
	}
	if s.taken != [classes]int{fresh: 4, stored: 2, timers: 2} {
		t.Errorf("slots by class: %v", s.taken)
	}
	if !s.getsSlot(fresh, 3, wanted) || s.getsSlot(fresh, 3, [classes]int{}) {
		t.Error("reach does not follow next")
	}
}
