package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	tenantName   = "tenant"
	tenantFilter = "tenant%" // LIKE: tenantName, and the other tenants of the bench
	// offeredPortion is the portion of the peak that the other namespaces request. It leaves the
	// tenant its share of the CPU. If both used all of the CPU that they get, neither could keep
	// 80% of the rate that it has alone.
	offeredPortion = 0.4
	// messageEvery is the interval between SQL messages in the other namespace, each to one of
	// messageTargets processes.
	messageEvery    = 50 * time.Millisecond
	messageTargets  = 20
	arrivalsTimeout = 2 * time.Minute
	// armTime, plus a millisecond for each timer, is enough to set the timers of a window.
	armTime = 200 * time.Millisecond
)

// neighborhood is an engine with a tenant and another namespace, namespaceName. It is the processor
// of both.
type neighborhood struct {
	processor.Processor
	*operations
	command  *Command
	database *scratch
	conn     *pgx.Conn // connection of the bench; not used by states that run
	ahead    time.Duration
	peak     float64

	clock    atomic.Pointer[timerProcessor]
	messages atomic.Pointer[arrivals]
	failed   atomic.Int64 // calls that failed, in the window
	gate     *gate
	started  int // processes with timers
	// stopClients ends the clients of the tenant that wait.
	stopClients context.CancelFunc
}

// gate holds tasks of the tenant until it opens.
type gate struct {
	opened chan struct{}
	open   func()
	held   atomic.Int64
}

func newGate() *gate {
	opened := make(chan struct{})
	return &gate{opened: opened, open: sync.OnceFunc(func() { close(opened) })}
}

// The args of tasks of the tenant that wait for the gate.
const (
	argsHold     = "hold"
	argsHoldFail = "hold, then fail"
)

// Process measures the lateness of timers and messages of the other namespace, and holds tasks of
// the tenant.
func (n *neighborhood) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	switch {
	case req.GetProcess().GetNamespace() == namespaceName && req.GetType() == progressorv1.TaskType_TASK_TYPE_NOTIFY:
		sent := time.UnixMicro(int64(binary.BigEndian.Uint64(req.GetArgs())))
		n.messages.Load().add(time.Since(sent))
	case req.GetProcess().GetNamespace() == namespaceName:
		return n.clock.Load().Process(ctx, req)
	case string(req.GetArgs()) == argsHold || string(req.GetArgs()) == argsHoldFail:
		n.gate.held.Add(1)
		select {
		case <-n.gate.opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if string(req.GetArgs()) == argsHoldFail {
			return nil, processor.Fail("bench", "the bench makes this process fail").NonRetryable()
		}
	}
	return n.Processor.Process(ctx, req)
}

// neighbors measures how a state of a tenant affects another namespace: the calls per second, and
// the lateness of the timers and SQL messages of that namespace, before, during and after the
// state.
func (r *runner) neighbors(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	state := neighborStates[v.state]
	row.Note = state.note(r.command)
	ahead, err := r.server.clockAhead(ctx)
	if err != nil {
		return err
	}
	n := &neighborhood{Processor: processor.BenchNoop(), command: r.command, ahead: ahead, gate: newGate(),
		stopClients: func() {}}
	n.clock.Store(newTimerProcessor(ahead, 0))
	err = r.onEngine(ctx, v.history, n, row, func(d *scratch, s *site) (acknowledged, error) {
		n.database = d
		n.operations = &operations{
			site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes),
		}
		var err error
		if n.conn, err = d.connect(ctx, engineSchema); err != nil {
			return nil, err
		}
		defer func() { _ = n.conn.Close(context.WithoutCancel(ctx)) }()
		defer func() { n.stopClients(); n.gate.open() }()
		if _, err := s.engine.PutNamespace(ctx, builtinNamespace(tenantName, v.history)); err != nil {
			return nil, err
		}
		if err := n.fill(ctx, d, 0); err != nil {
			return nil, err
		}
		return acknowledged{}, r.measureNeighbors(ctx, n, state, row) // the tenant's tasks cannot be counted
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// measureNeighbors measures the peak, then windows in which the tenant is quiet, in its state, and
// quiet.
func (r *runner) measureNeighbors(ctx context.Context, n *neighborhood, state neighborState, row *Row) error {
	prefix := n.variant.String() + ": "
	r.step(prefix + "the peak")
	if err := r.settle(ctx, n.analyze); err != nil {
		return err
	}
	peak := load{clients: n.variant.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: n.call}
	top, err := peak.run(ctx, r.meterOf(n.site))
	if err != nil {
		return err
	}
	n.peak = float64(top.latencies.n) / top.elapsed.Seconds()
	r.step(prefix + "quiet")
	before, err := n.quiet(ctx)
	if err != nil {
		return err
	}
	r.step(prefix + "filling")
	if err := state.prepare(n, ctx); err != nil {
		return fmt.Errorf("prepare the state: %w", err)
	}
	if err := r.settle(ctx, n.analyze); err != nil {
		return err
	}
	r.step(prefix + "in the state")
	m := r.meterOf(n.site)
	during, spent, err := n.window(ctx, state.run, m)
	if err != nil {
		return err
	}
	failed := n.failed.Load()
	r.step(prefix + "clearing")
	if err := n.clear(ctx); err != nil {
		return fmt.Errorf("clear the tenant: %w", err)
	}
	if err := during.wait(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx, n.analyze); err != nil {
		return err
	}
	r.step(prefix + "quiet again")
	after, err := n.quiet(ctx)
	if err != nil {
		return err
	}
	during.report(row, spent, before.merged(after), n.peak)
	row.figure("calls that failed", float64(failed), "")
	return n.database.waitIdle(ctx)
}

// neighborWindow contains the results of the other namespace in one window.
type neighborWindow struct {
	calls    *flooded
	timers   *timerProcessor
	messages *arrivals
}

// wait returns when all timers have fired and all messages have arrived.
func (w *neighborWindow) wait(ctx context.Context) error {
	return errors.Join(w.timers.wait(ctx, arrivalsTimeout), w.messages.wait(ctx, arrivalsTimeout))
}

// merged adds the figures of another window.
func (w *neighborWindow) merged(other *neighborWindow) *neighborWindow {
	w.calls.done.merge(&other.calls.done)
	w.calls.elapsed += other.calls.elapsed
	w.timers.lateness.merge(&other.timers.lateness)
	w.messages.lateness.merge(&other.messages.lateness)
	return w
}

// report fills in the row of a window in the state, with quiet as its reference.
func (w *neighborWindow) report(row *Row, s spent, quiet *neighborWindow, peak float64) {
	row.Refused = int64(w.calls.refused.n)
	row.fill(int64(w.calls.done.n), w.calls.elapsed, &w.calls.done, s)
	reference := float64(quiet.calls.done.n) / quiet.calls.elapsed.Seconds()
	row.Ratio, row.RatioTo = new(row.OpsPerSecond/reference), "quiet"
	row.figure("peak", peak, "1/s")
	row.figure("offered", float64(w.calls.offered)/w.calls.elapsed.Seconds(), "1/s")
	row.figure("done while the tenant is quiet", reference, "1/s")
	row.figure("done", row.OpsPerSecond, "1/s")
	for _, of := range []struct {
		name        string
		this, quiet *histogram
	}{
		{"latency of calls", &w.calls.done, &quiet.calls.done},
		{"lateness of timers", &w.timers.lateness, &quiet.timers.lateness},
		{"lateness of SQL messages", &w.messages.lateness, &quiet.messages.lateness},
	} {
		row.figure(of.name+", p99, while the tenant is quiet", millis(of.quiet.quantile(0.99)), "ms")
		row.figure(of.name+", p99", millis(of.this.quantile(0.99)), "ms")
	}
}

// quiet measures a window in which the tenant does nothing.
func (n *neighborhood) quiet(ctx context.Context) (*neighborWindow, error) {
	w, _, err := n.window(ctx, func(*neighborhood, context.Context) error { return nil }, nil)
	if err != nil {
		return nil, err
	}
	err = w.wait(ctx)
	return w, err
}

// window sets timers that are due within the next --duration, and offers calls and messages for
// that long, while state runs. The context of state ends with the window. m may be nil.
func (n *neighborhood) window(ctx context.Context, state func(*neighborhood, context.Context) error, m *meter) (
	w *neighborWindow, s spent, err error,
) {
	duration := n.command.Duration
	timers := max(1, int(float64(n.command.NeighborTimers)*duration.Seconds()))
	messages := max(1, int(duration/messageEvery))
	w = &neighborWindow{
		timers: newTimerProcessor(n.ahead, timers), messages: newArrivals("messages have arrived", messages),
	}
	n.clock.Store(w.timers)
	n.messages.Store(w.messages)
	begin := time.Now().Add(armTime + time.Duration(timers)*time.Millisecond)
	err = startTimers(ctx, n.site, firstProbe+n.started, timers, func(i int) []byte {
		return timerArgs(begin.Add(n.ahead + duration*time.Duration(i)/time.Duration(timers)))
	})
	if err != nil {
		return nil, s, err
	}
	n.started += timers
	if err := wait(ctx, time.Until(begin)); err != nil {
		return nil, s, err
	}
	n.failed.Store(0)
	if m != nil {
		if err := m.begin(ctx); err != nil {
			return nil, s, err
		}
	}
	var senders sync.WaitGroup
	var stateErr, messagesErr error
	senders.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, duration)
		defer cancel()
		if err := state(n, ctx); ctx.Err() == nil {
			stateErr = err
		}
	})
	senders.Go(func() { messagesErr = n.sendMessages(ctx, w.messages.want) })
	w.calls, err = flood{rate: n.peak * offeredPortion, duration: duration, do: n.tolerantCall}.run(ctx)
	senders.Wait()
	if m != nil && err == nil {
		s, err = m.end(ctx)
	}
	return w, s, errors.Join(err, stateErr, messagesErr)
}

// tolerantCall is like call, but it counts a failed call and returns ErrOverloaded, because a state
// must not end the bench.
func (n *neighborhood) tolerantCall(ctx context.Context, c *client) error {
	err := n.call(ctx, c)
	if err == nil || ctx.Err() != nil || errors.Is(err, process.ErrOverloaded) {
		return err
	}
	n.failed.Add(1)
	return process.ErrOverloaded
}

// sendMessages notifies processes of the other namespace by SQL, at equal intervals.
func (n *neighborhood) sendMessages(ctx context.Context, count int) error {
	begin := time.Now()
	for i := range count {
		if err := wait(ctx, time.Until(begin.Add(time.Duration(i)*messageEvery))); err != nil {
			return err
		}
		args := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMicro()))
		id := processID(uint64(i) % min(n.processes, messageTargets))
		if _, err := n.conn.Exec(ctx, `SELECT notify($1, $2, $3)`, namespaceName, id, args); err != nil {
			return fmt.Errorf("send a message: %w", err)
		}
	}
	return nil
}

func (n *neighborhood) analyze(ctx context.Context) error {
	if err := n.database.analyze(ctx); err != nil {
		return err
	}
	return n.database.execute(ctx, statement{sql: `VACUUM ANALYZE messages, status_counts`})
}

// startTenant starts a process of the tenant.
func (n *neighborhood) startTenant(ctx context.Context, id string) error {
	_, err := n.site.engine.Start(ctx, engine.StartParams{Key: tenantKey(id), Args: n.args})
	return err
}

// callTenant calls a process of the tenant.
func (n *neighborhood) callTenant(ctx context.Context, id string, args []byte) error {
	_, err := n.site.engine.Call(ctx, engine.CallParams{Key: tenantKey(id), Args: args})
	return err
}

func tenantKey(id string) process.Key { return process.Key{Namespace: tenantName, ProcessID: id} }
