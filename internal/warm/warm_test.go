package warm

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The caller of Wait gets the result of its function, or the panic of the function.
func TestWait(t *testing.T) {
	t.Parallel()
	g := New()
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for range 100 {
				want := errors.New("mine")
				if err := g.Wait(func() error { return want }); !errors.Is(err, want) {
					t.Errorf("error %v, want the error of the caller's function", err)
				}
				if err := g.Wait(func() error { return nil }); err != nil {
					t.Errorf("error %v, want none", err)
				}
			}
		})
	}
	callers.Wait()
	defer func() {
		if v := recover(); v != "no" {
			t.Errorf("recovered %v, want the panic of the function", v)
		}
		if err := g.Wait(func() error { return nil }); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	}()
	_ = g.Wait(func() error { panic("no") })
}

// An idle goroutine takes the next function. If none is idle, a new one starts, so nothing waits.
func TestGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		var begun atomic.Int32
		release := make(chan struct{})
		for range maxParked + 50 {
			g.Go(func() {
				begun.Add(1)
				<-release
			})
		}
		synctest.Wait()
		if n := begun.Load(); n != maxParked+50 {
			t.Errorf("%d of %d have begun, although they do not wait for each other", n, maxParked+50)
		}
		close(release)
		synctest.Wait()
		if n := g.parked.Load(); n != maxParked {
			t.Errorf("%d goroutines are parked, want %d", n, maxParked)
		}
		var done atomic.Bool
		g.Go(func() { done.Store(true) })
		synctest.Wait()
		if n := g.parked.Load(); n != maxParked || !done.Load() {
			t.Errorf("%d goroutines are parked after one more, want %d; done: %t", n, maxParked, done.Load())
		}
		time.Sleep(restFor)
		synctest.Wait()
		if n := g.parked.Load(); n != 0 {
			t.Errorf("%d goroutines are parked after the idle time, want none", n)
		}
	})
}
