package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/insight"
)

// kept returns the database with the given name, which outlives the run. It creates the database if
// it is missing.
func (s *server) kept(ctx context.Context, name string) (*scratch, error) {
	d := &scratch{server: s, name: name}
	var err error
	if d.dsn, err = dsnWith(s.dsn, name); err != nil {
		return nil, err
	}
	var there bool
	if err := s.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`,
		name).Scan(&there); err != nil || there {
		return d, err
	}
	if _, err := s.admin.Exec(ctx,
		"CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+emptyTemplate); err != nil {
		return nil, fmt.Errorf("create the database of --flat-database (its role needs CREATEDB): %w", err)
	}
	return d, nil
}

// flatKept measures in the database of --flat-database, or fills it if it is not filled yet.
// Filling takes a long time, and continues where an earlier run was interrupted. The rows of such a
// database are not checked after each run; progressor doctor does that.
func (r *runner) flatKept(ctx context.Context, v variant) error {
	d, err := r.server.kept(ctx, r.command.FlatDatabase)
	if err != nil {
		return err
	}
	s, err := openSite(ctx, d.dsn, r.command.Lanes, r.logger(), processor.BenchNoop())
	if err != nil {
		return err
	}
	_, err = s.engine.PutNamespace(ctx, builtinNamespace(namespaceName, v.history))
	if err == nil {
		err = r.inKept(ctx, d, s, v)
	}
	return errors.Join(err, s.close())
}

func (r *runner) inKept(ctx context.Context, d *scratch, s *site, v variant) error {
	there, err := countThere(ctx, s)
	if err != nil {
		return err
	}
	o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes)}
	if there < r.command.FlatProcesses+r.command.Processes {
		if err := o.fill(ctx, d, 1); err != nil {
			return err
		}
		if there, err = countThere(ctx, s); err != nil {
			return err
		}
		if err := r.fillFlat(ctx, d, there-r.command.Processes, o.payload, acknowledged{}); err != nil {
			return err
		}
		row := v.row(subjectEngine)
		row.figure("tasks that database "+d.name+" was filled with", float64(r.command.FlatTasks), "tasks")
		r.report.Rows = append(r.report.Rows, row)
		return r.settle(ctx, d.analyze)
	}
	row, err := r.callFlat(ctx, v, &flatSide{
		operations: o, scratch: d, done: acknowledged{},
		note: fmt.Sprintf("in database %s, among %d processes with %d tasks", d.name, r.command.FlatProcesses,
			r.command.FlatTasks),
	})
	if err != nil {
		return err
	}
	r.report.Rows = append(r.report.Rows, row)
	return nil
}

func countThere(ctx context.Context, s *site) (int, error) {
	counts, err := insight.CountProcesses(ctx, s.store, namespaceName)
	there := 0
	for _, n := range counts {
		there += int(n)
	}
	return there, err
}
