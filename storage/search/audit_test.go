package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// auditDatabase returns a database with n audit entries, one per hour. audit_id 1 is the oldest.
func auditDatabase(t *testing.T, n int) (*storage.Store, *pgxpool.Pool) {
	t.Helper()
	store, db := stock(t, 0)
	_, err := db.Exec(t.Context(), `
		INSERT INTO audit (time, actor, source, method, namespace, subject, details)
		SELECT '2026-11-01'::timestamptz + n * interval '1 hour', CASE n % 3 WHEN 0 THEN '' WHEN 1 THEN 'ada'
		  ELSE 'a*a' END, '10.0.0.1',
		       CASE n % 2 WHEN 0 THEN 'RemoveProcess' ELSE 'PutNamespace' END, CASE n % 5
		         WHEN 0 THEN '' ELSE 'ns' END, 'order-' || n,
		       CASE n % 2 WHEN 0 THEN '{"reason": "no more"}'::jsonb END
		  FROM generate_series(1, $1::int) n ORDER BY n`, n)
	if err != nil {
		t.Fatal(err)
	}
	return store, db
}

// all reads every page and returns the IDs of the entries and the number of pages.
func all(t *testing.T, store *storage.Store, q AuditQuery, window, limit int) (ids []int64, pages int) {
	t.Helper()
	for pages = 1; ; pages++ {
		page, err := listAuditWithin(t.Context(), store, q, window, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			ids = append(ids, e.AuditID)
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return ids, pages
		}
	}
}

// A filter returns the matching entries, newest first, for several page sizes and windows.
func TestListAudit(t *testing.T) {
	t.Parallel()
	store, _ := auditDatabase(t, 30)
	for filter, want := range map[string]func(n int64) bool{
		"":                       func(int64) bool { return true },
		"method = RemoveProcess": func(n int64) bool { return n%2 == 0 },
		`method = "Remove*" AND NOT subject = order-2*`: func(n int64) bool { return n%2 == 0 && n != 2 && n/10 != 2 },
		"actor = ada OR actor = 'a\\*a'":                func(n int64) bool { return n%3 != 0 },
		`actor != ""`:                                   func(n int64) bool { return n%3 != 0 },
		"actor = a*":                                    func(n int64) bool { return n%3 != 0 },
		`time >= "2026-11-01T20:00:00Z" time < 2026-11-01T22:00:00Z`: func(n int64) bool {
			return n == 20 || n == 21
		},
		`-(time != "2026-11-01T07:00:00Z" AND subject != "order-9") actor = ada*`: func(n int64) bool { return n == 7 },
		"subject = nothing": func(int64) bool { return false },
	} {
		for _, namespace := range []string{"", "ns"} {
			var ids []int64
			for n := int64(30); n > 0; n-- {
				if want(n) && (namespace == "" || n%5 != 0) {
					ids = append(ids, n)
				}
			}
			for _, size := range []struct{ page, window int }{{0, 1000}, {1, 1000}, {4, 5}, {100, 1}, {2, 2}} {
				got, pages := all(t, store, AuditQuery{
					Namespace: namespace, Filter: filter, PageSize: size.page,
				}, size.window, storage.ListBytes)
				if !slices.Equal(got, ids) {
					t.Errorf("%s in %q by %+v:\n%v, want\n%v", filter, namespace, size, got, ids)
				}
				if size.window == 1000 && size.page == 1 && pages != max(len(ids), 1) {
					t.Errorf("%s in %q: %d pages of one for %d orders", filter, namespace, pages, len(ids))
				}
			}
		}
	}
	page, err := ListAudit(t.Context(), store, AuditQuery{PageSize: 1})
	if err != nil || len(page.Entries) != 1 || page.NextPageToken != "30" {
		t.Fatalf("%+v, %v", page, err)
	}
	if got := fmt.Sprintf("%+v", page.Entries[0].Time.UTC().Format("15:04")) + " " +
		string(page.Entries[0].Details); got != `06:00 {"reason": "no more"}` {
		t.Error(got)
	}
}

// Invalid filters are rejected with an explanation. Invalid page tokens are also rejected.
func TestListAuditRefuses(t *testing.T) {
	t.Parallel()
	store, _ := auditDatabase(t, 1)
	for filter, want := range map[string]string{
		"who = ada":            `at character 1: there is no field "who": use actor, method, subject or time`,
		"status = ERROR":       `there is no field "status"`,
		"metadata.a = 1":       `there is no field "metadata"`,
		"subject.a = 1":        "subject has no parts",
		"actor > ada":          "actor supports only = != (got >)",
		"subject:*":            "subject supports only = != (got :)",
		"time = noon":          `"noon" is not a time`,
		"time = *":             "is not a time",
		"method = *Process":    "* is a wildcard only at the end of a value after = or != of actor, method or subject",
		"RemoveProcess":        `compare a field with it, as in subject = "RemoveProcess"`,
		`"order-1"`:            `compare a field with it, as in subject = "order-1"`,
		"actor = ada AND":      "such as method = RemoveProcess",
		"actor = ada AND = 5":  "such as method = RemoveProcess",
		"actor = ada or x = 5": "write OR in capitals",
	} {
		_, err := ListAudit(t.Context(), store, AuditQuery{Filter: filter})
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "filter" ||
			!strings.Contains(invalid.Message, want) {
			t.Errorf("%s: got %v, want %s", filter, err, want)
		}
	}
	for _, token := range []string{"x", "0", "-1", "1.5"} {
		_, err := ListAudit(t.Context(), store, AuditQuery{PageToken: token})
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "page_token" {
			t.Errorf("token %s: %v", token, err)
		}
	}
}

// A page is read with an index, without a sort.
func TestListAuditPlans(t *testing.T) {
	t.Parallel()
	store, db := auditDatabase(t, 30_000)
	if _, err := db.Exec(t.Context(), "UPDATE audit SET namespace = 'rare' WHERE audit_id % 500 = 0"); err != nil {
		t.Fatal(err)
	}
	filter, err := parse(`subject = "order-1*" AND time < "2027-01-01T00:00:00Z"`, audits)
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"full", "analyzed"} {
		for namespace, index := range map[string]string{"": "audit_pkey", "rare": "audit_namespace"} {
			err := store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, scanSettings); err != nil {
					return err
				}
				plan, err := planned(ctx, tx, auditStatement(
					AuditQuery{Namespace: namespace}, filter, 29_000, usual.scanned, 10, storage.ListBytes))
				if !strings.Contains(plan, index) || strings.Contains(plan, "Sort") ||
					strings.Contains(plan, "Seq Scan") {
					t.Errorf("%s, of %q:\n%s", when, namespace, plan)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(t.Context(), "ANALYZE audit"); err != nil {
			t.Fatal(err)
		}
	}
}

// A page ends with the entry whose details exceed the limit in bytes. The next page begins after
// that entry.
func TestListAuditIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	store, _ := auditDatabase(t, 30)
	ids, pages := all(t, store, AuditQuery{}, 1000, 30) // every second entry has details, of 21 bytes each
	if len(ids) != 30 || !slices.IsSortedFunc(ids, func(a, b int64) int { return int(b - a) }) || pages != 8 {
		t.Errorf("%d pages: %v", pages, ids)
	}
}
