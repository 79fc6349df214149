package bench

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The states of the workload durable.
const (
	oneStep   = "one step" // each run has one step; the latency is the time until it has run
	manySteps = "steps"    // each client has a run that does one step after the other
)

// restartAfter is the number of steps after which a run begins a new history, because each task
// reads the whole history.
const restartAfter = 100

// durableVariants returns one case for each number of clients and each state.
func durableVariants(c *Command, name string) []variant {
	var variants []variant
	for _, state := range []string{oneStep, manySteps} {
		for _, clients := range c.Clients {
			variants = append(variants, variant{workload: name, clients: clients, history: historyFull, state: state})
		}
	}
	return variants
}

// durable measures durable functions.
func (r *runner) durable(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	var err error
	if v.state == oneStep {
		err = r.oneStepRuns(ctx, v, row)
	} else {
		err = r.steps(ctx, v, row)
	}
	if err == nil {
		r.report.Rows = append(r.report.Rows, row)
	}
	return err
}

// stepWaiters are the clients that wait for the step of their run, by its number.
type stepWaiters struct {
	mu   sync.Mutex
	byID map[uint64]chan struct{}
}

func (w *stepWaiters) add(n uint64) <-chan struct{} {
	ran := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[n] = ran
	return ran
}

// done wakes the client of a run. It does nothing if the step of the run has run before.
func (w *stepWaiters) done(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ran, waits := w.byID[n]; waits {
		close(ran)
		delete(w.byID, n)
	}
}

// oneStepRuns measures runs with one step that does nothing. Each client starts a run and waits
// until its step has run. A single client also waits, without being measured, until the run has
// ended, so that nothing else runs.
func (r *runner) oneStepRuns(ctx context.Context, v variant, row *Row) error {
	waiters := &stepWaiters{byID: map[uint64]chan struct{}{}}
	run := durable.Func("one", func(ctx durable.Ctx, n uint64) (struct{}, error) {
		return struct{}{}, durable.Run(ctx, "step", func(context.Context) error {
			waiters.done(n)
			return nil
		})
	})
	return r.onEngine(ctx, v.history, run, row, func(d *scratch, s *site) (acknowledged, error) {
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		o := &operations{site: s, variant: v}
		var ended atomic.Bool // the start has ended the last run
		do := func(ctx context.Context, _ *client) error {
			n := o.sequence.Add(1)
			ran := waiters.add(n)
			started, err := startRun(ctx, s, n)
			if err != nil {
				return err
			}
			ended.Store(len(started.Response) > 0)
			select {
			case <-ran:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: do}
		if v.clients == 1 {
			l.settle = func(ctx context.Context) error {
				if ended.Load() {
					return nil
				}
				return s.engine.WatchProcess(ctx, keyOf(o.sequence.Load()), 0,
					func(*progressorv1.WatchProcessResponse) error { return nil })
			}
		}
		w, err := l.run(ctx, r.meterOf(s))
		if err != nil {
			return nil, err
		}
		row.rate(w)
		return acknowledged{process.TaskInit: w.acknowledged}, d.waitIdle(ctx)
	})
}

// startRun starts the run with the number n, which is its input. If the start has ended the run,
// its response is the value of the function.
func startRun(ctx context.Context, s *site, n uint64) (engine.Answer, error) {
	args, err := json.Marshal(n)
	if err != nil {
		return engine.Answer{}, err
	}
	return s.engine.Start(ctx, engine.StartParams{Key: keyOf(n), Args: args})
}

// keyOf returns the key of the run with the number n.
func keyOf(n uint64) process.Key {
	return process.Key{Namespace: namespaceName, ProcessID: processID(n)}
}

// steps measures runs that do one step after the other. The latency is the time between two steps
// of a run.
func (r *runner) steps(ctx context.Context, v variant, row *Row) error {
	l := newLooper(v.clients)
	return r.onEngine(ctx, v.history, stepping(l), row, func(d *scratch, s *site) (acknowledged, error) {
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		err := each(ctx, v.clients, fillers, func(ctx context.Context, i int) error {
			_, err := startRun(ctx, s, uint64(i))
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := r.watchLoop(ctx, l, r.meterOf(s), row); err != nil {
			return nil, err
		}
		return nil, d.waitIdle(ctx)
	})
}

// stepping returns a durable function that counts its steps in l until l is stopped.
func stepping(l *looper) processor.Processor {
	return durable.Func("steps", func(ctx durable.Ctx, n int) (struct{}, error) {
		for range restartAfter {
			stop, err := durable.Step(ctx, "step", func(context.Context) (bool, error) {
				return l.step(n), nil
			})
			if err != nil {
				return struct{}{}, err
			}
			if stop {
				l.end(n)
				return struct{}{}, nil
			}
		}
		return struct{}{}, durable.Restart(n)
	})
}
