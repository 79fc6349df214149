package bench

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// flat calls the same processes in two databases. The first database has only these processes. The
// second also has many newer processes with a long history. If the cost of a hot path depends only
// on hot data, the path is hardly slower in the second database. The databases are measured in turn
// (alone, among, among, alone), so that a change of the machine's speed affects both.
func (r *runner) flat(ctx context.Context, v variant) error {
	if r.command.FlatDatabase != "" {
		return r.flatKept(ctx, v)
	}
	others := fmt.Sprintf("among %d processes with %d tasks", r.command.FlatProcesses, r.command.FlatTasks)
	var rows []*Row
	err := r.onFlat(ctx, v, "alone", func(alone *flatSide) error {
		return r.onFlat(ctx, v, others, func(among *flatSide) error {
			if err := r.fillFlat(ctx, among.scratch, 0, among.payload, among.done); err != nil {
				return err
			}
			for _, side := range []*flatSide{alone, among, among, alone} {
				row, err := r.callFlat(ctx, v, side)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			if r.report.Machine.Durable() {
				for _, row := range among.rows {
					row.compare(meanRate(alone.rows), "alone")
				}
			}
			return nil
		})
	})
	if err == nil { // both databases have passed their checks
		r.report.Rows = append(r.report.Rows, rows...)
	}
	return err
}

// flatSide is one of the two databases, with an engine and the processes that are called.
type flatSide struct {
	*operations
	scratch *scratch
	note    string
	rows    []*Row
	done    acknowledged
}

func (r *runner) onFlat(ctx context.Context, v variant, note string, use func(side *flatSide) error) error {
	side := &flatSide{note: note}
	checked := v.row(subjectEngine)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), checked, func(d *scratch, s *site) (acknowledged, error) {
		side.scratch = d
		side.operations = &operations{site: s, variant: v, payload: newPayload(ctx),
			processes: uint64(r.command.Processes)}
		side.done = acknowledged{process.TaskInit: int64(side.processes)}
		if err := side.fill(ctx, d, 1); err != nil {
			return nil, err
		}
		return side.done, use(side)
	})
	for _, row := range side.rows {
		row.Checked = checked.Checked
	}
	return err
}

// callFlat measures one side once.
func (r *runner) callFlat(ctx context.Context, v variant, side *flatSide) (*Row, error) {
	row := v.row(subjectEngine)
	row.Note = side.note
	r.step("flat, " + side.note)
	if err := r.settle(ctx, side.scratch.analyze); err != nil {
		return nil, err
	}
	w, err := load{clients: v.clients, warmup: r.command.FlatWarmup, duration: r.command.Duration,
		do: side.call}.run(ctx, r.meterOf(side.site))
	if err != nil {
		return nil, err
	}
	row.rate(w)
	side.done[process.TaskCall] += w.acknowledged
	side.rows = append(side.rows, row)
	return row, nil
}

// meanRate returns a row with the mean rate of some rows, with which other rows are compared.
func meanRate(rows []*Row) *Row {
	mean := &Row{}
	for _, row := range rows {
		mean.OpsPerSecond += row.OpsPerSecond / float64(len(rows))
	}
	return mean
}

func (r *runner) fillFlat(ctx context.Context, d *scratch, there int, p payload, done acknowledged) error {
	processes, perProcess := r.command.FlatProcesses, max(r.command.FlatTasks/r.command.FlatProcesses, 1)
	done[process.TaskInit] += int64(processes)
	done[process.TaskCall] += int64(processes) * int64(perProcess-1)
	return d.addOthers(ctx, there, processes, perProcess, p, func(made int) {
		r.step(fmt.Sprintf("flat, filling: %d of %d processes", made, processes))
	})
}
