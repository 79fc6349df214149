package bench

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// flat calls the same processes twice: alone in the database, and among many others that have a long history. A hot path that
// is bounded by what is hot is as quick the second time.
func (r *runner) flat(ctx context.Context, v variant) error {
	if r.command.FlatDatabase != "" {
		return r.flatKept(ctx, v)
	}
	alone, among := v.row(subjectEngine), v.row(subjectEngine)
	alone.Note = "alone"
	among.Note = fmt.Sprintf("among %d processes with %d tasks", r.command.FlatProcesses, r.command.FlatTasks)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), among, func(d *scratch, s *site) (acknowledged, error) {
		o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes)}
		if err := o.fill(ctx, d, 1); err != nil {
			return nil, err
		}
		done := acknowledged{process.TaskInit: int64(o.processes)}
		for _, row := range []*Row{alone, among} {
			if row == among {
				if err := r.fillFlat(ctx, d, 0, o.payload, done); err != nil {
					return nil, err
				}
			}
			r.step("flat, " + row.Note)
			if err := r.settle(ctx, d.analyze); err != nil {
				return nil, err
			}
			w, err := load{clients: v.clients, warmup: r.command.FlatWarmup, duration: r.command.Duration, do: o.call}.run(ctx, r.meterOf(s))
			if err != nil {
				return nil, err
			}
			row.rate(w)
			done[process.TaskCall] += w.acknowledged
		}
		return done, nil
	})
	if err != nil {
		return err
	}
	if r.report.Machine.Durable() {
		among.compare(alone, "alone")
	}
	r.report.Rows = append(r.report.Rows, alone, among)
	return nil
}

func (r *runner) fillFlat(ctx context.Context, d *scratch, there int, p payload, done acknowledged) error {
	processes, perProcess := r.command.FlatProcesses, max(r.command.FlatTasks/r.command.FlatProcesses, 1)
	done[process.TaskInit] += int64(processes)
	done[process.TaskCall] += int64(processes) * int64(perProcess-1)
	return d.addOthers(ctx, there, processes, perProcess, p, func(made int) {
		r.step(fmt.Sprintf("flat, filling: %d of %d processes", made, processes))
	})
}
