package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/schollz/progressbar/v3"
)

// runner carries the cases out, one after the other.
type runner struct {
	command   *Command
	env       Environment
	server    *server
	report    Report
	baselines map[variant]*Row // measured already
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
	r.bar = progressbar.NewOptions(len(plan), progressbar.OptionSetWriter(bar), progressbar.OptionSetWidth(20),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	for _, p := range plan {
		r.step(p.variant.String())
		if err := p.workload.run(r, ctx, p.variant); err != nil {
			_ = r.bar.Exit()
			return fmt.Errorf("bench %s: %w", p.variant, err)
		}
		_ = r.bar.Add(1)
	}
	return nil
}

// step shows what is being done.
func (r *runner) step(text string) { r.bar.Describe(fmt.Sprintf("%-44s", text)) }

func (r *runner) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// add puts a row into the report, and after it the baseline's row that it is compared with, which stands there once. On a
// server that loses commits there is nothing to compare.
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

// inScratch lends a new database, and drops it whatever happens.
func (r *runner) inScratch(ctx context.Context, use func(d *scratch) error) error {
	d, err := r.server.createScratch(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(d), d.drop(ctx))
}
