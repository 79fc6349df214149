package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// flood is an open loop: operations begin at a fixed rate, even if earlier ones have not ended. The
// clients of an overloaded engine behave like this, because they do not wait for each other.
type flood struct {
	rate     float64 // operations per second
	duration time.Duration
	do       func(ctx context.Context, c *client) error
}

// flooded is the result of a flood. Operations that end after the flood count as acknowledged, but
// not as done.
type flooded struct {
	offered      int64
	elapsed      time.Duration
	done         histogram
	good         int64 // done within goodputDeadline
	refused      histogram
	acknowledged int64
}

// goodputDeadline is how long clients wait for a response. Later responses do not count.
const goodputDeadline = time.Second

// floodTick is the interval at which due operations are counted.
const floodTick = time.Millisecond

// run offers operations and waits for the last of them. The first error that is not "overloaded"
// ends it.
func (f flood) run(ctx context.Context) (*flooded, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &flooded{}
	var mu sync.Mutex
	var running sync.WaitGroup
	var free []*client // clients of ended operations, which are used again because a client is large
	begin := time.Now()
	end := begin.Add(f.duration)
	one := func(c *client) {
		began := time.Now()
		err := f.do(ctx, c)
		ended := time.Now()
		mu.Lock()
		defer mu.Unlock()
		free = append(free, c)
		switch {
		case err == nil:
			w.acknowledged++
			if !ended.After(end) {
				w.done.add(ended.Sub(began))
				if ended.Sub(began) <= goodputDeadline {
					w.good++
				}
			}
		case errors.Is(err, process.ErrOverloaded):
			w.refused.add(ended.Sub(began))
		default:
			cancel(err)
		}
	}
	take := func() *client {
		mu.Lock()
		defer mu.Unlock()
		if n := len(free); n > 0 {
			c := free[n-1]
			free = free[:n-1]
			return c
		}
		return &client{number: int(w.offered), random: rand.New(rand.NewPCG(uint64(w.offered), 0x9E3779B97F4A7C15))}
	}
	ticker := time.NewTicker(floodTick)
	defer ticker.Stop()
	for now := begin; now.Before(end) && ctx.Err() == nil; now = <-ticker.C {
		for due := int64(f.rate * now.Sub(begin).Seconds()); w.offered < due; w.offered++ {
			c := take()
			running.Go(func() { one(c) })
		}
	}
	w.elapsed = time.Since(begin)
	running.Wait()
	return w, context.Cause(ctx)
}
