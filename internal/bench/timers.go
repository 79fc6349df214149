package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// arrivals counts expected events, and measures how late they are.
type arrivals struct {
	what string
	want int

	mu       sync.Mutex
	lateness histogram
	all      chan struct{} // closed when the last one has arrived
}

func newArrivals(what string, want int) *arrivals {
	return &arrivals{what: what, want: want, all: make(chan struct{})}
}

func (a *arrivals) add(late time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lateness.add(late)
	if a.lateness.n == uint64(a.want) {
		close(a.all)
	}
}

// wait waits until all events have arrived.
func (a *arrivals) wait(ctx context.Context, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-a.all:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Errorf("%d of %d %s: %w", a.lateness.n, a.want, a.what, context.Cause(ctx))
}

// timerProcessor is the processor of timers. INIT sets a timer for the time in its args, and
// TIMEOUT records how late the timer is.
type timerProcessor struct {
	processor.Processor
	*arrivals
	ahead time.Duration // how far the server clock is ahead of the clock of this machine
}

func newTimerProcessor(ahead time.Duration, want int) *timerProcessor {
	return &timerProcessor{
		Processor: processor.BenchNoop(), arrivals: newArrivals("timers have fired", want), ahead: ahead,
	}
}

// Process answers as BenchNoop does, and sets the timer.
func (a *timerProcessor) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
		a.add(time.Since(req.GetScheduledTime().AsTime()) + a.ahead)
	}
	answer, err := a.Processor.Process(ctx, req)
	if err == nil && req.GetType() == progressorv1.TaskType_TASK_TYPE_INIT && len(req.GetArgs()) == timerArgsBytes {
		due := time.UnixMicro(int64(binary.BigEndian.Uint64(req.GetArgs())))
		timer := processor.Result().SetTimerAt(due)
		set, err := timer.Done()
		if err != nil {
			return nil, err
		}
		answer.GetResult().Action = set.GetResult().GetAction()
	}
	return answer, err
}

const timerArgsBytes = 8

// timerArgs returns the args of a process whose timer is due at a time.
func timerArgs(due time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(due.UnixMicro()))
}

// timers measures how fast timers with the same due time run, and how late timers run if they are
// due one after the other.
func (r *runner) timers(ctx context.Context, v variant) error {
	ahead, err := r.server.clockAhead(ctx)
	if err != nil {
		return err
	}
	burst, spread := v.row(subjectEngine), v.row(subjectEngine)
	burst.Note = fmt.Sprintf("%d due at once; latency is lateness", r.command.Timers)
	spread.Note = fmt.Sprintf("%d over %s; latency is lateness", r.command.SpreadTimers, r.command.Spread)
	clock := newTimerProcessor(ahead, r.command.Timers)
	err = r.onEngine(ctx, v.history, clock, burst, func(d *scratch, s *site) (acknowledged, error) {
		return r.drainBurst(ctx, d, s, clock, burst)
	})
	if err != nil {
		return err
	}
	if err := r.add(ctx, burst, v); err != nil {
		return err
	}
	r.step("timers, spread")
	clock = newTimerProcessor(ahead, r.command.SpreadTimers)
	err = r.onEngine(ctx, v.history, clock, spread, func(d *scratch, s *site) (acknowledged, error) {
		return r.drainSpread(ctx, d, s, clock, spread)
	})
	r.report.Rows = append(r.report.Rows, spread)
	return err
}

// probes is the number of processes that drainBurst starts to measure the rate of starts.
// firstProbe is the number of the first of them.
const (
	probes     = 2000
	firstProbe = 1 << 32
)

// drainBurst starts processes whose timers are all due at the same moment, which is after the last
// start.
func (r *runner) drainBurst(
	ctx context.Context, d *scratch, s *site, clock *timerProcessor, row *Row,
) (acknowledged, error) {
	begin := time.Now()
	if err := startTimers(ctx, s, firstProbe, probes, func(int) []byte { return nil }); err != nil {
		return nil, err
	}
	needed := time.Since(begin) * time.Duration(r.command.Timers) / probes
	due := time.Now().Add(needed*2 + 2*time.Second)
	args := timerArgs(due.Add(clock.ahead))
	if err := startTimers(ctx, s, 0, r.command.Timers, func(int) []byte { return args }); err != nil {
		return nil, err
	}
	if err := r.settle(ctx, d.analyze); err != nil {
		return nil, err
	}
	if time.Until(due) < 0 {
		return nil, errors.New("timers were due before all of them were set: the machine is too busy")
	}
	if err := wait(ctx, time.Until(due)-20*time.Millisecond); err != nil {
		return nil, err
	}
	var elapsed time.Duration
	spent, err := r.meterOf(s).measure(ctx, func() error {
		if err := clock.wait(ctx, 10*time.Minute); err != nil {
			return err
		}
		err := d.waitIdle(ctx)
		elapsed = time.Since(due)
		return err
	})
	if err != nil {
		return nil, err
	}
	row.fill(int64(r.command.Timers), elapsed, &clock.lateness, spent)
	return acknowledged{process.TaskInit: int64(r.command.Timers) + probes,
		process.TaskTimeout: int64(r.command.Timers)}, nil
}

// drainSpread starts processes whose timers are due one after the other.
func (r *runner) drainSpread(
	ctx context.Context, d *scratch, s *site, clock *timerProcessor, row *Row,
) (acknowledged, error) {
	n := r.command.SpreadTimers
	first := time.Now().Add(2*time.Second + time.Duration(n)*time.Millisecond/2)
	err := startTimers(ctx, s, 0, n, func(i int) []byte {
		return timerArgs(first.Add(clock.ahead + r.command.Spread*time.Duration(i)/time.Duration(n)))
	})
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Until(first)); err != nil {
		return nil, err
	}
	spent, err := r.meterOf(s).measure(ctx, func() error { return clock.wait(ctx, r.command.Spread+time.Minute) })
	if err != nil {
		return nil, err
	}
	row.fill(int64(n), spent.elapsed, &clock.lateness, spent)
	return acknowledged{process.TaskInit: int64(n), process.TaskTimeout: int64(n)}, d.waitIdle(ctx)
}

// startTimers starts n processes, numbered from first.
func startTimers(ctx context.Context, s *site, first, n int, args func(i int) []byte) error {
	return each(ctx, n, fillers, func(ctx context.Context, i int) error {
		_, err := s.engine.Start(ctx, engine.StartParams{
			Key: process.Key{Namespace: namespaceName, ProcessID: processID(uint64(first + i))}, Args: args(i),
		})
		return err
	})
}
