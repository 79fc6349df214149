package engine

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// newSlots returns slots and counters of the wake-ups of the two pollers.
func newSlots(n int) (p *slots, calls, timers *int) {
	calls, timers = new(int), new(int)
	node := &nodeSlots{max: math.MaxInt32}
	return &slots{max: n, node: node, wakeStored: func() { *calls++ }, wakeTimers: func() { *timers++ }}, calls, timers
}

func inUse(t *testing.T, p *slots, taken, waiting int) {
	t.Helper()
	if gotTaken, gotWaiting := p.inUse(); gotTaken != taken || gotWaiting != waiting {
		t.Errorf("%d slots taken, %d wait; want %d and %d", gotTaken, gotWaiting, taken, waiting)
	}
}

// A long scan holds slots that it may not need. A waiting request gets one of them when the scan
// has found nothing. If the scan does not end, the request is rejected after maxSlotWaits times
// slotWait.
func TestSlotsDuringAScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(1)
		p.takeStored(1)
		go func() {
			time.Sleep(5 * slotWait)
			p.scanned(stored, 1, false)
		}()
		began := time.Now()
		if !p.take(t.Context()) || time.Since(began) != 5*slotWait {
			t.Errorf("rejected after %s", time.Since(began))
		}
		p.release(fresh)
		p.takeStored(1)
		began = time.Now()
		if p.take(t.Context()) || time.Since(began) != maxSlotWaits*slotWait {
			t.Errorf("a scan that does not end: rejected after %s", time.Since(began))
		}
	})
}

// A scan skips a task whose process is locked, and a new request gets the slot of the scan. When
// the request has ended, the poller is woken, because it has found no free slot to repeat the scan.
func TestSlotOfASkippedTask(t *testing.T) {
	t.Parallel()
	p, calls, _ := newSlots(1)
	p.takeStored(1)
	p.scanned(stored, 1, false)
	if !p.hasFree(stored) || !p.tryTake() || p.hasFree(stored) {
		t.Fatal("the request did not get the only slot")
	}
	if p.release(fresh); *calls != 1 {
		t.Errorf("woken %d times, want once", *calls)
	}
}

// New requests get slots in the order of their arrival.
func TestSlotsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(3)
		for range 3 {
			if !p.tryTake() {
				t.Fatal("a free slot was not granted")
			}
		}
		var mu sync.Mutex
		var got []int
		for n := range 3 {
			go func() {
				if p.take(t.Context()) {
					mu.Lock()
					got = append(got, n)
					mu.Unlock()
				}
			}()
			synctest.Wait() // the request waits in the queue
		}
		inUse(t, p, 3, 3)
		if p.tryTake() {
			t.Error("a slot was taken although others wait")
		}
		for range 3 {
			p.release(fresh)
			synctest.Wait()
		}
		if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
			t.Errorf("served in the order %v", got)
		}
		inUse(t, p, 3, 0)
	})
}

// A request waits at most 100 ms, and no more requests wait than there are slots.
func TestSlotsRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(1)
		p.tryTake()
		waited := make(chan time.Duration)
		go func() {
			began := time.Now()
			if p.take(context.Background()) {
				t.Error("a slot was taken although none is free")
			}
			waited <- time.Since(began)
		}()
		synctest.Wait()
		began := time.Now()
		if p.take(context.Background()) || time.Since(began) != 0 {
			t.Errorf("one more request than there are slots waited for %s", time.Since(began))
		}
		if d := <-waited; d != slotWait {
			t.Errorf("rejected after %s, not %s", d, slotWait)
		}
		inUse(t, p, 1, 0)

		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan bool)
		go func() { gone <- p.take(ctx) }()
		synctest.Wait()
		cancel()
		if <-gone {
			t.Error("a disconnected client got a slot")
		}
		inUse(t, p, 1, 0)
	})
}

// After a request has waited without getting a slot, only as many requests wait as can be served in
// time. The other requests fail fast.
func TestSlotsRefuseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(20)
		for range 20 {
			p.tryTake()
		}
		// startRequests starts n requests, and returns how many of them wait.
		startRequests := func(n int) (waiting int) {
			synctest.Wait() // requests whose wait has ended have returned
			_, before := p.inUse()
			for range n {
				go p.take(context.Background())
			}
			synctest.Wait()
			_, after := p.inUse()
			return after - before
		}
		if n := startRequests(20); n != 20 {
			t.Errorf("%d of the first 20 wait", n)
		}
		for range 12 {
			p.release(fresh)
		}
		synctest.Wait()
		time.Sleep(slotWait) // eight wait and get no slot
		if n := startRequests(20); n != 6 {
			t.Errorf("%d wait, although 12 were served in 100 ms", n)
		}
		time.Sleep(2 * slotWait)
		if n := startRequests(20); n != 1 {
			t.Errorf("%d requests wait for a class that is not served", n)
		}
		time.Sleep(slotWait + failFastFor + 1)
		if n := startRequests(20); n != 20 {
			t.Errorf("%d of 20 wait long after the last request that got no slot", n)
		}
		time.Sleep(slotWait)
	})
}

// When slots become free again after a stall, as many requests may wait as can be served in time,
// even if none waited during the stall.
func TestSlotsWaitAfterAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(20)
		for range 20 {
			p.tryTake()
		}
		go p.take(context.Background())
		time.Sleep(2 * slotWait) // no slot is free
		for range 50 {
			p.release(fresh)
			time.Sleep(slotWait / 50)
			p.tryTake()
		}
		for range 20 {
			go p.take(context.Background())
		}
		synctest.Wait()
		if _, n := p.inUse(); n != 20 {
			t.Errorf("%d of 20 wait, although 50 slots became free in 100 ms", n)
		}
		time.Sleep(slotWait)
	})
}

// A free slot goes to the waiting class with the smallest share of the slots. The poller of that
// class is woken, and no new request takes the slot before the poller scans.
func TestSlotsLeftForStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, wokenStored, wokenTimers := newSlots(1)
		p.tryTake()
		if p.takeStored(256) != 0 {
			t.Fatal("a slot was taken although none is free")
		}
		served := make(chan bool, 1)
		go func() { served <- p.take(t.Context()) }()
		synctest.Wait()
		p.release(fresh)
		synctest.Wait()
		if len(served) > 0 || *wokenStored != 1 || *wokenTimers != 0 {
			t.Fatalf("the free slot went to a new request: stored woken %d times, timers %d", *wokenStored,
				*wokenTimers)
		}
		if p.tryTake() || p.tryTakeIdle() {
			t.Fatal("a new request took a slot that was reserved for stored tasks")
		}
		if got := p.takeStored(256); got != 1 {
			t.Fatalf("%d slots for the stored task", got)
		}
		if p.scanned(stored, 0, true) {
			t.Error("a taken slot is reported as free")
		}
		p.release(stored)
		synctest.Wait()
		if len(served) != 1 || !<-served {
			t.Error("the new request did not get its turn")
		}
		p.release(fresh)
		if *wokenStored != 2 {
			t.Errorf("the next slot does not wake the poller: %d", *wokenStored)
		}
		if p.tryTake() {
			t.Error("a new request took the slot of stored tasks before their poller did")
		}
		p.takeStored(256)
		p.release(stored)
		// The task ended before its scan, so no release will report a free slot.
		if !p.scanned(stored, 0, true) {
			t.Error("a free slot that belongs to stored tasks is not reported")
		}
		p.noneStored()
		if !p.tryTake() {
			t.Error("no slot although no task waits")
		}
	})
}

// A scan for timers takes at most half of the free slots. The poller of timers is woken when a slot
// is free for them.
func TestSlotsOfTimers(t *testing.T) {
	t.Parallel()
	p, wokenStored, wokenTimers := newSlots(8)
	for n, want := range []int{4, 2} {
		if got := p.takeTimers(256); got != want {
			t.Errorf("scan %d takes %d slots, want %d", n, got, want)
		}
	}
	if got := p.takeTimers(1); got != 1 {
		t.Errorf("one timer takes %d slots", got)
	}
	if got := p.takeTimers(256); got != 1 {
		t.Errorf("the last slot: %d", got)
	}
	if p.contended() || p.takeTimers(256) != 0 || !p.contended() {
		t.Error("timers that find no slot wait")
	}
	p.release(timers)
	if *wokenTimers != 1 || *wokenStored != 0 {
		t.Errorf("a free slot wakes the timers %d times, stored tasks %d times", *wokenTimers, *wokenStored)
	}
	p.scanned(timers, 3, false)
	p.release(timers)
	if *wokenTimers != 1 || p.contended() {
		t.Error("timers still wait")
	}
	inUse(t, p, 3, 0)
	// A scan that releases slots wakes the poller of the other class.
	p.takeStored(8)
	if p.takeTimers(8) != 0 {
		t.Fatal("got a slot, although all are taken")
	}
	if p.scanned(stored, 5, false); *wokenTimers != 2 {
		t.Error("the timers are not woken when the scan of stored tasks returns slots")
	}
}

func TestSlotsResize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(1)
		p.tryTake()
		served := make(chan bool, 1)
		go func() { served <- p.take(t.Context()) }()
		synctest.Wait()
		p.resize(2)
		if !<-served {
			t.Error("the waiting request got no slot after resize")
		}
		p.force(stored) // an adopted task runs even if no slot is free
		inUse(t, p, 3, 0)
		p.resize(1)
		p.release(fresh)
		p.release(fresh)
		if p.tryTake() {
			t.Error("a slot beyond the new maximum was taken")
		}
		p.release(fresh)
		if !p.tryTake() {
			t.Error("the free slot was not granted")
		}
	})
}

// In any order of operations, no slot is lost or taken twice. If no other class waits, a scan for
// stored tasks gets every free slot that it can use.
func TestSlotsNeverLeak(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, _, _ := newSlots(rapid.IntRange(1, 5).Draw(t, "slots"))
		held, forced := [classes]int{}, 0
		total := func() int { return held[fresh] + held[stored] + held[timers] }
		scan := func(c class, take func(int) int) func(*rapid.T) {
			return func(t *rapid.T) {
				n := rapid.IntRange(1, 6).Draw(t, "n")
				alone := !p.contended()
				free := p.free()
				got := take(n)
				if want := min(n, free); c == stored && alone && got < want {
					t.Fatalf("%d of %d free slots for the only class that waits", got, want)
				}
				if got == 0 {
					return
				}
				used := rapid.IntRange(0, got).Draw(t, "used")
				held[c] += used
				p.scanned(c, got-used, rapid.Bool().Draw(t, "more"))
			}
		}
		count := func(taken bool) {
			if taken {
				held[fresh]++
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"try":  func(*rapid.T) { count(p.tryTake()) },
			"idle": func(*rapid.T) { count(p.tryTakeIdle()) },
			"gone": func(*rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				count(p.take(ctx))
			},
			"release": func(t *rapid.T) {
				c := class(rapid.IntRange(0, int(classes)-1).Draw(t, "class"))
				if held[c] == 0 {
					t.Skip("nothing to release")
				}
				held[c]--
				forced = max(forced-1, 0)
				p.release(c)
			},
			"stored": scan(stored, p.takeStored),
			"timers": scan(timers, p.takeTimers),
			"none":   func(*rapid.T) { p.noneStored() },
			"force": func(*rapid.T) {
				p.force(stored)
				held[stored]++
				forced++
			},
			"resize": func(t *rapid.T) {
				n := rapid.IntRange(1, 5).Draw(t, "n")
				forced = max(forced, total()-n) // running tasks continue
				p.resize(n)
			},
			"": func(t *rapid.T) {
				if p.shares.taken != held || len(p.queue) != 0 || total() > p.max+forced {
					t.Fatalf("%v of %d slots are taken, %v are held (%d beyond the bound), %d wait", p.shares.taken,
						p.max, held, forced, len(p.queue))
				}
			},
		})
	})
}

// Concurrent requests and scans never take more slots than there are. At the end, no slot is taken.
func TestSlotsConcurrently(t *testing.T) {
	t.Parallel()
	p := &slots{max: 4, node: &nodeSlots{max: math.MaxInt32}, wakeStored: func() {}, wakeTimers: func() {}}
	var mu sync.Mutex
	running, most := 0, 0
	work := func(c class, n int) {
		mu.Lock()
		running += n
		most = max(most, running)
		mu.Unlock()
		mu.Lock()
		running -= n
		mu.Unlock()
		for range n {
			p.release(c)
		}
	}
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			for range 300 {
				switch n % 4 {
				case 0:
					got := p.takeStored(2)
					if got > 0 {
						p.scanned(stored, 0, false)
					}
					work(stored, got)
				case 1:
					got := p.takeTimers(2)
					if got > 0 {
						p.scanned(timers, 0, false)
					}
					work(timers, got)
				default:
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					if p.take(ctx) {
						work(fresh, 1)
					}
					cancel()
				}
			}
		})
	}
	group.Wait()
	inUse(t, p, 0, 0)
	if most > 4 {
		t.Errorf("%d ran in 4 slots", most)
	}
}
