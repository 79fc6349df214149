package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/jackc/pgx/v5"
)

// idleNamespaces is the number of namespaces of an idle engine.
const idleNamespaces = 10

// idle measures the queries and the CPU time of an idle engine in its own process. A private server
// counts queries with pg_stat_statements. The extension costs a little, so other workloads do not
// use it. On other servers without the extension, transactions are counted instead.
func (r *runner) idle(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	server, preloaded := r.server, false
	if r.server.private != nil {
		settings := maps.Clone(privateSettings)
		settings["shared_preload_libraries"] = "pg_stat_statements"
		watched, err := openServer(ctx, "", settings)
		if err == nil {
			server, preloaded = watched, true
			defer func() { _ = watched.close(ctx) }()
		} else if ctx.Err() != nil {
			return err
		}
	}
	d, err := server.createScratch(ctx)
	if err != nil {
		return err
	}
	o := order{DSN: d.dsn, Lanes: r.command.Lanes}
	for n := range idleNamespaces {
		text, err := protojson.Marshal(builtinNamespace(fmt.Sprintf("idle-%d", n), historyNone))
		if err != nil {
			return errors.Join(err, d.drop(ctx))
		}
		o.Namespaces = append(o.Namespaces, json.RawMessage(text))
	}
	e, err := r.spawn(ctx, roleEngine, o)
	if err == nil {
		err = errors.Join(r.watchIdle(ctx, server, d, e, preloaded, row), e.close())
	}
	r.report.Rows = append(r.report.Rows, row)
	return errors.Join(err, d.drop(ctx))
}

func (r *runner) watchIdle(
	ctx context.Context, server *server, d *scratch, e *spawned, preloaded bool, row *Row,
) error {
	count, unit, err := queryCounter(ctx, server, d, preloaded)
	if err != nil {
		return err
	}
	// The first moments belong to the startup: statements are prepared, and pools are filled.
	if err := wait(ctx, r.command.Warmup); err != nil {
		return err
	}
	m := &meter{conn: server.admin, postmaster: server.postmaster, engineCPU: e.cpu}
	before, err := count(ctx)
	if err != nil {
		return err
	}
	spent, err := m.measure(ctx, func() error { return wait(ctx, r.command.Idle) })
	if err != nil {
		return err
	}
	after, err := count(ctx)
	if err != nil {
		return err
	}
	seconds := spent.elapsed.Seconds()
	row.Seconds = seconds
	row.figure(unit, float64(after-before)/seconds, "1/s")
	if spent.engineTime != nil {
		row.figure("CPU of the engine", 100*spent.engineTime.Seconds()/seconds, "% of a core")
	}
	if spent.postgresTime != nil {
		row.figure("CPU of PostgreSQL", 100*spent.postgresTime.Seconds()/seconds, "% of a core")
	}
	if spent.walBytes != nil {
		row.figure("WAL", *spent.walBytes/seconds, "B/s")
	}
	return nil
}

const (
	countStatements = `SELECT coalesce(sum(s.calls), 0)::bigint ` +
		`FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1`
	countCommits = `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1`
)

// queryCounter returns a counter of the queries of a database, and its unit.
func queryCounter(
	ctx context.Context, server *server, d *scratch, preloaded bool,
) (func(context.Context) (int64, error), string, error) {
	sql, unit := countCommits, "transactions"
	if preloaded {
		if _, err := server.admin.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return nil, "", fmt.Errorf("count queries: %w", err)
		}
	}
	var counted bool
	err := server.admin.QueryRow(ctx,
		`SELECT count(*) > 0 FROM pg_extension WHERE extname = 'pg_stat_statements'`).Scan(&counted)
	if err != nil {
		return nil, "", fmt.Errorf("count queries: %w", err)
	}
	if counted {
		sql, unit = countStatements, "queries"
	}
	return func(ctx context.Context) (n int64, err error) {
		err = server.admin.QueryRow(ctx, sql, d.name).Scan(&n)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, nil
		}
		return n, err
	}, unit, nil
}
