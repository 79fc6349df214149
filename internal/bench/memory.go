package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// memoryTimeout is the timeout of the calls of memory, and the step timeout of their namespace. It
// is so long that no call times out.
const memoryTimeout = 10 * time.Minute

// overloadPause is the pause before a rejected call is retried. The engine is overloaded only for a
// moment.
const overloadPause = 100 * time.Millisecond

// memory measures the memory of an engine, which runs as a separate process, in three states: idle,
// with calls that the processor does not answer, and with many more calls that wait behind them. It
// pauses for the time of the warm-up before each measurement. Each call has its own connection. At
// the end, every call must be answered.
func (r *runner) memory(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	row.Clients = r.command.InFlight + r.command.Waiting
	if err := enoughFiles(row.Clients + r.command.InFlight + 200); err != nil {
		return err
	}
	err := r.inScratch(ctx, func(d *scratch) error {
		g, err := r.openRig(ctx, d, order{Hold: true}, func(ns *progressorv1.Namespace) {
			ns.MaxRunning = int32(r.command.InFlight) + 100
			ns.MaxWaiting = int32(r.command.Waiting) + 100
			ns.StepTimeout = durationpb.New(memoryTimeout)
		})
		if err != nil {
			return err
		}
		err = r.measureMemory(ctx, d, g, row)
		if err := errors.Join(err, g.close()); err != nil {
			return err
		}
		return r.verify(ctx, d, row,
			acknowledged{process.TaskInit: int64(r.command.InFlight), process.TaskCall: int64(row.Clients)})
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// measureMemory starts the processes, makes the calls, and measures the memory in each state.
func (r *runner) measureMemory(ctx context.Context, d *scratch, g *rig, row *Row) error {
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	held := r.command.InFlight
	if err := each(ctx, held, 64,
		func(ctx context.Context, i int) error { return g.start(ctx, uint64(i), false) }); err != nil {
		return err
	}
	read := func(name string) error {
		if err := wait(ctx, r.command.Warmup); err != nil {
			return err
		}
		bytes, err := residentBytes(g.engine.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("read the memory of the engine: %w", err)
		}
		row.figure("memory of the engine, "+name, float64(bytes)/(1<<20), "MiB")
		return nil
	}
	if err := read("at rest"); err != nil {
		return err
	}
	calls, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = r.holdCallers(calls, conn, g, cancel, read)
	if cause := context.Cause(calls); cause != nil {
		return cause // a call failed, which cancelled everything else
	}
	return err
}

// holdCallers makes the calls, and lets the processor answer them at the end. If a call fails,
// cancel is called.
func (r *runner) holdCallers(
	ctx context.Context, conn *pgx.Conn, g *rig, cancel context.CancelCauseFunc, read func(name string) error,
) error {
	held, waiting := r.command.InFlight, r.command.Waiting
	answered := make(chan error, held+waiting)
	// The calls begin in groups of 100, because real clients do not open ten thousand connections
	// at the same moment.
	call := func(n int) {
		for i := range n {
			go func() {
				err := g.call(ctx, uint64(i%held), "", durationpb.New(memoryTimeout))
				for errors.Is(err, process.ErrOverloaded) && wait(ctx, overloadPause) == nil {
					err = g.call(ctx, uint64(i%held), "", durationpb.New(memoryTimeout))
				}
				if err != nil {
					cancel(err)
				}
				answered <- err
			}()
			if i%100 == 99 {
				_ = wait(ctx, 10*time.Millisecond)
			}
		}
	}
	call(held)
	if err := waitCount(ctx, conn, `SELECT count(*) FROM running`, held); err != nil {
		return err
	}
	if err := read(fmt.Sprintf("%d calls in flight", held)); err != nil {
		return err
	}
	call(waiting)
	if err := waitCount(ctx, conn, `SELECT count(*) FROM schedule`, waiting); err != nil {
		return err
	}
	if err := read(fmt.Sprintf("%d more clients that wait", waiting)); err != nil {
		return err
	}
	if err := g.processor.release(); err != nil {
		return err
	}
	for range held + waiting {
		select {
		case err := <-answered:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// waitCount waits until a count has reached n.
func waitCount(ctx context.Context, conn *pgx.Conn, sql string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var have int
		if err := conn.QueryRow(ctx, sql).Scan(&have); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		if have >= n {
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %d, want %d: %w", sql, have, n, err)
		}
	}
}

// enoughFiles returns an error if the limit on open files is too low. Go has already raised it as
// far as possible.
func enoughFiles(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit on open files: %w", err)
	}
	if limit.Cur < uint64(n) {
		return fmt.Errorf("%d connections need %d open files, and the limit is %d: raise it (ulimit -n), or reduce "+
			"--waiting", n, n, limit.Cur)
	}
	return nil
}
