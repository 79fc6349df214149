package search

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// planned returns the output of EXPLAIN for a statement.
func planned(ctx context.Context, tx pgx.Tx, s *statement) (string, error) {
	e := &statement{}
	e.add("EXPLAIN ")
	e.add(s.text.String())
	rows, err := tx.Query(ctx, e.text.String(), append([]any{pgx.QueryExecModeDescribeExec}, s.args...)...)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// explain returns the plans of the statements that can read a page of a list: "scan" for the scan
// in the order of the list, and the others for the candidates from an index.
func explain(t *testing.T, store *storage.Store, q Query, order string) map[string]string {
	t.Helper()
	plans := map[string]string{}
	o := orders[order]
	err := store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		if plans["scan"], err = planned(ctx, tx,
			scanStatement(columns, q, o, o.begin(), usual.first, DefaultPageSize, usual.bytes)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, candidateSettings); err != nil {
			return err
		}
		for n, name := range []string{"by id", "by fingerprint", "by attention", "by metadata"} {
			if s := candidateStatement(columns, q, o, o.begin(), indexes[n], DefaultPageSize, usual); s != nil {
				if plans[name], err = planned(ctx, tx, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s by %s: %v", q.Filter, order, err)
	}
	return plans
}

// A page is read with the intended index, whether the table is empty, full or analyzed. Only the
// rows of the page and its candidates are sorted. A status is part of the index condition. It is
// not a filter, because a filter could skip any number of rows with other statuses. (The exception
// is an empty table, in which an index condition with several statuses costs as much as a filter.)
func TestPlans(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 0)
	look := func(when string) {
		for _, tt := range []struct{ filter, order, read, index string }{
			{"", OrderCreated, "scan", "processes_by_created"}, {"", OrderOldest, "scan", "processes_by_created"},
			{"metadata.n = 3", OrderCreated, "scan", "processes_by_created"},
			{"status = ERROR", OrderID, "scan", "processes_pkey"},
			{"", OrderIDDescending, "scan", "processes_pkey"},
			{"status = ERROR", OrderStatusChanged, "scan", "processes_by_status "},
			{"status = ERROR", OrderCreated, "scan", "processes_by_status_created "},
			{"status = COMPLETED", OrderCreated, "scan", "processes_by_created "},
			{"status = COMPLETED", OrderStatusChanged, "scan", "processes_by_status "},
			{"status = CANCELLED", OrderOldest, "scan", "processes_by_status_created "},
			{"status = SUSPENDED", OrderCreated, "scan", "processes_by_status_created "},
			{"status = ERROR AND kind = job", OrderOldest, "scan", "processes_by_status_created "},
			{"process_id = order-1*", OrderCreated, "by id", "processes_pkey"},
			{"process_id = order-1", OrderOldest, "by id", "processes_pkey"},
			{"status = ERROR", OrderCreated, "by attention", "processes_by_status"},
			{"status = COMPLETED OR status = CANCELLED", OrderID, "by attention", "processes_by_status"},
			{"fingerprint = a1", OrderCreated, "by fingerprint", "tasks_errors"},
			{"status = ERROR AND fingerprint = a1", OrderStatusChanged, "by fingerprint", "processes_imported_errors"},
			{"metadata.tenant = t1", OrderCreated, "by metadata", "processes_metadata"},
			{"metadata.tags:x1 kind = job", OrderID, "by metadata", "processes_metadata"},
			{"metadata.n = 1 OR metadata.n = 2", OrderCreated, "by metadata", "processes_metadata"},
		} {
			f, err := Parse(tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			plan := explain(t, store, Query{Namespace: "ns", Filter: f}, tt.order)[tt.read]
			if !strings.Contains(plan, tt.index) || strings.Contains(plan, "Seq Scan") ||
				strings.Contains(plan, "Filter: (attention") && (tt.read == "scan" || when != "empty") ||
				(tt.read == "scan" && strings.Count(plan, "Sort Key") > 1) {
				t.Errorf("%s: %q by %s, %s, is not read by %s:\n%s", when, tt.filter, tt.order, tt.read, tt.index, plan)
			}
		}
	}
	look("empty")
	storagetest.Exec(t, db,
		`INSERT INTO processes (namespace, process_id, status, corrupted_by, attention, attention_time, metadata)
		SELECT 'ns', 'order-' || n, s, 0, NULLIF(s, 'RUNNING'), CASE s
		  WHEN 'ERROR' THEN now() END, jsonb_build_object('tenant', 't' || n % 100)
		  FROM (SELECT n, CASE n % 50 WHEN 0 THEN 'ERROR' ELSE 'RUNNING' END::process_status AS s
		  FROM generate_series(1, 30000) n) x`)
	look("full")
	storagetest.Exec(t, db, "ANALYZE processes")
	look("analyzed")
}

// A page starts at one key: the last key of the previous page, or the bound in the filter,
// whichever comes later in the order of the list. With both as conditions, PostgreSQL would use
// only one of them in the index, and read all rows between the two. bounds is the remaining
// condition of the filter.
func TestWhereListsBegin(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	const between = `created_time > "2026-11-10T00:00:00Z" AND created_time <= "2026-11-20T00:00:00Z"`
	for _, tt := range []struct {
		filter, order string
		from, want    position
		bounds        string
	}{
		{between, OrderCreated, position{day(30), "x"}, position{day(20).Add(time.Microsecond), ""},
			" AND p.created_time > $1::timestamptz"},
		{between, OrderCreated, position{day(20), "x"}, position{day(20), "x"},
			" AND p.created_time > $1::timestamptz"},
		{between, OrderOldest, position{}, position{day(10).Add(time.Microsecond), ""},
			" AND p.created_time <= $1::timestamptz"},
		{between, OrderOldest, position{day(12), "x"}, position{day(12), "x"},
			" AND p.created_time <= $1::timestamptz"},
		{`created_time < "2026-11-20T00:00:00Z"`, OrderCreated, position{day(30), ""}, position{day(20), ""}, ""},
		{`created_time >= "2026-11-20T00:00:00Z"`, OrderOldest, position{}, position{day(20), ""}, ""},
		{`created_time = "2026-11-20T00:00:00Z"`, OrderOldest, position{}, position{day(20), ""},
			" AND p.created_time = $1::timestamptz"},
		{`created_time != "2026-11-20T00:00:00Z"`, OrderOldest, position{}, position{}, ""},
		{`status = ERROR AND status_changed_time < "2026-11-20T00:00:00Z"`, OrderStatusChanged, position{day(30), ""},
			position{day(20), ""}, ""},
		{between, OrderID, position{id: "x"}, position{id: "x"}, ""},
	} {
		f, err := Parse(tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		s := &statement{}
		orders[tt.order].bounds(s, f)
		if got := orders[tt.order].start(f, tt.from); got != tt.want || s.text.String() != tt.bounds {
			t.Errorf("%s by %s from %v: got %v and %q, want %v and %q", tt.filter, tt.order, tt.from, got,
				s.text.String(), tt.want, tt.bounds)
		}
	}
}

// FuzzExplain plans and runs every valid filter in PostgreSQL.
func FuzzExplain(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	store, _ := stock(f, 100)
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := Parse(text)
		if err != nil {
			return
		}
		q := Query{Namespace: "ns", Filter: filter}
		for order := range orders {
			if order != OrderStatusChanged || filter.listStatus() != "" {
				explain(t, store, q, order)
			}
		}
		q.PageSize = 3
		if _, err := listWithin(t.Context(), store, q, reach{
			first: 2, scanned: 50, candidates: 5, bytes: usual.bytes,
		}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
