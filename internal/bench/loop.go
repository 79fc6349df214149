package bench

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// looper counts the steps of processes that do one step after the other until they are stopped.
type looper struct {
	steps    []stepCounter // by number of the process
	measured atomic.Bool
	stopped  atomic.Bool
	ended    chan struct{} // receives a value for each process that has ended
}

func newLooper(processes int) *looper {
	return &looper{steps: make([]stepCounter, processes), ended: make(chan struct{}, processes)}
}

// step counts a step of the process with the number n, and the time since its previous step. It
// reports whether the process must end.
func (l *looper) step(n int) (stop bool) {
	step, now := &l.steps[n], time.Now()
	if step.ended.Load() { // the last task of the process is repeated
		return true
	}
	if l.measured.Load() && !step.before.IsZero() {
		step.latencies.add(now.Sub(step.before))
	}
	step.before = now
	step.n++
	return l.stopped.Load()
}

// end notes that the process with the number n has ended. Repeated calls do nothing.
func (l *looper) end(n int) {
	if !l.steps[n].ended.Swap(true) {
		l.ended <- struct{}{}
	}
}

// stepCounter is written only by the running task of a process.
type stepCounter struct {
	latencies histogram
	before    time.Time
	n         int64
	ended     atomic.Bool
}

// loopProcessor is like processor.BenchLoop, but can be stopped and watched. Each client has a
// process that sets a timer that is due at once, again and again, until the process is stopped.
type loopProcessor struct {
	processor.Processor
	*looper
	numbers map[string]int // numbers of the processes
}

func newLoopProcessor(processes int) *loopProcessor {
	l := &loopProcessor{Processor: processor.BenchLoop(), looper: newLooper(processes), numbers: map[string]int{}}
	for n := range processes {
		l.numbers[processID(uint64(n))] = n
	}
	return l
}

// Process counts a step, and the time since the previous step of the same process.
func (l *loopProcessor) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if req.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT {
		return l.Processor.Process(ctx, req)
	}
	n := l.numbers[req.GetProcess().GetProcessId()]
	if !l.step(n) {
		return l.Processor.Process(ctx, req)
	}
	l.end(n)
	return processor.Result().Complete().Done()
}

func (r *runner) loop(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	l := newLoopProcessor(v.clients)
	err := r.onEngine(ctx, v.history, l, row, func(d *scratch, s *site) (acknowledged, error) {
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		err := each(ctx, v.clients, fillers, func(ctx context.Context, i int) error {
			_, err := s.engine.Start(ctx, engine.StartParams{
				Key:  process.Key{Namespace: namespaceName, ProcessID: processID(uint64(i))},
				Args: processor.LoopArgs(math.MaxUint64),
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := r.watchLoop(ctx, l.looper, r.meterOf(s), row); err != nil {
			return nil, err
		}
		if err := d.waitIdle(ctx); err != nil {
			return nil, err
		}
		done := acknowledged{process.TaskInit: int64(v.clients)}
		for i := range l.steps {
			done[process.TaskTimeout] += l.steps[i].n
		}
		return done, nil
	})
	if err != nil {
		return err
	}
	return r.add(ctx, row, v)
}

// watchLoop measures loops that are already running, and ends them.
func (r *runner) watchLoop(ctx context.Context, l *looper, m *meter, row *Row) error {
	if err := wait(ctx, r.command.Warmup); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	begin := time.Now()
	l.measured.Store(true)
	err := wait(ctx, r.command.Duration)
	l.measured.Store(false)
	elapsed := time.Since(begin)
	l.stopped.Store(true)
	if err != nil {
		return err
	}
	spent, err := m.end(ctx)
	if err != nil {
		return err
	}
	for range l.steps {
		select {
		case <-l.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var latencies histogram
	for i := range l.steps {
		latencies.merge(&l.steps[i].latencies)
	}
	row.fill(int64(latencies.n), elapsed, &latencies, spent)
	return nil
}

// idleWait is how long an engine may take to store the last results.
const idleWait = 30 * time.Second

// waitIdle returns when no task runs or waits.
func (d *scratch) waitIdle(ctx context.Context) error {
	return d.waitNone(ctx, idleWait, 2*time.Millisecond, countUnfinished)
}

// waitNone repeats a query until it counts nothing, for at most the given time.
func (d *scratch) waitNone(ctx context.Context, atMost, every time.Duration, query string) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return waitNone(ctx, conn, every, query)
}

func waitNone(ctx context.Context, conn *pgx.Conn, every time.Duration, query string) error {
	for {
		var left int64
		if err := conn.QueryRow(ctx, query).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
}
