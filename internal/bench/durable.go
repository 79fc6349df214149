package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The states of the workload durable.
const (
	oneStep     = "one step"     // each run has one step; the latency is the time until the step has run
	manySteps   = "steps"        // each client has a run that does one step after the other
	manyCalls   = "calls"        // each client calls a run that does nothing but take calls
	pushedCalls = "pushed calls" // the same, and the engine calls the function over Connect
	inMemory    = "memory"       // runs that wait for their first call
)

// restartAfter is the number of steps after which a run begins a new history, because a replay
// reads the whole history.
const restartAfter = 100

// restartCalls is the number of calls after which a run begins a new history.
const restartCalls = 1000

// durableVariants returns one case for each number of clients and each state.
func durableVariants(c *Command, name string) []variant {
	var variants []variant
	for _, state := range []string{oneStep, manySteps, manyCalls, pushedCalls} {
		for _, clients := range c.Clients {
			variants = append(variants, variant{workload: name, clients: clients, history: historyFull, state: state})
		}
	}
	return append(variants, variant{workload: name, clients: c.Waiting, history: historyFull, state: inMemory})
}

// durable measures durable functions in the state of v.
func (r *runner) durable(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	measure := map[string]func(context.Context, variant, *Row) error{
		oneStep: r.oneStepRuns, manySteps: r.steps, manyCalls: r.callRuns, pushedCalls: r.callRuns,
		inMemory: r.runsInMemory,
	}
	err := measure[v.state](ctx, v, row)
	if err == nil {
		r.report.Rows = append(r.report.Rows, row)
	}
	return err
}

// stepWaiters are the clients that wait for the step of their run, by the number of the run.
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
		if err := startRuns(ctx, s, 0, v.clients); err != nil {
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

// takeCalls is a durable function that takes calls and does nothing else.
func takeCalls(ctx durable.Ctx, n int) (struct{}, error) {
	calls := durable.Calls[int, int](ctx, "add")
	for range restartCalls {
		calls.Next()
	}
	return struct{}{}, durable.Restart(n)
}

// startRuns starts the runs with the numbers from first to end-1.
func startRuns(ctx context.Context, s *site, first, end int) error {
	return each(ctx, end-first, fillers, func(ctx context.Context, i int) error {
		_, err := startRun(ctx, s, uint64(first+i))
		return err
	})
}

// runsInMemory measures the memory of the program while runs wait, and how many of them the engine
// keeps in memory.
func (r *runner) runsInMemory(ctx context.Context, v variant, row *Row) error {
	return r.onEngine(ctx, v.history, durable.Func("calls", takeCalls), row,
		func(_ *scratch, s *site) (acknowledged, error) {
			first := v.clients / 10 // the first runs warm up the engine
			if err := startRuns(ctx, s, 0, first); err != nil {
				return nil, err
			}
			before := memoryInUse()
			if err := startRuns(ctx, s, first, v.clients); err != nil {
				return nil, err
			}
			used := float64(memoryInUse()-before) / float64(v.clients-first)
			parked, err := gaugeOf(s.registry, "progressor_functions_parked")
			row.figure("runs in memory", parked, "")
			row.figure("memory of each run", used/(1<<10), "KiB")
			return acknowledged{process.TaskInit: int64(v.clients)}, err
		})
}

// memoryInUse returns the size of the heap and stacks of this program after a garbage collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // pools keep unused memory until the second collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// gaugeOf returns the value of a gauge without labels.
func gaugeOf(gatherer prometheus.Gatherer, name string) (float64, error) {
	families, err := gatherer.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue(), nil
		}
	}
	return 0, fmt.Errorf("the metric %s is missing", name)
}

// pushTo makes the engine call p over Connect, until stop is called.
func pushTo(ctx context.Context, s *site, v variant, p processor.Processor) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	var server sync.WaitGroup
	server.Go(func() { // it returns an error only if it has to cut off tasks
		_ = processor.ServeOn(serving, listener, p, processor.WithParking())
	})
	stop = func() {
		cancel()
		server.Wait()
	}
	ns := builtinNamespace(namespaceName, v.history)
	ns.Processor.Transport = &progressorv1.ProcessorConfig_Connect{
		Connect: &progressorv1.ConnectProcessor{Url: "http://" + listener.Addr().String()},
	}
	if _, err = s.engine.PutNamespace(ctx, ns); err != nil {
		stop()
	}
	return stop, err
}

// callRuns measures calls of runs that wait for them.
func (r *runner) callRuns(ctx context.Context, v variant, row *Row) error {
	waiting := durable.Func("calls", takeCalls)
	return r.onEngine(ctx, v.history, waiting, row, func(d *scratch, s *site) (acknowledged, error) {
		if v.state == pushedCalls {
			stop, err := pushTo(ctx, s, v, waiting)
			if err != nil {
				return nil, err
			}
			defer stop()
		}
		if err := startRuns(ctx, s, 0, v.clients); err != nil {
			return nil, err
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		l := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration,
			do: func(ctx context.Context, c *client) error {
				_, err := s.engine.Call(ctx, engine.CallParams{Key: keyOf(uint64(c.number)), Args: []byte(`{"add":1}`)})
				return err
			}}
		w, err := l.run(ctx, r.meterOf(s))
		if err != nil {
			return nil, err
		}
		row.rate(w)
		return nil, d.waitIdle(ctx) // restarts have removed the tasks of older calls
	})
}
