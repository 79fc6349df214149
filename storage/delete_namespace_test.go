package storage_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// namespaceTables returns the tables with a column namespace from which DeleteRows must delete: all
// except audit, namespaces and processes.
func namespaceTables(b *bench) (tables []string) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		SELECT c.table_name
		  FROM information_schema.columns c
		  JOIN information_schema.tables t USING (table_schema, table_name)
		  JOIN pg_class p ON p.oid = ('progressor.' || c.table_name)::regclass AND NOT p.relispartition
		 WHERE c.table_schema = 'progressor' AND c.column_name = 'namespace' AND t.table_type = 'BASE TABLE'
		   AND c.table_name NOT IN ('audit', 'namespaces', 'processes')
		 ORDER BY 1`)
	if err == nil {
		tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(tables) < 30 {
		b.t.Fatal(tables, err)
	}
	return tables
}

// fillTable inserts rows of two namespaces into a table, with arbitrary values.
func fillTable(b *bench, table string, n int) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		SELECT c.column_name, CASE
		         WHEN c.column_name = 'namespace' THEN 'space.name'
		         WHEN c.column_name = 'kind' AND c.table_name = 'messages' THEN '''notify''::progressor.message_kind'
		         WHEN c.data_type = 'text' THEN '''k'' || k'
		         WHEN c.data_type IN ('integer', 'bigint', 'double precision') THEN 'k'
		         WHEN c.data_type LIKE 'timestamp%' THEN 'now() + k * interval ''1 second'''
		         WHEN c.data_type = 'interval' THEN 'interval ''1 second'''
		         WHEN c.data_type = 'boolean' THEN 'false'
		         WHEN c.data_type = 'uuid' THEN 'gen_random_uuid()'
		         WHEN c.data_type = 'bytea' THEN '''\x00'''
		         WHEN c.data_type = 'jsonb' THEN '''{}'''
		         WHEN c.data_type = 'ARRAY' THEN '''{}'''
		         WHEN c.data_type = 'xid8' THEN 'k::text::xid8'
		         WHEN c.data_type = 'USER-DEFINED' THEN format('(enum_range(NULL::progressor.%I))[1]', c.udt_name)
		       END
		  FROM information_schema.columns c
		 WHERE c.table_schema = 'progressor' AND c.table_name = $1 AND c.is_nullable = 'NO'
		   AND c.is_identity = 'NO' AND (c.column_default IS NULL OR c.column_name IN ('lane', 'message_id', 'xid'))
		 ORDER BY c.ordinal_position`, table)
	if err != nil {
		b.t.Fatal(err)
	}
	var columns, values []string
	for rows.Next() {
		var column string
		var value *string
		if err := rows.Scan(&column, &value); err != nil || value == nil {
			b.t.Fatalf("%s.%s: no value for its type (%v)", table, column, err)
		}
		columns, values = append(columns, column), append(values, *value)
	}
	if table == "dead_letters" { // its primary key has no namespace
		values[slices.Index(columns, "message_id")] = "k * 2 + CASE space.name WHEN 'a' THEN 0 ELSE 1 END"
	}
	b.exec(strings.NewReplacer("{table}", table, "{columns}", strings.Join(columns, ", "), "{values}",
		strings.Join(values, ", ")).
		Replace(`INSERT INTO {table} ({columns}) SELECT {values}
			FROM generate_series(1, $1) k, (VALUES ('a'), ('b')) AS space(name)
			ON CONFLICT DO NOTHING`), n)
}

// DeleteRows deletes the rows of a namespace in every table, in batches of at most 1,000 rows. The
// rows of other namespaces remain.
func TestDeleteRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	tables := namespaceTables(b)
	const n = 1100 // more than a batch
	for _, constraint := range strings.Fields(ask[string](b, `
		SELECT string_agg(format('%s:%s', conrelid::regclass, conname), ' ') FROM pg_constraint
		 WHERE connamespace = 'progressor'::regnamespace AND contype IN ('c', 'f')`)) {
		table, name, _ := strings.Cut(constraint, ":")
		b.exec("ALTER TABLE " + table + " DROP CONSTRAINT IF EXISTS " + name)
	}
	sum := func(table string) string {
		return ask[string](b, "SELECT md5(string_agg(x::text, ',' ORDER BY x::text)) FROM "+table+
			" x WHERE namespace = 'b'")
	}
	sums := map[string]string{}
	for _, table := range tables {
		fillTable(b, table, n)
		sums[table] = sum(table)
	}
	var progress storage.DeletionProgress
	deleted, batches := 0, 0
	for ended := false; !ended; batches++ {
		some, last, err := b.DeleteRows(context.Background(), "a", &progress)
		if err != nil {
			t.Fatal(err)
		}
		if some > 1000 {
			t.Errorf("a batch of %d rows", some)
		}
		deleted, ended = deleted+some, last
	}
	for _, table := range tables {
		if left := ask[int](b, "SELECT count(*) FROM "+table+" WHERE namespace = 'a'"); left > 0 {
			t.Errorf("%s has %d rows of the deleted namespace", table, left)
		}
		if sum(table) != sums[table] {
			t.Errorf("%s: the rows of another namespace have changed", table)
		}
	}
	if batches <= len(tables) || progress != (storage.DeletionProgress{}) {
		t.Errorf("%d rows in %d batches, then %+v", deleted, batches, progress)
	}
}

// A batch begins after the last key of the previous batch, even within a lane. Rows that are
// inserted before that key are deleted in the next round.
func TestDeleteRowsContinuesAfterAKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	insert := `INSERT INTO job_events (namespace, lane, event_id, job_id, type) OVERRIDING SYSTEM VALUE
		SELECT 'a', 1, k, 'j', 'enqueued' FROM generate_series($1::int, $2::int) k`
	b.exec(insert, 11, 2510)
	var progress storage.DeletionProgress
	round := func(inserted bool) (events []int) {
		for ended := false; !ended; {
			_, last, err := b.DeleteRows(t.Context(), "a", &progress)
			must(t, 0, err)
			left := ask[int](b, "SELECT count(*) FROM job_events")
			if n := len(events); n == 0 || events[n-1] != left {
				events = append(events, left)
			}
			if left == 1500 && !inserted {
				b.exec(insert, 1, 10)
				inserted = true
			}
			ended = last
		}
		return events
	}
	equal(t, "events after each batch", fmt.Sprint(round(false)), "[2500 1500 510 10]")
	equal(t, "events after each batch of the next round", fmt.Sprint(round(true)), "[10 0]")
}

// CountData counts up to its limit. It counts rows of tables without an index on the namespace only
// with CountsAll.
func TestCountData(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 3 {
		id := fmt.Sprintf("p%d", n)
		init := newInit(id, func(i *storage.Init) {
			i.IdempotencyKey, i.Fingerprint, i.Capture = "k", []byte("x"), false
			i.RequestID = process.RequestID(ns, id, "k")
		})
		if _, err := b.PrepareInit(init); err != nil {
			t.Fatal(err)
		}
	}
	text := func(counts []storage.KindCount, err error) string {
		return fmt.Sprint(counts, err)
	}
	equal(t, "all", text(b.CountData(t.Context(), ns, 1000, storage.CountsAll)),
		"[{processes RUNNING 3 false} {waiting_tasks  3 false} {idempotency_keys  3 false}] <nil>")
	equal(t, "up to a limit", text(b.CountData(t.Context(), ns, 2, storage.CountsIndexed)),
		"[{processes RUNNING 3 false} {waiting_tasks  2 true}] <nil>")
	equal(t, "another namespace", text(b.CountData(t.Context(), "other", 1000, storage.CountsAll)), "[] <nil>")
}

// countedBy has the tables that CountData does not count, with the kind of the objects to which the
// rows belong. An empty kind means that the rows are derived data or settings, and not data of
// users.
var countedBy = map[string]string{
	"leases": "running_tasks", "queue_backlogs": "", "parents": "processes", "failed_attempts": "ended_tasks",
	"job_places": "jobs", "job_groups": "jobs", "jobs": "jobs", "constraint_holds": "", "constraint_reservations": "",
	"constraint_buckets": "", "constraint_sets": "", "flow_steps": "runs", "flow_scopes": "runs",
	"flow_templates": "templates", "history_restarts": "", "change_drops": "", "change_heads": "",
	"job_event_drops": "", "sink_dead_letters": "sinks",
}

// CountData counts the rows of a namespace in each table, or the objects to which the rows belong.
func TestCountDataKnowsEveryTable(t *testing.T) {
	t.Parallel()
	b := newBench(t, storagetest.WithoutInvariants())
	for _, constraint := range strings.Fields(ask[string](b, `
		SELECT string_agg(format('%s:%s', conrelid::regclass, conname), ' ') FROM pg_constraint
		 WHERE connamespace = 'progressor'::regnamespace AND contype IN ('c', 'f')`)) {
		table, name, _ := strings.Cut(constraint, ":")
		b.exec("ALTER TABLE " + table + " DROP CONSTRAINT IF EXISTS " + name)
	}
	kinds := map[string]bool{}
	uncounted := map[string]bool{}
	for _, table := range namespaceTables(b) {
		before, err := b.CountData(t.Context(), "a", 1000, storage.CountsAll)
		if err != nil {
			t.Fatal(err)
		}
		fillTable(b, table, 3)
		after, err := b.CountData(t.Context(), "a", 1000, storage.CountsAll)
		if err != nil {
			t.Fatal(err)
		}
		if uncounted[table] = slices.Equal(before, after); uncounted[table] {
			if _, known := countedBy[table]; !known {
				t.Errorf("the rows of %s are not counted: add a kind for the table, or name in countedBy "+
					"the kind that includes them", table)
			}
		}
		for _, c := range after {
			kinds[c.Kind] = true
		}
	}
	for table, kind := range countedBy {
		if !uncounted[table] || kind != "" && !kinds[kind] {
			t.Errorf("countedBy has %s: %q, but the table is counted, or the kind does not exist", table, kind)
		}
	}
}
