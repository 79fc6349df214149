package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// stockRuns inserts runs of every status with up to three steps each. Among 1,000 runs, 940 have
// succeeded, 20 failed, 10 were cancelled, 10 expired, and 20 are open.
func stockRuns(t testing.TB, n int) (*storage.Store, *pgxpool.Pool) {
	t.Helper()
	store, db := opened(t)
	plant(t, db, n,
		`CREATE UNLOGGED TABLE planted AS SELECT n, 'r' || lpad(n::text, 7, '0') AS id, '2026-11-01'::timestamptz
		        + n / 3 * interval '1 minute' AS at,
		        CASE WHEN n % 1000 < 940 THEN 'succeeded' WHEN n % 1000 < 960 THEN 'failed' WHEN n % 1000 < 970
		          THEN 'cancelled' WHEN n % 1000 < 980 THEN 'expired'
		             WHEN n % 1000 < 984 THEN 'pending' WHEN n % 1000 < 996 THEN 'active' WHEN n % 1000 < 998
		               THEN 'cancel_requested' ELSE 'compensating' END::flow_status AS status
		   FROM generate_series(1, $1::int) n`,
		`INSERT INTO processes (namespace, process_id, status, kind, created_time, metadata, aux_state)
		 SELECT 'ns', '~flow/' || id, 'RUNNING', 'flow', at, CASE
		   WHEN n % 3 = 0 THEN jsonb_build_object('tenant', 't' || n % 1000) END, convert_to('{"run": {}}', 'UTF8')
		   FROM planted`,
		`INSERT INTO flow_types (namespace, template_type, version) SELECT 'ns', x, 1
			FROM unnest(ARRAY['usual', 'rare']) x`,
		`INSERT INTO flow_templates (namespace, template_type, version, definition)
		 SELECT 'ns', x, 1, '{"steps": [{"stepId": "a", "job": {}}, {"stepId": "b", "job": {}},
		 {"stepId": "c", "wait": {}}]}' FROM unnest(ARRAY['usual', 'rare']) x`,
		`INSERT INTO flow_runs (namespace, run_id, template_type, template_version, status, attempt, created_time,
		 updated_time, running_time, finished_time, scope, scope_id, cron_id, payload)
		 SELECT 'ns', id, CASE WHEN n % 500 = 0 THEN 'rare'
		   ELSE 'usual' END, 1, status, 1, at, at + n * 7919 % 1000 * interval '1 minute', at,
		        CASE WHEN status IN ('succeeded', 'failed', 'cancelled', 'expired') THEN at END, CASE
		          WHEN n % 4 = 0 THEN 'user' ELSE '' END, CASE WHEN n % 4 = 0 THEN 'u' || n % 2000 ELSE '' END,
		        CASE WHEN n % 100 = 0 THEN 'cron' || n % 300 END, jsonb_build_object('target', 'x' || n % 5000, 'n',
		          n % 10, 'note', repeat('lorem ', 20)) FROM planted`,
		`INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, attempt, process_id, wait, token)
		 SELECT 'ns', id, step, -1, ord, CASE WHEN status IN ('active', 'cancel_requested') AND ord = n % 3
		   THEN 'running' ELSE 'succeeded' END::step_status, 1,
		        CASE WHEN ord < 2 THEN '~job/' || id || '/' || step END, CASE
		          WHEN ord = 2 THEN '{"kind": "HUMAN"}'::jsonb END, CASE WHEN ord = 2 AND status = 'active' THEN 't' END
		   FROM planted CROSS JOIN (VALUES ('a', 0), ('b', 1), ('c', 2)) AS x(step, ord)
		  WHERE status <> 'pending' AND (status NOT IN ('active', 'cancel_requested') OR ord <= n % 3)`,
		`INSERT INTO running (namespace, process_id, task_id, task_type, priority, attempt, fencing_token, node_id,
		 deadline, scheduled_time, running_time)
		 SELECT 'ns', '~job/' || id || '/b', n + 1000000, 'INIT', 0, 1, n, 1, now(), at, at FROM planted
		 WHERE status = 'active' AND n % 3 = 1`,
	)
	storagetest.Exec(t, db, "VACUUM ANALYZE")
	return store, db
}

// plantedRun describes a run of stockRuns by its number.
type plantedRun struct {
	n                                                     int
	id, status, phase, kind, scope, scopeID, tenant, cron string
	created, updated                                      time.Time
}

func plantedRunOf(n int) plantedRun {
	r := plantedRun{
		n: n, id: fmt.Sprintf("r%07d", n), kind: "usual",
		created: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n/3) * time.Minute),
	}
	r.updated = r.created.Add(time.Duration(n*7919%1000) * time.Minute)
	steps := []string{"a", "b", "c"}
	switch k := n % 1000; {
	case k < 940:
		r.status = "SUCCEEDED"
	case k < 960:
		r.status = "FAILED"
	case k < 970:
		r.status = "CANCELLED"
	case k < 980:
		r.status = "EXPIRED"
	case k < 984:
		r.status, r.phase = "PENDING", "a"
	case k < 996:
		r.status, r.phase = []string{"QUEUED", "RUNNING", "WAITING_WORKER"}[n%3], steps[n%3]
	case k < 998:
		r.status, r.phase = "CANCEL_REQUESTED", steps[n%3]
	default:
		r.status = "COMPENSATING"
	}
	if n%500 == 0 {
		r.kind = "rare"
	}
	if n%4 == 0 {
		r.scope, r.scopeID = "user", "u"+strconv.Itoa(n%2000)
	}
	if n%100 == 0 {
		r.cron = "cron" + strconv.Itoa(n%300)
	}
	if n%3 == 0 {
		r.tenant = "t" + strconv.Itoa(n%1000)
	}
	return r
}

// Each filter returns all matching runs, each once, in every order, even if a page reads few rows.
func TestListRuns(t *testing.T) {
	t.Parallel()
	const count = 1100
	store, db := stockRuns(t, count)
	storagetest.Exec(t, db, "UPDATE processes SET removed_time = now() WHERE process_id = '~flow/r0000500'")
	tried := 0
	for filter, holds := range map[string]func(plantedRun) bool{
		"":                   func(plantedRun) bool { return true },
		"status = FAILED":    func(r plantedRun) bool { return r.status == "FAILED" },
		"status = QUEUED":    func(r plantedRun) bool { return r.status == "QUEUED" },
		"status = SUCCEEDED": func(r plantedRun) bool { return r.status == "SUCCEEDED" },
		"status = RUNNING OR status = COMPENSATING": func(r plantedRun) bool {
			return r.status == "RUNNING" || r.status == "COMPENSATING"
		},
		"status = EXPIRED OR status = PENDING": func(r plantedRun) bool {
			return r.status == "EXPIRED" || r.status == "PENDING"
		},
		"NOT (status = SUCCEEDED OR status = waiting_worker)": func(r plantedRun) bool {
			return r.status != "SUCCEEDED" && r.status != "WAITING_WORKER"
		},
		"phase = b":            func(r plantedRun) bool { return r.phase == "b" },
		"template_type = rare": func(r plantedRun) bool { return r.kind == "rare" },
		"scope_id = u4":        func(r plantedRun) bool { return r.scopeID == "u4" },
		"scope_id = u4* AND status != FAILED": func(r plantedRun) bool {
			return strings.HasPrefix(r.scopeID, "u4") && r.status != "FAILED"
		},
		"cron_id = cron100":    func(r plantedRun) bool { return r.cron == "cron100" },
		"metadata.tenant = t9": func(r plantedRun) bool { return r.tenant == "t9" },
		"metadata.tenant = t9 OR metadata.tenant = t12 status = SUCCEEDED": func(r plantedRun) bool {
			return r.tenant == "t9" || r.tenant == "t12"
		},
		"metadata:tenant AND payload.n = 5": func(r plantedRun) bool { return r.tenant != "" && r.n%10 == 5 },
		"payload.target = x7":               func(r plantedRun) bool { return r.n == 7 },
		"payload.n > 8 scope = user":        func(r plantedRun) bool { return false },
		"created_time >= 2026-11-01T06:00:00Z AND created_time < 2026-11-01T06:02:00Z": func(r plantedRun) bool {
			return r.n/3 == 360 || r.n/3 == 361
		},
	} {
		for _, orderBy := range []string{"", "created_time", "updated_time", "updated_time desc"} {
			for _, r := range []reach{runReach, {first: 7, scanned: 40, candidates: 9, bytes: 2000}} {
				var want []plantedRun
				for n := 1; n <= count; n++ {
					if p := plantedRunOf(n); holds(p) && n != 500 {
						want = append(want, p)
					}
				}
				slices.SortFunc(want, func(a, b plantedRun) int {
					if orderBy == "" || strings.HasSuffix(orderBy, "desc") {
						a, b = b, a
					}
					at, bt := a.created, b.created
					if strings.HasPrefix(orderBy, "updated") {
						at, bt = a.updated, b.updated
					}
					if c := at.Compare(bt); c != 0 {
						return c
					}
					return strings.Compare(a.id, b.id)
				})
				var got []string
				q := RunQuery{Namespace: "ns", Filter: filter, OrderBy: orderBy, PageSize: 100}
				for pages := 0; ; pages++ {
					page, err := listRunsWithin(t.Context(), store, q, r)
					if err != nil || len(page.Runs) > 100 || pages > 2000 {
						t.Fatalf("%q by %q: %d runs on page %d, %v", filter, orderBy, len(page.Runs), pages, err)
					}
					for n := range page.Runs {
						got = append(got, page.Runs[n].RunID)
					}
					if q.PageToken = page.NextPageToken; q.PageToken == "" {
						break
					}
				}
				if !slices.EqualFunc(got, want, func(id string, p plantedRun) bool { return id == p.id }) {
					t.Errorf("%q by %q: %d runs, want %d: %v", filter, orderBy, len(got), len(want),
						got[:min(5, len(got))])
				}
				tried += len(want)
			}
		}
	}
	if tried < count {
		t.Errorf("%d runs", tried)
	}
}

// Runs and waits are found with the intended indexes and without a sort, regardless of the
// statistics.
func TestRunPlans(t *testing.T) {
	t.Parallel()
	store, db := stockRuns(t, 3000)
	for _, analyzed := range []bool{true, false} {
		if !analyzed {
			storagetest.Exec(t, db, `DELETE FROM pg_statistic WHERE starelid IN
					('flow_runs'::regclass, 'flow_steps'::regclass)`)
		}
		for _, tt := range []struct{ filter, orderBy, by string }{
			{"", OrderCreated, "flow_runs_created"}, {"status = SUCCEEDED", OrderOldest, "flow_runs_created"},
			{"", "updated_time", "flow_runs_updated"},
			{"status = FAILED", OrderCreated, "flow_runs_unsuccessful"},
			{"status = FAILED OR status = EXPIRED", OrderCreated, "flow_runs_unsuccessful"},
			{"status = RUNNING", OrderOldest, "flow_runs_unfinished"},
			{"phase = a", OrderCreated, "flow_runs_unfinished"},
			{"template_type = rare", OrderCreated, "flow_runs_type"},
			{"scope_id = u4 AND template_type = usual", OrderCreated, "flow_runs_scope"},
			{"cron_id = cron0", OrderOldest, "flow_runs_cron"},
		} {
			f, err := parse(tt.filter, runs)
			if err != nil {
				t.Fatal(err)
			}
			o := runOrders[tt.orderBy]
			l := &runList{namespace: "ns", filter: f, order: o}
			planContains(t, store, fmt.Sprintf("%q, analyzed %v", tt.filter, analyzed),
				l.statement(o.begin(), 500, 100), tt.by)
		}
		f, err := parse("assignees:kim", waits)
		if err != nil {
			t.Fatal(err)
		}
		s := waitStatement(WaitQuery{Namespace: "ns"}, f, waitOrder.begin(), 500, 100)
		planContains(t, store, "waits", s, "flow_steps_waits")
	}
}

func planContains(t *testing.T, store *storage.Store, of string, s *statement, index string) {
	t.Helper()
	err := store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		plan, err := planned(ctx, tx, s)
		if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "\nSort") {
			t.Errorf("%s is not read by %s:\n%s", of, index, plan)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A page of runs with large payloads ends with the run that exceeds the limit of the page.
func TestListRunsOfManyBytes(t *testing.T) {
	t.Parallel()
	store, db := stockRuns(t, 60)
	storagetest.Exec(t, db, `UPDATE flow_runs SET payload = jsonb_build_object('text', repeat('x', 400000))`)
	found, pages := 0, 0
	for q := (RunQuery{Namespace: "ns"}); ; pages++ {
		page, err := ListRuns(t.Context(), store, q)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Runs)
		if len(page.Runs) > 21 {
			t.Errorf("%d runs on a page", len(page.Runs))
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			break
		}
	}
	if found != 60 || pages < 2 {
		t.Errorf("%d runs on %d pages", found, pages)
	}
}

// Tokens of other lists of waits, and invalid ones, are rejected.
func TestListWaitsRefusesTokens(t *testing.T) {
	t.Parallel()
	store, _ := stockRuns(t, 1000)
	page, err := ListWaits(t.Context(), store, WaitQuery{Namespace: "ns", PageSize: 1})
	if err != nil || len(page.Waits) != 1 || page.NextPageToken == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	filter, err := parse("", waits)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []WaitQuery{
		{PageToken: page.NextPageToken, Filter: "kind = HUMAN"}, {PageToken: "x"},
		{PageToken: token(Query{Namespace: "ns", Filter: filter}, "waits", position{never, "no step"})},
	} {
		q.Namespace = "ns"
		_, err := ListWaits(t.Context(), store, q)
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "page_token" {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// FuzzListRuns runs every valid filter of runs and waits in PostgreSQL.
func FuzzListRuns(f *testing.F) {
	for _, seed := range append(seeds, "status = RUNNING OR NOT scope = a*", `phase != "a" payload.a."b c" = 5`,
		"NOT (payload:k OR status = FAILED) cron_id = z*", "metadata.n > 5", "assignees:x OR due_time:*") {
		f.Add(seed)
	}
	store, _ := stockRuns(f, 50)
	f.Fuzz(func(t *testing.T, text string) {
		r := reach{first: 2, scanned: 50, candidates: 5, bytes: usual.bytes}
		if _, err := parse(text, runs); err == nil {
			if _, err := listRunsWithin(t.Context(), store, RunQuery{
				Namespace: "ns", Filter: text, PageSize: 3,
			}, r); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
		if _, err := parse(text, waits); err == nil {
			if _, err := listWaitsWithin(t.Context(), store, WaitQuery{
				Namespace: "ns", Filter: text, PageSize: 3,
			}, r); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}

// BenchmarkListRuns reads page after page. PROGRESSOR_RUNS sets the number of runs;
// docs/performance.md used 200,000.
func BenchmarkListRuns(b *testing.B) {
	count, err := strconv.Atoi(os.Getenv("PROGRESSOR_RUNS"))
	if err != nil {
		count = 2000
	}
	store, _ := stockRuns(b, count)
	for _, filter := range []string{
		"", "status = FAILED", "status = RUNNING", "status = SUCCEEDED", "scope_id = u4", "template_type = rare",
		"cron_id = cron0", "phase = b", "metadata.tenant = t9",
		"payload.target = x7", "payload.n = 5 AND scope = user",
		"created_time > 2026-11-10T00:00:00Z AND created_time < 2026-11-10T01:00:00Z",
	} {
		for _, orderBy := range []string{"", "updated_time"} {
			b.Run(filter+" by "+orderBy, func(b *testing.B) {
				q := RunQuery{Namespace: "ns", Filter: filter, OrderBy: orderBy}
				var longest time.Duration
				found := 0
				for b.Loop() {
					began := time.Now()
					page, err := ListRuns(b.Context(), store, q)
					if err != nil {
						b.Fatal(err)
					}
					longest, found = max(longest, time.Since(began)), found+len(page.Runs)
					q.PageToken = page.NextPageToken
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
				b.ReportMetric(float64(found)/float64(b.N), "runs/page")
			})
		}
	}
}
