package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/schollz/progressbar/v3"
)

// runner runs the cases, one after the other.
type runner struct {
	command   *Command
	env       Environment
	server    *server
	report    Report
	baselines map[variant]*Row // already measured
	bar       *progressbar.ProgressBar
}

func (r *runner) measure(ctx context.Context) error {
	machine, err := r.server.describe(ctx, r.env.Version)
	if err != nil {
		return err
	}
	r.report.Machine = *machine
	plan := r.command.plan()
	bar := io.Discard
	if r.env.Terminal {
		bar = r.env.Stderr
	}
	r.bar = progressbar.NewOptions(len(plan)*r.command.Rounds, progressbar.OptionSetWriter(bar),
		progressbar.OptionSetWidth(20),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	for _, p := range plan {
		if err := r.rounds(ctx, p); err != nil {
			_ = r.bar.Exit()
			return fmt.Errorf("bench %s: %w", p.variant, err)
		}
	}
	return nil
}

// rounds measures a case and its baseline as often as the flags ask for, in turn, and keeps the
// median round.
func (r *runner) rounds(ctx context.Context, p planned) error {
	before := r.report.Rows
	var rounds [][]*Row
	for range r.command.Rounds {
		if r.command.Rounds > 1 {
			clear(r.baselines) // each round has its own
		}
		r.step(p.variant.String())
		r.report.Rows = nil
		err := p.workload.run(r, ctx, p.variant)
		rounds = append(rounds, r.report.Rows)
		if err != nil {
			r.report.Rows = append(before, r.report.Rows...)
			return err
		}
		_ = r.bar.Add(1)
	}
	r.report.Rows = append(before, medianRound(rounds)...)
	return nil
}

// medianRound returns the round with the median ratio in its first row that has one. If no row has
// a ratio, it uses the rate of the first row.
func medianRound(rounds [][]*Row) []*Row {
	first := func(rows []*Row) *Row {
		return rows[max(0, slices.IndexFunc(rows, func(row *Row) bool { return row.Ratio != nil }))]
	}
	slices.SortFunc(rounds, func(a, b []*Row) int {
		x, y := first(a), first(b)
		if x.Ratio != nil && y.Ratio != nil {
			return cmp.Compare(*x.Ratio, *y.Ratio)
		}
		return cmp.Compare(x.OpsPerSecond, y.OpsPerSecond)
	})
	return rounds[len(rounds)/2]
}

// step shows the current step.
func (r *runner) step(text string) { r.bar.Describe(fmt.Sprintf("%-44s", text)) }

func (r *runner) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// add adds a row to the report, followed by the row of the baseline with which it is compared,
// unless the report already contains that row. On a server that loses commits, there is no
// comparison.
func (r *runner) add(ctx context.Context, row *Row, baselineOf variant) error {
	r.report.Rows = append(r.report.Rows, row)
	if !r.command.Baseline || !r.report.Machine.Durable() {
		return nil
	}
	known, ok := r.baselines[baselineOf]
	if !ok {
		r.step("baseline: " + baselineOf.String())
		var err error
		if known, err = r.baseline(ctx, baselineOf); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		r.baselines[baselineOf] = known
		r.report.Rows = append(r.report.Rows, known)
	}
	name := subjectBaseline
	if baselineOf.workload != row.Workload {
		name += "'s " + baselineOf.workload
	}
	row.compare(known, name)
	return nil
}

// inScratch runs use with a new database that has the schema.
func (r *runner) inScratch(ctx context.Context, use func(d *scratch) error) error {
	return withDatabase(ctx, r.server.createScratch, use)
}

// inEmpty is like inScratch, but its database does not have the schema.
func (r *runner) inEmpty(ctx context.Context, use func(d *scratch) error) error {
	create := func(ctx context.Context) (*scratch, error) { return r.server.create(ctx, emptyTemplate) }
	return withDatabase(ctx, create, use)
}

// withDatabase runs use with a database from create, and drops the database in any case.
func withDatabase(
	ctx context.Context, create func(context.Context) (*scratch, error), use func(d *scratch) error,
) error {
	d, err := create(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(d), d.drop(ctx))
}
