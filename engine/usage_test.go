package engine

import (
	"errors"
	"testing"
	"time"
)

// Processors use the slots if at least half of the attempts are in a processor, or if processing
// took at least as long as storing in the recent time.
func TestUsage(t *testing.T) {
	t.Parallel()
	u := &usage{}
	now := time.Now()
	expect := func(what string, taken int, want bool) {
		t.Helper()
		if got := u.byProcessors(taken, now); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	u.storing.Store(100)
	expect("storing took all of the time", 2, false)
	u.begin()
	expect("one of two is in its processor", 2, true)
	expect("one of three is in its processor", 3, false)
	u.working.Store(0)
	u.processing.Store(100)
	expect("both took equally long", 2, true)
	u.storing.Store(101)
	now = now.Add(usageWindow)
	expect("storing took longer", 2, false)
	u.processing.Store(150)
	expect("processing took longer in this window", 2, true)
	u.storing.Store(1000)
	now = now.Add(usageWindow)
	expect("storing took longer in this window", 2, false)
	u.processing.Store(1100)
	now = now.Add(usageWindow)
	expect("processing took longer in this window and the last one", 2, true)
}

// A call that waits in memory for its process may keep its slot while nothing else waits for one.
// While new requests wait, it may keep the slot only if the tasks would wait for the database. It
// never keeps the slot while stored tasks, timers or another namespace wait.
func TestCallMayHoldItsSlot(t *testing.T) {
	t.Parallel()
	p, _, _ := newSlots(1)
	ns := &namespace{slots: p, usage: &usage{}}
	expect := func(what string, want bool) {
		t.Helper()
		if got := ns.mayHoldSlot(); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	expect("a slot is free", true)
	p.tryTake()
	expect("nothing waits", true)
	p.queue = append(p.queue, make(chan struct{}))
	ns.usage.processing.Store(2)
	ns.usage.storing.Store(1)
	expect("a request waits for processors", false)
	ns.usage.storing.Store(3)
	expect("a request waits for the database", true)
	for _, c := range []class{stored, timers} {
		p.waits[c] = true
		expect("stored tasks or timers also wait", false)
		p.waits[c] = false
	}
	p.node.queue = append(p.node.queue, &slots{})
	expect("another namespace waits for a slot of the node", false)
}

// The backlog is counted rarely. Between two counts, the tasks that this node stores are added.
func TestBacklogIsCounted(t *testing.T) {
	t.Parallel()
	b := &backlog{}
	counts, waiting := 0, 3
	add := func(now time.Time, want bool) {
		t.Helper()
		ok, err := b.add(5, now, func() (int, error) { counts++; return waiting, nil })
		if ok != want || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
	now := time.Now()
	b.counted(3, now.Add(-time.Second), now)
	for _, want := range []bool{true, true, false} {
		add(now, want)
	}
	if counts != 0 {
		t.Errorf("counted %d times before the pause of %d durations was over", counts, backlogPauseFactor)
	}
	now = now.Add(backlogPauseFactor * time.Second)
	for _, want := range []bool{true, false} {
		waiting = 4
		add(now, want)
		b.next = now.Add(time.Second)
	}
	if counts != 1 {
		t.Errorf("counted %d times", counts)
	}
	b.next, waiting = now, 1
	b.counting.Lock()
	add(now, false) // another request is counting, so the known number applies
	b.counting.Unlock()
	if _, err := b.add(5, now, func() (int, error) { return 0, errors.New("away") }); err == nil {
		t.Error("a failed count is used")
	}
	add(now, true)
}
