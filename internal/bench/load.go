package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// load is a closed loop: each client has one operation at a time and begins the next one when the
// previous one has ended.
type load struct {
	clients  int
	warmup   time.Duration
	duration time.Duration
	do       func(ctx context.Context, c *client) error
	settle   func(ctx context.Context) error // optional; runs after each operation, without being measured
}

// client is one goroutine of a load.
type client struct {
	number       int
	random       *rand.Rand
	latencies    histogram // latencies of operations that ended in the window
	acknowledged int64     // in the whole load, including the warm-up
	refused      int64     // in the window
}

// window contains the results of a load while it was measured.
type window struct {
	latencies    histogram
	elapsed      time.Duration
	acknowledged int64
	refused      int64
	spent        spent
}

// The phases of a load.
const (
	phaseWarmup = iota
	phaseMeasure
	phaseOver
)

// rate returns the operations per second.
func (w *window) rate() float64 { return float64(w.latencies.n) / w.elapsed.Seconds() }

// run warms up, measures and waits for the last operations. The first error that is not
// "overloaded" ends it.
func (l load) run(ctx context.Context, m *meter) (*window, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var phase atomic.Int32
	var running sync.WaitGroup
	clients := make([]client, l.clients)
	for i := range clients {
		clients[i].number, clients[i].random = i, rand.New(rand.NewPCG(uint64(i), 0x9E3779B97F4A7C15))
		running.Go(func() {
			if err := clients[i].work(ctx, &phase, l); err != nil {
				cancel(err)
			}
		})
	}
	w := &window{}
	err := wait(ctx, l.warmup)
	if err == nil {
		err = m.begin(ctx)
	}
	if err == nil {
		begin := time.Now()
		phase.Store(phaseMeasure)
		err = wait(ctx, l.duration)
		w.elapsed = time.Since(begin)
	}
	phase.Store(phaseOver)
	if err == nil {
		w.spent, err = m.end(ctx)
	}
	if err != nil {
		cancel(err)
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for i := range clients {
		w.latencies.merge(&clients[i].latencies)
		w.acknowledged += clients[i].acknowledged
		w.refused += clients[i].refused
	}
	return w, nil
}

func (c *client) work(ctx context.Context, phase *atomic.Int32, l load) error {
	for ctx.Err() == nil && phase.Load() != phaseOver {
		begin := time.Now()
		err := l.do(ctx, c)
		measured := phase.Load() == phaseMeasure
		switch {
		case err == nil:
			c.acknowledged++
			if measured {
				c.latencies.add(time.Since(begin))
			}
			if l.settle != nil {
				if err := l.settle(ctx); err != nil {
					return err
				}
			}
		case errors.Is(err, process.ErrOverloaded):
			if measured {
				c.refused++
			}
			_ = wait(ctx, time.Millisecond) // the loop checks ctx
		default:
			return err
		}
	}
	return nil
}

// wait waits for d. It returns early only with the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// each calls do for 0 to n-1 from several goroutines and returns the first error.
func each(ctx context.Context, n, goroutines int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(goroutines, n) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}
