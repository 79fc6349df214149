package bench

import (
	"context"
	"errors"
	"sync/atomic"
)

// baseline measures the baseline under the conditions of a variant.
func (r *runner) baseline(ctx context.Context, v variant) (row *Row, err error) {
	row = v.row(subjectBaseline)
	err = r.inEmpty(ctx, func(d *scratch) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		b, err := openBaseline(ctx, d, v.history == historyFull, cancel)
		if err != nil {
			return err
		}
		if v.workload == "timers" {
			err = r.baselineTimers(ctx, b, row)
		} else {
			err = r.baselineLoad(ctx, d, b, v, row)
		}
		if err != nil {
			cancel(err)
		}
		b.close()
		return err
	})
	return row, err
}

func (r *runner) baselineLoad(ctx context.Context, d *scratch, b *baseline, v variant, row *Row) error {
	do, err := r.baselineOperation(ctx, b, v)
	if err != nil {
		return err
	}
	if v.workload == "hot-snapshot" {
		release, err := holdSnapshot(ctx, d, baselineSchema)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := r.settle(ctx, b.analyze); err != nil {
		return err
	}
	// The scanner runs longer than the load, because the last calls may wait for it.
	scanning, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.scanCalls(scanning) }()
	defer func() { stop(); <-stopped }()
	m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: ownCPU}
	w, err := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: do}.run(ctx, m)
	if err != nil {
		return err
	}
	row.rate(w)
	return nil
}

// baselineOperation returns the operation that each client repeats.
func (r *runner) baselineOperation(
	ctx context.Context, b *baseline, v variant,
) (func(context.Context, *client) error, error) {
	var sequence atomic.Uint64
	key := func() *string {
		if !v.keys {
			return nil
		}
		return new(requestKey(sequence.Add(1)))
	}
	switch v.workload {
	case "start":
		return func(ctx context.Context, _ *client) error {
			n := sequence.Add(1)
			var metadata []byte
			if v.metadata {
				metadata = processMetadata(n)
			}
			var name *string
			if v.keys {
				name = new(requestKey(n))
			}
			return b.start(ctx, processID(n), name, metadata)
		}, nil
	case "loop":
		tasks := make([]int64, v.clients)
		return func(ctx context.Context, c *client) (err error) {
			id := processID(uint64(c.number))
			if tasks[c.number] == 0 {
				tasks[c.number], err = b.prepareInit(ctx, id, nil, nil)
			} else {
				tasks[c.number], err = b.save(ctx, id, tasks[c.number], true)
			}
			return err
		}, nil
	default:
		processes := processesOf(r.command, v)
		events := 1
		if v.history == historyFull {
			events = r.command.Events
		}
		return func(ctx context.Context, c *client) error {
			return b.call(ctx, processID(c.random.Uint64N(processes)), key())
		}, b.fill(ctx, int(processes), events, v.metadata)
	}
}

// baselineTimers drains timers that are all due.
func (r *runner) baselineTimers(ctx context.Context, b *baseline, row *Row) error {
	if err := b.fill(ctx, r.command.Timers, 1, false); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, baselineFillTimers); err != nil {
		return err
	}
	if err := r.settle(ctx, b.analyze); err != nil {
		return err
	}
	m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: ownCPU}
	var lateness histogram
	spent, err := m.measure(ctx, func() error { return b.drainTimers(ctx, &lateness) })
	if err != nil {
		return err
	}
	if lateness.n != uint64(r.command.Timers) {
		return errors.New("the baseline lost timers")
	}
	row.fill(int64(lateness.n), spent.elapsed, &lateness, spent)
	row.Note = "latency is lateness"
	return nil
}

// settle calls analyze and runs a checkpoint, so that every measurement begins in the same state.
func (r *runner) settle(ctx context.Context, analyze func(context.Context) error) error {
	if err := analyze(ctx); err != nil {
		return err
	}
	return r.server.checkpoint(ctx)
}

// hotProcesses is the number of processes that share all calls of hot.
const hotProcesses = 10

func processesOf(c *Command, v variant) uint64 {
	if v.workload == "hot" || v.workload == "hot-snapshot" {
		return hotProcesses
	}
	return uint64(c.Processes)
}

// holdSnapshot opens a transaction that keeps every dead row until it is released, as a dump or an
// analytical query does.
func holdSnapshot(ctx context.Context, d *scratch, schema string) (release func(), err error) {
	conn, err := d.connect(ctx, schema)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	if _, err = conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ`); err == nil {
		_, err = conn.Exec(ctx, `SELECT count(*) FROM running`)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
