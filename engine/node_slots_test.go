package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// onNode returns the slots of n namespaces of a node. Each namespace has slotsEach slots. The slots
// wake no scans.
func onNode(node *nodeSlots, n, slotsEach int) []*slots {
	all := make([]*slots, n)
	for i := range all {
		all[i] = &slots{max: slotsEach, node: node, wakeStored: func() {}, wakeTimers: func() {}}
	}
	return all
}

// A namespace leaves some of the slots of the node to other namespaces, except if the node has only
// one.
func TestNodeSlotsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bound, alone, both int }{
		{1, 1, 1}, {2, 1, 2}, {4, 3, 4}, {10, 8, 9}, {1000, 800, 889},
	} {
		node := &nodeSlots{max: c.bound}
		all := onNode(node, 2, c.bound)
		alone := 0
		for all[0].tryTake() {
			alone++
		}
		both := alone
		for all[1].tryTake() {
			both++
		}
		for all[0].tryTake() {
			both++
		}
		if alone != c.alone || both < c.both-1 || both > c.bound {
			t.Errorf("bound %d: one namespace got %d slots, two namespaces got %d", c.bound, alone, both)
		}
		if taken, _ := node.inUse(); taken != both {
			t.Errorf("bound %d: %d slots are taken, but %d were granted", c.bound, taken, both)
		}
	}
}

// A free slot belongs to the namespace that has waited longest, not to the one that released it.
func TestNodeSlotsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := &nodeSlots{max: 1}
		all := onNode(node, 3, 10)
		all[0].tryTake()
		order := make(chan int, 6)
		for round := range 2 {
			for i, s := range []*slots{all[1], all[2], all[0]} {
				go func() {
					if s.take(context.Background()) {
						order <- i
					}
				}()
				synctest.Wait()
			}
			if round == 0 && all[0].tryTake() {
				t.Error("a slot was taken although others wait")
			}
		}
		all[0].release(fresh)
		for turn := range 6 {
			synctest.Wait()
			select {
			case got := <-order:
				if got != turn%3 {
					t.Errorf("turn %d went to namespace %d", turn, got)
				}
				[]*slots{all[1], all[2], all[0]}[got].release(fresh)
			default:
				t.Fatalf("no namespace got a slot in turn %d", turn)
			}
		}
		if taken, waits := node.inUse(); taken != 0 || waits == 0 || len(node.queue) != 0 {
			t.Errorf("%d taken, %d waits, %d namespaces wait", taken, waits, len(node.queue))
		}
	})
}

// If the scan of a namespace does not come, for example because the namespace was paused, the slot
// for that scan stays free only for a limited time.
func TestNodeSlotsTurnIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := onNode(&nodeSlots{max: 1}, 2, 1)
		all[0].tryTake()
		if all[1].takeStored(1) != 0 {
			t.Fatal("two tasks run")
		}
		all[0].release(fresh)
		if all[0].tryTake() {
			t.Error("a namespace got a slot in the turn of the other one")
		}
		time.Sleep(slotTurn + time.Millisecond)
		if !all[0].tryTake() {
			t.Error("the slot stays free")
		}
		if all[1].takeStored(1) != 0 {
			t.Fatal("two tasks run")
		}
		all[0].release(fresh)
		if all[1].pass(); !all[0].tryTake() {
			t.Error("a namespace that skips its turn keeps it")
		}
		all[0].release(fresh)
		if all[1].takeStored(1) != 1 {
			t.Error("a namespace that has lost its turn no longer gets a slot")
		}
	})
}

// Within a namespace, a new request does not get a slot of the node for which stored tasks wait.
func TestNodeSlotsAmongClasses(t *testing.T) {
	t.Parallel()
	all := onNode(&nodeSlots{max: 1}, 1, 10)
	s := all[0]
	woken := 0
	s.wakeStored = func() { woken++ }
	s.tryTake()
	s.takeStored(1)
	if s.release(fresh); woken != 1 {
		t.Errorf("the scan was woken %d times", woken)
	}
	if s.tryTake() {
		t.Error("a new request took the slot of stored tasks")
	}
	if s.takeStored(1) != 1 || s.hasFree(stored) {
		t.Error("the stored tasks did not get the slot")
	}
	s.scanned(stored, 1, false)
	if s.node.taken != 0 || len(s.node.queue) != 0 {
		t.Errorf("%d slots are taken, %d namespaces wait", s.node.taken, len(s.node.queue))
	}
}

// In any order of operations, the slots that the node counts are those that its namespaces use.
// While a new request waits for a slot, no slot stays free, except for a namespace that has a turn
// because its scan was woken.
func TestNodeSlotsNeverLeak(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		node := &nodeSlots{max: rapid.IntRange(1, 5).Draw(t, "node")}
		all := onNode(node, 3, 3)
		woken := map[*slots]bool{}
		for _, s := range all {
			s.wakeStored = func() { woken[s] = true }
		}
		draw := func(t *rapid.T) *slots { return all[rapid.IntRange(0, len(all)-1).Draw(t, "namespace")] }
		waiting := func(s *slots) bool { return len(s.queue) > 0 || s.waits[stored] }
		t.Repeat(map[string]func(*rapid.T){
			"try": func(t *rapid.T) { draw(t).tryTake() },
			"wait": func(t *rapid.T) {
				s := draw(t)
				if s.tryTake() {
					return
				}
				s.queue = append(s.queue, make(chan struct{}))
				_, w := s.distribute(fresh, 0)
				s.wake(w)
			},
			"give up": func(t *rapid.T) {
				s := draw(t)
				if len(s.queue) == 0 {
					t.Skip("none waits")
				}
				s.giveUp(s.queue[0], true, true)
			},
			"release": func(t *rapid.T) {
				s := draw(t)
				c := class(rapid.IntRange(0, int(stored)).Draw(t, "class"))
				if s.shares.taken[c] == 0 {
					t.Skip("nothing to release")
				}
				s.release(c)
			},
			"scan": func(t *rapid.T) {
				s := draw(t)
				woken[s] = false
				if n := s.takeStored(rapid.IntRange(1, 4).Draw(t, "n")); n > 0 {
					used := rapid.IntRange(0, n).Draw(t, "used")
					if s.scanned(stored, n-used, used == n && rapid.Bool().Draw(t, "more")) {
						woken[s] = true
					}
				}
			},
			"none": func(t *rapid.T) { draw(t).noneStored() },
			"": func(t *rapid.T) {
				total, turns := 0, 0
				for _, s := range all {
					if s.share.held != s.shares.total() {
						t.Fatalf("the node counts %d slots of %d", s.share.held, s.shares.total())
					}
					if total += s.share.held; woken[s] && waiting(s) {
						turns++
					}
					if s.share.waiting && !waiting(s) {
						t.Fatal("a namespace waits although it needs no slot")
					}
				}
				if total != node.taken || total > node.max {
					t.Fatalf("%d slots of %d are taken, by namespaces: %d", node.taken, node.max, total)
				}
				for n, s := range all {
					if len(s.queue) > 0 && !woken[s] && s.free() > 0 && node.rest(s, node.max-total) > 0 &&
						node.max-total > turns {
						t.Fatalf("a request of namespace %d waits, %d slots are free, %d scans were woken", n,
							node.max-total, turns)
					}
				}
			},
		})
	})
}
