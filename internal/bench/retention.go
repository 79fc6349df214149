package bench

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/processor"
)

// fillEnded marks all existing processes as ended a day ago. It runs before other processes are
// created.
const (
	fillEnded = `
UPDATE processes SET status = 'COMPLETED', previous_status = 'RUNNING', status_changed_time = now() - interval '1 day',
       attention = 'COMPLETED', attention_time = now() - interval '1 day'`
	fillEndedCounts = `UPDATE status_counts SET status = 'COMPLETED'`
	countEnded      = `SELECT count(*) FROM processes WHERE attention = 'COMPLETED' AND removed_time IS NULL`
	endedTasks      = 5 // ended tasks of each process
	endedRetention  = time.Hour
)

// retention measures calls twice: first in a database with many ended processes, and then while the
// engine removes them.
func (r *runner) retention(ctx context.Context, v variant) error {
	before, meanwhile := v.row(subjectEngine), v.row(subjectEngine)
	before.Note = fmt.Sprintf("among %d ended processes", r.command.Ended)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), meanwhile,
		func(d *scratch, s *site) (acknowledged, error) {
			o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes)}
			progress := func(made int) {
				r.step(fmt.Sprintf("retention, filling: %d of %d processes", made, r.command.Ended))
			}
			if err := d.addOthers(ctx, 0, r.command.Ended, endedTasks, o.payload, progress); err != nil {
				return nil, err
			}
			if err := d.execute(ctx, statement{fillEnded, nil}, statement{fillEndedCounts, nil}); err != nil {
				return nil, err
			}
			if err := o.fill(ctx, d, 1); err != nil {
				return nil, err
			}
			for _, row := range []*Row{before, meanwhile} {
				if err := r.settle(ctx, d.analyze); err != nil {
					return nil, err
				}
				if err := r.callsDuringRemoval(ctx, d, o, row, row == meanwhile); err != nil {
					return nil, err
				}
			}
			return acknowledged{}, nil // removed tasks cannot be counted
		})
	if err != nil {
		return err
	}
	if r.report.Machine.Durable() {
		meanwhile.compare(before, "before")
	}
	r.report.Rows = append(r.report.Rows, before, meanwhile)
	return nil
}

// callsDuringRemoval measures calls. If remove is true, it also counts the processes that the
// engine removes in the meantime.
func (r *runner) callsDuringRemoval(ctx context.Context, d *scratch, o *operations, row *Row, remove bool) error {
	if remove {
		ns := builtinNamespace(namespaceName, o.variant.history)
		ns.Retention = durationpb.New(endedRetention)
		if _, err := o.site.engine.PutNamespace(ctx, ns); err != nil {
			return err
		}
	}
	w, err := load{clients: o.variant.clients, warmup: r.command.Warmup, duration: r.command.Duration,
		do: o.call}.run(ctx, r.meterOf(o.site))
	if err != nil {
		return err
	}
	row.rate(w)
	if !remove {
		return nil
	}
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var left int
	if err := conn.QueryRow(ctx, countEnded).Scan(&left); err != nil {
		return fmt.Errorf("count the ended processes: %w", err)
	}
	row.Note = fmt.Sprintf("%d of %d removed since the load began", r.command.Ended-left, r.command.Ended)
	return nil
}
