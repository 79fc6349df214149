package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// newSlots counts the wake-ups of the two pollers.
func newSlots(n int) (p *slots, calls, timers *int) {
	calls, timers = new(int), new(int)
	return &slots{max: n, wakeCalls: func() { *calls++ }, wakeTimers: func() { *timers++ }}, calls, timers
}

func inUse(t *testing.T, p *slots, taken, waiting int) {
	t.Helper()
	if gotTaken, gotWaiting := p.inUse(); gotTaken != taken || gotWaiting != waiting {
		t.Errorf("%d places taken, %d wait; want %d and %d", gotTaken, gotWaiting, taken, waiting)
	}
}

// A scan that lasts holds places that are not taken: who waits for one gets it when the scan has found nothing, and is not refused before.
func TestSlotsDuringAScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(1)
		p.takeUpTo(1)
		go func() {
			time.Sleep(5 * slotWait)
			p.callsScanned(1, false)
		}()
		began := time.Now()
		if !p.take(t.Context()) || time.Since(began) != 5*slotWait {
			t.Errorf("refused after %s", time.Since(began))
		}
		p.release()
		p.takeUpTo(1)
		began = time.Now()
		if p.take(t.Context()) || time.Since(began) != maxLooks*slotWait {
			t.Errorf("a scan that does not come back: %s", time.Since(began))
		}
	})
}

// Fresh requests get places in the order in which they came.
func TestSlotsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(3)
		for range 3 {
			if !p.tryTake() {
				t.Fatal("a free place was refused")
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
			synctest.Wait() // it waits in line
		}
		inUse(t, p, 3, 3)
		if p.tryTake() {
			t.Error("a place was taken past those who wait")
		}
		for range 3 {
			p.release()
			synctest.Wait()
		}
		if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
			t.Errorf("served in the order %v", got)
		}
		inUse(t, p, 3, 0)
	})
}

// Nobody waits longer than 100 ms, nor more of them than there are places.
func TestSlotsRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(1)
		p.tryTake()
		waited := make(chan time.Duration)
		go func() {
			began := time.Now()
			if p.take(context.Background()) {
				t.Error("a place that is not free was taken")
			}
			waited <- time.Since(began)
		}()
		synctest.Wait()
		began := time.Now()
		if p.take(context.Background()) || time.Since(began) != 0 {
			t.Errorf("one more than there are places waits, for %s", time.Since(began))
		}
		if d := <-waited; d != slotWait {
			t.Errorf("refused after %s, not %s", d, slotWait)
		}
		inUse(t, p, 1, 0)

		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan bool)
		go func() { gone <- p.take(ctx) }()
		synctest.Wait()
		cancel()
		if <-gone {
			t.Error("a client that is gone got a place")
		}
		inUse(t, p, 1, 0)
	})
}

// Where a request has waited in vain, no more wait than are served in time; the others are refused at once.
func TestSlotsRefuseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(20)
		for range 20 {
			p.tryTake()
		}
		// come has so many come at once, and tells how many of them wait.
		come := func(n int) (waiting int) {
			synctest.Wait() // those whose time is up at this very moment have gone
			_, before := p.inUse()
			for range n {
				go p.take(context.Background())
			}
			synctest.Wait()
			_, after := p.inUse()
			return after - before
		}
		if n := come(20); n != 20 {
			t.Errorf("%d of the first 20 wait", n)
		}
		for range 12 {
			p.release()
		}
		synctest.Wait()
		time.Sleep(slotWait) // eight wait in vain
		if n := come(20); n != 6 {
			t.Errorf("%d wait, where 12 were served in 100 ms", n)
		}
		time.Sleep(2 * slotWait)
		if n := come(20); n != 1 {
			t.Errorf("%d wait, where none was served", n)
		}
		time.Sleep(slotWait + failFastFor + 1)
		if n := come(20); n != 20 {
			t.Errorf("%d of 20 wait long after the last one who did in vain", n)
		}
		time.Sleep(slotWait)
	})
}

// A stall is forgotten at once: where places come free again, as many may wait as are served in time, though nobody waited till then.
func TestSlotsWaitAfterAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newSlots(20)
		for range 20 {
			p.tryTake()
		}
		go p.take(context.Background())
		time.Sleep(2 * slotWait) // in vain
		for range 50 {
			p.release()
			time.Sleep(slotWait / 50)
			p.tryTake()
		}
		for range 20 {
			go p.take(context.Background())
		}
		synctest.Wait()
		if _, n := p.inUse(); n != 20 {
			t.Errorf("%d of 20 wait, where 50 places came free in 100 ms", n)
		}
		time.Sleep(slotWait)
	})
}

// A stored task goes before every fresh request.
func TestSlotsOwed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, calls, timers := newSlots(1)
		p.tryTake()
		if p.takeUpTo(256) != 0 {
			t.Fatal("a place was taken that is not free")
		}
		served := make(chan bool, 1)
		go func() { served <- p.take(t.Context()) }()
		synctest.Wait()
		p.release()
		synctest.Wait()
		if len(served) > 0 || *calls != 1 || *timers != 0 {
			t.Fatalf("the free place went to a fresh request: calls woken %d times, timers %d", *calls, *timers)
		}
		if p.tryTake() {
			t.Fatal("a fresh request took an owed place")
		}
		if got := p.takeUpTo(256); got != 1 {
			t.Fatalf("%d places for the stored task", got)
		}
		if p.callsScanned(0, true) {
			t.Error("a place is said to be free that is not")
		}
		p.release()
		if *calls != 2 {
			t.Errorf("the next place does not wake the poller: %d", *calls)
		}
		// The task ended before the scan was through: nobody's release will say any more that a place is free.
		if !p.callsScanned(0, true) {
			t.Error("nobody is told of a place that is free and owed")
		}
		if p.takeUpTo(256) != 1 {
			t.Fatal("no place")
		}
		p.callsScanned(1, false)
		if !<-served {
			t.Error("the fresh request got nothing, although nothing is owed any more")
		}
	})
}

func TestSlotsOfTimers(t *testing.T) {
	t.Parallel()
	p, calls, timers := newSlots(8)
	if got := p.takeForTimers(256); got != 4 {
		t.Errorf("timers take %d of 8 places", got)
	}
	if got := p.takeForTimers(256); got != 2 {
		t.Errorf("timers take %d of 4 places", got)
	}
	if got := p.takeForTimers(1); got != 1 {
		t.Errorf("one timer takes %d places", got)
	}
	if got := p.takeForTimers(256); got != 1 {
		t.Errorf("the last place: %d", got)
	}
	if p.contended() || p.takeForTimers(256) != 0 || !p.contended() {
		t.Error("a flood of timers that finds no room is contention")
	}
	p.release()
	if *timers != 1 || *calls != 0 {
		t.Errorf("a free place that was missed wakes the timers: %d, calls %d", *timers, *calls)
	}
	p.timersScanned(3, false)
	p.release()
	if *timers != 1 || p.contended() {
		t.Error("nobody missed anything any more")
	}
	inUse(t, p, 3, 0)
	// A scan for calls that meets a scan for timers: the one that gives places back tells the other.
	p.takeUpTo(8)
	if p.takeForTimers(8) != 0 {
		t.Fatal("no place was left")
	}
	if p.callsScanned(5, false); *timers != 2 {
		t.Error("the timers are not told of the places that the scan for calls returns")
	}
	p.takeForTimers(2)
	p.takeUpTo(8)
	p.takeUpTo(8)
	if p.timersScanned(2, false); *calls != 1 {
		t.Error("the calls are not told of the places that the scan for timers returns")
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
			t.Error("more places did not serve who waits")
		}
		p.force() // an adopted task runs, room or not
		inUse(t, p, 3, 0)
		p.resize(1)
		p.release()
		p.release()
		if p.tryTake() {
			t.Error("a place beyond the new bound was given")
		}
		p.release()
		if !p.tryTake() {
			t.Error("the free place was refused")
		}
	})
}

// Whatever happens in whatever order, no place is lost and none is given twice.
func TestSlotsNeverLeak(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, _, _ := newSlots(rapid.IntRange(1, 5).Draw(t, "places"))
		held, forced := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"try": func(*rapid.T) {
				if p.tryTake() {
					held++
				}
			},
			"gone": func(*rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if p.take(ctx) {
					held++
				}
			},
			"release": func(t *rapid.T) {
				if held == 0 {
					t.Skip("nothing to release")
				}
				held--
				forced = max(forced-1, 0)
				p.release()
			},
			"calls": func(t *rapid.T) {
				got := p.takeUpTo(rapid.IntRange(1, 6).Draw(t, "n"))
				used := rapid.IntRange(0, got).Draw(t, "used")
				held += used
				p.callsScanned(got-used, rapid.Bool().Draw(t, "owed"))
			},
			"timers": func(t *rapid.T) {
				got := p.takeForTimers(rapid.IntRange(1, 6).Draw(t, "n"))
				used := rapid.IntRange(0, got).Draw(t, "used")
				held += used
				p.timersScanned(got-used, rapid.Bool().Draw(t, "missed"))
			},
			"force": func(*rapid.T) {
				p.force()
				held, forced = held+1, forced+1
			},
			"resize": func(t *rapid.T) {
				n := rapid.IntRange(1, 5).Draw(t, "n")
				forced = max(forced, held-n) // what runs goes on
				p.resize(n)
			},
			"": func(t *rapid.T) {
				taken, waiting := p.inUse()
				if taken != held || waiting != 0 || taken > p.max+forced {
					t.Fatalf("%d of %d places are taken, %d are held (%d beyond the bound), %d wait", taken, p.max, held, forced, waiting)
				}
			},
		})
	})
}

// Many at once: every place that was given comes back.
func TestSlotsConcurrently(t *testing.T) {
	t.Parallel()
	p := &slots{max: 4, wakeCalls: func() {}, wakeTimers: func() {}}
	var mu sync.Mutex
	running, most := 0, 0
	work := func(n int) {
		mu.Lock()
		running += n
		most = max(most, running)
		mu.Unlock()
		mu.Lock()
		running -= n
		mu.Unlock()
		for range n {
			p.release()
		}
	}
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			for range 300 {
				switch n % 4 {
				case 0:
					got := p.takeUpTo(2)
					p.callsScanned(0, false)
					work(got)
				case 1:
					got := p.takeForTimers(2)
					p.timersScanned(0, false)
					work(got)
				default:
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					if p.take(ctx) {
						work(1)
					}
					cancel()
				}
			}
		})
	}
	group.Wait()
	inUse(t, p, 0, 0)
	if most > 4 {
		t.Errorf("%d ran in 4 places", most)
	}
}
