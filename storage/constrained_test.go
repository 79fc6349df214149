package storage_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ranNode is a node of a plan in the output of EXPLAIN (ANALYZE, FORMAT JSON).
type ranNode struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Plans    []ranNode
}

// read returns how many rows of a table the node and its children have read.
func (n ranNode) read(table string) float64 {
	rows := 0.0
	if n.Relation == table {
		rows = (n.Rows + n.Filtered) * n.Loops
	}
	for _, child := range n.Plans {
		rows += child.read(table)
	}
	return rows
}

// While 10,000 jobs wait for one key, the statements that claim tasks read no rows of these jobs.
// The statements that assign keys or list the key queues read at most four rows of schedule.
func TestManyBehindOneKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const many = 10_000
	b.exec(`INSERT INTO processes (namespace, process_id, kind)
		SELECT 'shop', 'big' || n, 'job' FROM generate_series(1, $1::int) n
		UNION ALL SELECT 'shop', 'small' || n, 'job' FROM generate_series(1, 3) n`, many)
	b.exec("INSERT INTO status_counts (namespace, status, n) VALUES ('shop', 'RUNNING', $1::int + 3)", many)
	b.exec(`INSERT INTO jobs (namespace, process_id, name, timeout, constraints_version, constraint_keys)
		SELECT namespace, process_id, 'work', '1 minute', 1,
		       jsonb_build_object('c', rtrim(process_id, '0123456789'))
		  FROM processes WHERE kind = 'job'`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, job_name, line)
		SELECT namespace, process_id, nextval('task_ids'), 'INIT', 'constraint', now(), 'work',
		       'c=' || rtrim(process_id, '0123456789')
		  FROM processes WHERE kind = 'job'`)
	b.recount()
	b.exec("ANALYZE schedule, processes, jobs")
	conn := b.connect(storage.HotConfig)
	q, ctx := dbsqlc.New(), context.Background()
	for _, s := range []struct {
		name string
		run  func(db dbsqlc.DBTX) error
		most float64 // maximum number of rows of schedule to read
	}{
		{"Poll", func(db dbsqlc.DBTX) error {
			return second(q.Poll(ctx, db, dbsqlc.PollParams{
				Namespaces: []string{ns, ns}, JobNames: []string{"", "work"}, StepTimeoutsUs: []int64{1, 1},
				LeasesUs: []int64{1, 1}, MaxLeasesUs: []int64{1, 1}, Lim: 100, WorkerID: "w",
			}))
		}, 0},
		{"SearchCalls", func(db dbsqlc.DBTX) error {
			return second(q.SearchCalls(ctx, db, dbsqlc.SearchCallsParams{
				Namespaces: []string{ns}, Limits: []int32{100}, StepTimeoutsUs: []int64{1}, Owns: []bool{false},
			}))
		}, 0},
		{"SearchTimers", func(db dbsqlc.DBTX) error {
			return second(q.SearchTimers(ctx, db, dbsqlc.SearchTimersParams{
				Namespaces: []string{ns}, Limits: []int32{100}, StepTimeoutsUs: []int64{1}, Owns: []bool{false},
			}))
		}, 0},
		{"TakeLines", func(db dbsqlc.DBTX) error {
			return second(q.TakeLines(ctx, db, dbsqlc.TakeLinesParams{
				Namespace: ns, Version: 1, Lines: []string{"c=big", "c=small"}, Rooms: []int32{1, 10}, Lim: 1000,
			}))
		}, 4},
		{"ListLines", func(db dbsqlc.DBTX) error {
			return second(q.ListLines(ctx, db, dbsqlc.ListLinesParams{Namespace: ns, Lim: 1000}))
		}, 3},
	} {
		if n := ran(t, conn, s.run).read("schedule"); n > s.most {
			t.Errorf("%s reads %.0f rows of schedule, at most %.0f", s.name, n, s.most)
		}
	}
}

// ran runs a statement with EXPLAIN ANALYZE, rolls it back, and returns its plan.
func ran(t *testing.T, conn *pgx.Conn, run func(db dbsqlc.DBTX) error) ranNode {
	t.Helper()
	sql, args := recorded(run)
	tx, err := conn.Begin(t.Context())
	must(t, tx, err)
	var raw string
	err = tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, args...).Scan(&raw)
	must(t, 0, err)
	must(t, 0, tx.Rollback(t.Context()))
	var plans []struct{ Plan ranNode }
	must(t, 0, json.Unmarshal([]byte(raw), &plans))
	return plans[0].Plan
}

// A statement that claims jobs does not read more rows if the jobs hold 1,000 different keys than
// if they hold none. This includes the rows of constraint_holds and constraint_buckets.
func TestClaimsOfAThousandKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const keys, claimed = 1000, 100
	b.exec(`INSERT INTO constraint_sets (namespace, version, changed_time, began_time)
		VALUES ('keyed', 1, now(), now())`)
	b.exec(`INSERT INTO processes (namespace, process_id, kind)
		SELECT x.ns, 'j' || n, 'job'
		  FROM generate_series(1, $1::int) n, (VALUES ('plain'), ('keyed')) x(ns)`, keys)
	b.exec(`INSERT INTO status_counts (namespace, status, n)
		VALUES ('plain', 'RUNNING', $1::int), ('keyed', 'RUNNING', $1::int)`, keys)
	b.exec(`INSERT INTO jobs (namespace, process_id, name, timeout, constraints_version, constraint_keys)
		SELECT namespace, process_id, 'work', '1 minute', CASE namespace WHEN 'keyed' THEN 1 END,
		       CASE namespace WHEN 'keyed' THEN jsonb_build_object('c', process_id) END
		  FROM processes WHERE kind = 'job'`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, job_name, line)
		SELECT namespace, process_id, nextval('task_ids'), 'INIT', 'place', now(), 'work',
		       CASE namespace WHEN 'keyed' THEN 'c=' || process_id END
		  FROM processes WHERE kind = 'job'`)
	b.exec(`INSERT INTO constraint_holds (namespace, process_id, line)
		SELECT namespace, process_id, 'c=' || process_id FROM processes WHERE namespace = 'keyed'`)
	b.recount()
	b.exec("ANALYZE schedule, processes, jobs, constraint_holds")
	conn := b.connect(storage.HotConfig)
	q, ctx := dbsqlc.New(), context.Background()
	for name, claim := range map[string]func(db dbsqlc.DBTX, namespace string) error{
		"Poll": func(db dbsqlc.DBTX, namespace string) error {
			return second(q.Poll(ctx, db, dbsqlc.PollParams{
				Namespaces: []string{namespace}, JobNames: []string{"work"}, StepTimeoutsUs: []int64{1},
				LeasesUs: []int64{1}, MaxLeasesUs: []int64{1}, Lim: claimed, WorkerID: "w",
			}))
		},
		"SearchCalls": func(db dbsqlc.DBTX, namespace string) error {
			return second(q.SearchCalls(ctx, db, dbsqlc.SearchCallsParams{
				Namespaces: []string{namespace}, Limits: []int32{claimed}, StepTimeoutsUs: []int64{1},
				Owns: []bool{false},
			}))
		},
	} {
		plain := ran(t, conn, func(db dbsqlc.DBTX) error { return claim(db, "plain") })
		keyed := ran(t, conn, func(db dbsqlc.DBTX) error { return claim(db, "keyed") })
		for _, table := range []string{
			"schedule", "processes", "jobs", "running", "constraint_holds", "constraint_buckets",
		} {
			if without, with := plain.read(table), keyed.read(table); with > without {
				t.Errorf("%s reads %.0f rows of %s with keys, %.0f without", name, with, table, without)
			}
		}
		if n := plain.read("schedule"); n < claimed || n > 2*claimed {
			t.Errorf("%s reads %.0f rows of schedule for %d jobs", name, n, claimed)
		}
	}
}

// recorded returns the SQL and the arguments that a generated method passes to the database.
func recorded(run func(db dbsqlc.DBTX) error) (sql string, args []any) {
	var r recorder
	_ = run(&r) // always returns errRecorded
	return r.sql, r.args
}
