package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// fillBacklogResults adds pending results until a scan must wait.
func fillBacklogResults(b *backlogResults) {
	for range maxBacklogResults {
		b.begin(&storage.Claim{})
	}
}

// A scan waits while many results of scanned tasks, or the results of tasks with large data, wait
// to be stored.
func TestScansWaitForBacklogResults(t *testing.T) {
	t.Parallel()
	large := &storage.Claim{Args: make([]byte, maxBacklogBytes/2), Context: make([]byte, maxBacklogBytes/2)}
	for name, tc := range map[string]struct {
		claim *storage.Claim
		fill  int
	}{
		"many results": {&storage.Claim{}, maxBacklogResults},
		"large args":   {large, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b backlogResults
			for range tc.fill - 1 {
				b.begin(tc.claim)
			}
			began := time.Now()
			if b.wait(t.Context()); time.Since(began) != 0 {
				t.Errorf("%s: a scan waits too early", name)
			}
			b.begin(tc.claim)
			var waited atomic.Int32
			for range 2 {
				go func() { b.wait(t.Context()); waited.Add(1) }()
			}
			synctest.Wait()
			if waited.Load() != 0 {
				t.Errorf("%s: a scan does not wait", name)
			}
			b.end(tc.claim)
			synctest.Wait()
			if waited.Load() != 2 || time.Since(began) != 0 {
				t.Errorf("%s: scans still wait after the results were stored", name)
			}
		})
	}
}

// A scan waits until the results are stored, even if the database is slow.
func TestScansWaitForSlowResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b backlogResults
		fillBacklogResults(&b)
		b.begin(&storage.Claim{})
		b.begin(&storage.Claim{})
		began := time.Now()
		done := make(chan struct{})
		go func() { b.wait(t.Context()); close(done) }()
		for range 3 {
			select {
			case <-done:
				t.Fatalf("a scan waits only %s for %d results", time.Since(began), b.results)
			case <-time.After(maxResultsWait * 9 / 10):
			}
			b.end(&storage.Claim{})
		}
		if <-done; time.Since(began) > 3*maxResultsWait {
			t.Errorf("a scan waits %s", time.Since(began))
		}
	})
}

// A scan does not wait for results that were put aside.
func TestScansDoNotWaitForResultsPutAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var aside atomic.Int64
		b := backlogResults{aside: aside.Load}
		fillBacklogResults(&b)
		aside.Store(1)
		began := time.Now()
		if b.wait(t.Context()); time.Since(began) != 0 {
			t.Errorf("a scan waits %s", time.Since(began))
		}
	})
}

// A scan waits only for a limited time while no result is stored, so that results that cannot be
// stored do not stop all scans.
func TestScansDoNotWaitForStuckResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b backlogResults
		fillBacklogResults(&b)
		began := time.Now()
		b.wait(t.Context())
		if waited := time.Since(began); waited != maxResultsWait {
			t.Errorf("a scan waited %s", waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.wait(ctx); time.Since(began) != maxResultsWait {
			t.Error("a scan waits although its poller ends")
		}
	})
}

// More results may wait while nothing else waits to be stored.
func TestScansWaitForFewerResultsDuringRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var pending atomic.Int64
		b := backlogResults{pending: pending.Load}
		began := time.Now()
		for range maxLoneResults - 1 {
			b.begin(&storage.Claim{})
			pending.Add(1)
		}
		if b.wait(t.Context()); time.Since(began) != 0 {
			t.Errorf("a scan waits for %d results without other requests", b.results)
		}
		pending.Add(1) // a request
		if b.wait(t.Context()); time.Since(began) != maxResultsWait {
			t.Error("a scan does not wait although a request is waiting")
		}
		b.begin(&storage.Claim{})
		if b.wait(t.Context()); time.Since(began) != 2*maxResultsWait {
			t.Errorf("a scan does not wait for %d results", b.results)
		}
	})
}

// Both pollers wait for the results of earlier tasks before they claim more tasks.
func TestPollersWaitForBacklogResults(t *testing.T) {
	t.Parallel()
	for name, runOnce := range map[string]func(*Engine, context.Context){
		"calls":  func(e *Engine, ctx context.Context) { _, _, _ = newCallPoller(e).runOnce(ctx) },
		"timers": func(e *Engine, ctx context.Context) { newTimerPoller(e).runOnce(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			e := bare()
			e.metrics = newEngineMetrics(nil, e)
			e.draining.Store(true) // the poller has nothing to do after it has waited
			fillBacklogResults(&e.backlog)
			began := time.Now()
			runOnce(e, t.Context())
			if time.Since(began) != maxResultsWait {
				t.Errorf("%s: the poller did not wait", name)
			}
		})
	}
}
