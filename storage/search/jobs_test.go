package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// stockJobs inserts n jobs, one eighth of them in each state, depending on their number, among
// other processes.
func stockJobs(t testing.TB, n int) (*storage.Store, *pgxpool.Pool) {
	t.Helper()
	store, db := opened(t)
	plant(t, db, n,
		`CREATE UNLOGGED TABLE planted AS SELECT n, 'j' || lpad(n::text, 7, '0') AS id, '2026-11-01'::timestamptz
		        + n / 3 * interval '1 minute' AS at, n % 8 AS state,
		        CASE n % 8 WHEN 5 THEN 'COMPLETED' WHEN 6 THEN 'ERROR' WHEN 7 THEN 'CANCELLED'
		          ELSE 'INIT' END::process_status AS status,
		        convert_to(CASE n % 5 WHEN 0 THEN '"text"' WHEN 1 THEN '{"region": "eu", "n": ' || n % 10 || '}'
		          WHEN 2 THEN '{"region": "us"}' WHEN 3 THEN '[1]' END, 'UTF8') AS args
		   FROM generate_series(1, $1::int) n`,
		`INSERT INTO processes (namespace, process_id, status, status_changed_time, attention, attention_time,
		                        corrupted_by, kind, created_time, metadata,
		                        cancel_requested_time, cancel_deadline)
		 SELECT 'ns', id, status, at, CASE WHEN status <> 'INIT' THEN status END, CASE WHEN status <> 'INIT'
		   THEN at END, CASE status WHEN 'ERROR' THEN 1 END,
		        'job', at, CASE WHEN n % 3 = 0 THEN jsonb_build_object('tenant', 't' || n % 4) END, CASE
		          WHEN state = 4 THEN at END, CASE WHEN state = 4 THEN at END FROM planted`,
		`INSERT INTO processes (namespace, process_id, created_time) SELECT 'ns', 'p' || id, at FROM planted`,
		`INSERT INTO jobs (namespace, process_id, name, timeout, tags) SELECT 'ns', id, CASE WHEN n % 50 = 0 THEN 'rare'
		        ELSE 'mail' || n % 3 END, '30 s',
		        CASE WHEN n % 40 = 0 THEN '["urgent", "x"]' WHEN n % 2 = 0 THEN '["x"]' END::jsonb FROM planted`,
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, attempt, scheduled_time,
		 args, job_name)
		 SELECT 'ns', id, n + 1000000, 'INIT', CASE WHEN state = 1 THEN 'place' ELSE 'time' END::waits_for, n % 4, CASE
		   WHEN state = 3 THEN 1 ELSE 0 END, at, args, 'any'
		   FROM planted WHERE state IN (0, 1, 3)`,
		`INSERT INTO running (namespace, process_id, task_id, task_type, priority, attempt, fencing_token, node_id,
		 deadline, scheduled_time, running_time, args)
		 SELECT 'ns', id, n + 1000000, 'INIT', n % 4, 1, n, 1, now(), at, at, args FROM planted WHERE state IN (2, 4)`,
		`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, scheduled_time,
		 finished_time, args, worker_id)
		 SELECT 'ns', id, n, 'INIT', 'FINISHED', 1, n % 4, at, at, args, 'w' || n % 3 FROM planted WHERE state > 4`,
		`INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time,
		 lease_duration, heartbeat_interval)
		 SELECT 'ns', id, n, 'w' || n % 3, '', at, at, '30 s', '10 s' FROM planted WHERE state IN (2, 4)`,
		`ANALYZE`,
	)
	return store, db
}

// planted describes a job of stockJobs by its number.
type planted struct {
	n, priority         int
	state, name, tenant string
	tags                []string
	args                any
	created             time.Time
	id                  string
}

func plantedJob(n int) planted {
	p := planted{n: n, id: fmt.Sprintf("j%07d", n), priority: n % 4, name: fmt.Sprintf("mail%d", n%3),
		created: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n/3) * time.Minute)}
	p.state = []string{
		"SCHEDULED", "AVAILABLE", "RUNNING", "RETRYABLE", "CANCEL_REQUESTED", "SUCCEEDED", "FAILED", "CANCELLED",
	}[n%8]
	if n%50 == 0 {
		p.name = "rare"
	}
	if n%3 == 0 {
		p.tenant = fmt.Sprintf("t%d", n%4)
	}
	switch {
	case n%40 == 0:
		p.tags = []string{"urgent", "x"}
	case n%2 == 0:
		p.tags = []string{"x"}
	}
	switch n % 5 {
	case 0:
		p.args = "text"
	case 1:
		p.args = map[string]any{"region": "eu", "n": float64(n % 10)}
	case 2:
		p.args = map[string]any{"region": "us"}
	case 3:
		p.args = []any{float64(1)}
	}
	return p
}

// worker returns the worker that runs or ended a job, or "" if there is none.
func (p planted) worker() string {
	switch p.state {
	case "RUNNING", "CANCEL_REQUESTED", "SUCCEEDED", "FAILED", "CANCELLED":
		return fmt.Sprintf("w%d", p.n%3)
	}
	return ""
}

func (p planted) arg(key string) any {
	m, _ := p.args.(map[string]any)
	return m[key]
}

// Each filter returns all matching jobs, each once, in every order, even if a page reads few rows.
func TestListJobs(t *testing.T) {
	t.Parallel()
	const count = 240
	store, _ := stockJobs(t, count)
	tagged := func(p planted, tag string) bool { return slices.Contains(p.tags, tag) }
	for filter, holds := range map[string]func(planted) bool{
		"":                          func(planted) bool { return true },
		"state = SCHEDULED":         func(p planted) bool { return p.state == "SCHEDULED" },
		"state = available":         func(p planted) bool { return p.state == "AVAILABLE" },
		"state = JOB_STATE_RUNNING": func(p planted) bool { return p.state == "RUNNING" },
		"state = RETRYABLE OR state = RUNNING": func(p planted) bool {
			return p.state == "RETRYABLE" || p.state == "RUNNING"
		},
		"state = CANCEL_REQUESTED": func(p planted) bool { return p.state == "CANCEL_REQUESTED" },
		"state = FAILED":           func(p planted) bool { return p.state == "FAILED" },
		"state != SUCCEEDED NOT state = FAILED": func(p planted) bool {
			return p.state != "SUCCEEDED" && p.state != "FAILED"
		},
		"state != RUNNING":               func(p planted) bool { return p.state != "RUNNING" },
		"name = rare":                    func(p planted) bool { return p.name == "rare" },
		"name = mail* state = SUCCEEDED": func(p planted) bool { return p.name != "rare" && p.state == "SUCCEEDED" },
		"priority < 2 AND priority >= 1": func(p planted) bool { return p.priority == 1 },
		"tags:urgent":                    func(p planted) bool { return tagged(p, "urgent") },
		"NOT tags:*":                     func(p planted) bool { return len(p.tags) == 0 },
		`tags:x state = RUNNING metadata.tenant = "t2"`: func(p planted) bool {
			return tagged(p, "x") && p.state == "RUNNING" && p.tenant == "t2"
		},
		`created_time >= "2026-11-01T01:00:00Z"`: func(p planted) bool { return p.created.Hour() >= 1 },
		"args.region = eu":                       func(p planted) bool { return p.arg("region") == "eu" },
		"args.n > 5 state = FAILED": func(p planted) bool {
			n, ok := p.arg("n").(float64)
			return ok && n > 5 && p.state == "FAILED"
		},
		"args.region = us OR name = rare": func(p planted) bool { return p.arg("region") == "us" || p.name == "rare" },
		"NOT args.region:* AND tags:x":    func(p planted) bool { return p.arg("region") == nil && tagged(p, "x") },
		"job_id = j000001*":               func(p planted) bool { return p.n/10 == 1 },
		"worker_id = w1":                  func(p planted) bool { return p.worker() == "w1" },
		"NOT worker_id = w*":              func(p planted) bool { return p.worker() == "" },
		"state = RUNNING worker_id != w1": func(p planted) bool { return p.state == "RUNNING" && p.worker() != "w1" },
	} {
		for _, orderBy := range []string{"", "created_time", "job_id", "job_id desc"} {
			for _, r := range []reach{usualJobs, {first: 7, scanned: 40, candidates: 9, bytes: 5000}} {
				want := map[string]bool{}
				for n := 1; n <= count; n++ {
					if p := plantedJob(n); holds(p) {
						want[p.id] = true
					}
				}
				var got []string
				seen := map[string]bool{}
				q := JobQuery{Namespace: "ns", Filter: filter, OrderBy: orderBy, PageSize: 30}
				for pages := 0; ; pages++ {
					page, err := listJobsWithin(t.Context(), store, q, r)
					if err != nil {
						t.Fatalf("%q by %q: %v", filter, orderBy, err)
					}
					if len(page.Jobs) > 30 || pages > 2000 {
						t.Fatalf("%q by %q: %d jobs on page %d", filter, orderBy, len(page.Jobs), pages)
					}
					for _, j := range page.Jobs {
						if !want[j.ProcessID] || seen[j.ProcessID] {
							t.Fatalf("%q by %q: found %s, again: %v", filter, orderBy, j.ProcessID, seen[j.ProcessID])
						}
						seen[j.ProcessID] = true
						got = append(got, j.ProcessID)
					}
					if q.PageToken = page.NextPageToken; q.PageToken == "" {
						break
					}
				}
				if len(got) != len(want) {
					t.Errorf("%q by %q: %d jobs, want %d", filter, orderBy, len(got), len(want))
				}
				if strings.HasPrefix(orderBy, "job_id") && !slices.IsSortedFunc(got, func(a, b string) int {
					if orderBy == "job_id" {
						return strings.Compare(a, b)
					}
					return strings.Compare(b, a)
				}) {
					t.Errorf("%q by %q: not in order", filter, orderBy)
				}
			}
		}
	}
}

// A list by finished_time desc returns the job that finished last first.
func TestJobsByFinishedTime(t *testing.T) {
	t.Parallel()
	store, _ := stockJobs(t, 100)
	page, err := ListJobs(t.Context(), store, JobQuery{
		Namespace: "ns", Filter: "state = FAILED", OrderBy: "finished_time desc",
	})
	if err != nil || len(page.Jobs) != 12 || page.Jobs[0].ProcessID != "j0000094" {
		t.Errorf("%d jobs, %v", len(page.Jobs), err)
	}
	if job := page.Jobs[0]; job.Name != "mail1" || job.Priority != 2 || job.FinishedTime == nil {
		t.Errorf("%+v", job)
	}
}

// Invalid filters, orders and page tokens of a list of jobs are rejected with the name of the
// field.
func TestListJobsRefuses(t *testing.T) {
	t.Parallel()
	store, _ := stockJobs(t, 1)
	for _, c := range []struct {
		q     JobQuery
		field string
		want  string
	}{
		{JobQuery{Filter: "status = ERROR"}, "filter",
			`there is no field "status": use job_id, state, name, priority, tags, worker_id, created_time, ` +
				`reason, fingerprint, metadata.KEY or args.KEY`},
		{JobQuery{Filter: "state = QUEUED"}, "filter", `"QUEUED" is not a state: use one of SCHEDULED, AVAILABLE,`},
		{JobQuery{Filter: "priority = high"}, "filter", `"high" is not a whole number`},
		{JobQuery{Filter: "tags = x"}, "filter", "tags supports only != :"},
		{JobQuery{Filter: "args = 5"}, "filter", "write args.KEY = VALUE"},
		{JobQuery{OrderBy: "priority"}, "order_by", "must be created_time desc"},
		{JobQuery{OrderBy: "finished_time desc", Filter: "state = RUNNING"}, "order_by",
			"needs a filter on one of the states"},
		{JobQuery{PageToken: "x"}, "page_token", "next_page_token"},
	} {
		c.q.Namespace = "ns"
		_, err := ListJobs(t.Context(), store, c.q)
		invalid, ok := errors.AsType[*process.InvalidError](err)
		if !ok || invalid.Field != c.field || !strings.Contains(invalid.Message, c.want) {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
}

// A list supports args that are nested 9,990 levels deep.
func TestListJobsOfDeepArgs(t *testing.T) {
	t.Parallel()
	store, db := stockJobs(t, 8)
	deep := strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990)
	if !json.Valid([]byte(deep)) {
		t.Fatal("no JSON")
	}
	storagetest.Exec(t, db, "UPDATE tasks SET args = convert_to($1, 'UTF8')", deep)
	found := 0
	for q := (JobQuery{Namespace: "ns", Filter: "args.region = eu"}); ; {
		page, err := ListJobs(t.Context(), store, q)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Jobs)
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			break
		}
	}
	if found != 1 {
		t.Errorf("%d jobs", found)
	}
}

// Jobs are found with the intended indexes, regardless of the statistics. If all waiting tasks are
// jobs, two indexes are equally good for jobs that are available.
func TestJobPlans(t *testing.T) {
	t.Parallel()
	store, db := stockJobs(t, 5000)
	for _, analyzed := range []bool{true, false} {
		if !analyzed {
			storagetest.Exec(t, db, `DELETE FROM pg_statistic WHERE starelid IN
					('jobs'::regclass, 'schedule'::regclass, 'running'::regclass)`)
		}
		for _, tt := range []struct {
			filter, by string
			index      func(*statement, Query) bool
		}{
			{"name = rare", "jobs_name", byIDs(idsByName)}, {"tags:urgent", "jobs_tags", byIDs(idsByTag)},
			{"state = SCHEDULED", "schedule_job_times", byIDs(idsByState)},
			{"state = AVAILABLE", "schedule_job_rounds|schedule_rounds", byIDs(idsByState)},
			{"state = RUNNING OR state = CANCEL_REQUESTED", "running_pkey", byIDs(idsByState)},
			{"state = FAILED", "processes_by_status", byListStatus}, {"job_id = j00001", "processes_pkey", byID},
			{"", "jobs_pkey", byIDs(idsOfJobs)},
		} {
			f, err := parse(tt.filter, jobTable)
			if err != nil {
				t.Fatal(err)
			}
			q, o := Query{Namespace: "ns", Filter: onlyJobs.And(f), jobs: true}, orders[OrderCreated]
			err = store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, scanSettings+"; "+candidateSettings); err != nil {
					return err
				}
				plan, err := planned(ctx, tx, candidateStatement(leanColumns, q, o, o.begin(), tt.index,
					DefaultPageSize, usual))
				read := slices.ContainsFunc(strings.Split(tt.by, "|"), func(index string) bool {
					return strings.Contains(plan, index)
				})
				if !read || strings.Contains(plan, "Seq Scan") {
					t.Errorf("analyzed %v: %q is not read by %s:\n%s", analyzed, tt.filter, tt.by, plan)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// FuzzListJobs runs every valid filter of jobs in PostgreSQL.
func FuzzListJobs(f *testing.F) {
	for _, seed := range append(seeds, "state = RUNNING OR NOT name = a*", `tags:x priority > 3 args.a."b c" = 5`,
		"NOT (args:k OR state = FAILED) job_id < z", "args:*", "worker_id = w1 NOT worker_id = x*") {
		f.Add(seed)
	}
	store, _ := stockJobs(f, 50)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parse(text, jobTable); err != nil {
			return
		}
		q := JobQuery{Namespace: "ns", Filter: text, PageSize: 3}
		if _, err := listJobsWithin(t.Context(), store, q, reach{
			first: 2, scanned: 50, candidates: 5, bytes: usual.bytes,
		}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
