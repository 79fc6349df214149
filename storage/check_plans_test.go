package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// With 10,000 processes, PostgreSQL expects each statement of the checks to cost less than 100,000
// (jit_above_cost), with and without statistics. A plan that searches the tasks of each process
// with an index would cost more.
func TestPlansOfChecks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, err := b.db.Acquire(t.Context())
	must(t, conn, err)
	defer conn.Release()
	q := dbsqlc.New()
	statements := map[string]string{
		"FindViolations":       querySQL(q.FindViolations),
		"FindKindViolations":   querySQL(q.FindKindViolations),
		"FindChangeViolations": querySQL(q.FindChangeViolations),
		"CountInvariantRows":   queryAllSQL(q.CountInvariantRows),
		"FindStuck":            querySQL(q.FindStuck),
	}
	look := func(when string) {
		for name, sql := range statements {
			if plan := explain(t, conn.Conn(), sql); plan.Cost <= 0 || plan.Cost >= 100_000 {
				t.Errorf("%s, %s: the cost is %.0f", name, when, plan.Cost)
			}
		}
	}
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT 'shop', 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, 10000) n`)
	b.exec(`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token,
			scheduled_time, running_time, finished_time)
		SELECT 'shop', 'p' || n % 10000 + 1, nextval('task_ids'), 'CALL', 'FINISHED', 1, nextval('fencing_tokens'),
			now(), now(), now() FROM generate_series(0, 19999) n`)
	look("without statistics")
	b.exec("VACUUM ANALYZE processes, tasks, running, schedule")
	look("analyzed")
	b.recount()
}

// A check turns JIT compilation off in its transaction.
func TestChecksAreNotCompiled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, check := range map[string]func(context.Context, storage.DB) (storage.Report, error){
		"invariants": storage.CheckInvariants,
		"quiescence": func(ctx context.Context, db storage.DB) (storage.Report, error) {
			return storage.CheckQuiescent(ctx, db, time.Minute, time.Minute)
		},
	} {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL jit = on"); err != nil {
				return err
			}
			if _, err := check(t.Context(), tx); err != nil {
				return err
			}
			var jit string
			err := tx.QueryRow(t.Context(), "SHOW jit").Scan(&jit)
			equal(t, name+": jit", jit, "off")
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
