package search

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// eventDatabase returns a database with n events of three jobs.
func eventDatabase(t *testing.T, n int) *storage.Store {
	t.Helper()
	store, db := stock(t, 0)
	for k := range n {
		storagetest.Exec(t, db, `
			INSERT INTO job_events (namespace, job_id, step_id, type, from_status, to_status, created_time, worker_id,
			  actor)
			VALUES (CASE $1::int % 7 WHEN 6 THEN 'other' ELSE 'ns' END, 'j' || $1 % 3, CASE WHEN $1 % 4 = 0
			  THEN 'pay' END, CASE $1 % 2 WHEN 0 THEN 'started' ELSE 'attempt_failed' END,
			        CASE WHEN $1 % 5 > 0 THEN 'running' END, CASE $1 % 5 WHEN 1 THEN 'failed'
			          WHEN 2 THEN 'retryable' END, '2026-11-01'::timestamptz + $1 * interval '1 hour',
			        CASE WHEN $1 % 2 = 0 THEN 'w' || $1 % 3 END, CASE WHEN $1 % 3 = 0 THEN 'kim' END)`, k)
	}
	return store
}

// A filter finds the same events in a list as in a watch. The list returns the newest events first.
func TestListEvents(t *testing.T) {
	t.Parallel()
	store := eventDatabase(t, 60)
	read := func(filter string, size, window int) (list []jobs.EventRow) {
		q := EventQuery{Namespace: "ns", Filter: filter, PageSize: size}
		for {
			page, err := listEventsWithin(t.Context(), store, q, window)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, page.Events...)
			if q.PageToken = page.NextPageToken; q.PageToken == "" {
				return list
			}
		}
	}
	every := read("", 0, 1000)
	if len(every) != 52 || every[0].CreatedTime.Before(every[51].CreatedTime) {
		t.Fatalf("%d events", len(every))
	}
	found := 0
	for _, filter := range []string{
		"job_id = j1", `job_id = "j*"`, "job_id != j1", "step_id = pay", "step_id:*", "NOT step_id:*",
		"run_id = j1", "run_id != j1", "run_id:*", "NOT run_id:*",
		`to = failed OR to = retryable`, `from = "" AND type = started`,
		"type != started", "worker_id = w2", `actor = "k*" AND job_id = j0`,
		"actor = kim AND job_id = j0 AND to = failed", `created_time > "2026-11-02T05:00:00Z"`,
		`created_time <= "2026-11-02T05:00:00Z" AND created_time != "2026-11-02T05:00:00Z"`,
		`created_time = "2026-11-02T05:00:00Z"`, "job_id = j1 AND job_id = j2",
	} {
		f, err := ParseEvents(filter)
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		want := slices.DeleteFunc(slices.Clone(every), func(e jobs.EventRow) bool { return !f.MatchesEvent(&e) })
		for _, cut := range [][2]int{{0, 1000}, {3, 1000}, {5, 4}, {1, 1}} {
			if got := read(filter, cut[0], cut[1]); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, in pages of %d of windows of %d: %d events, want %d", filter, cut[0], cut[1], len(got),
					len(want))
			}
		}
		found += len(want)
	}
	if found < 100 {
		t.Errorf("%d events were found in total: the test has checked too little", found)
	}
	for _, q := range []EventQuery{
		{Filter: "name = x"}, {Filter: "to > failed"}, {PageToken: "x"}, {PageToken: "1.-1"}, {PageToken: "01.1"},
		{PageToken: "99999999999999999999.1"},
	} {
		q.Namespace = "ns"
		if _, err := ListEvents(t.Context(), store, q); err == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
}

// The events of one job are read with an index, regardless of how many events other jobs have.
func TestEventsOfJobAreFound(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 0)
	storagetest.Exec(t, db, `INSERT INTO job_events (namespace, job_id, type) SELECT 'ns', 'j' || n % 10000, 'x'
			FROM generate_series(1, 50000) n`)
	filter, err := ParseEvents("job_id = j77")
	if err != nil {
		t.Fatal(err)
	}
	scan := eventScan{namespace: "ns", filter: filter, before: math.MaxInt64, window: 20000, size: 50}
	text := explainEvents(t, store, scan)
	if !strings.Contains(text, "job_events_job_hash") || strings.Contains(text, "Seq Scan") {
		t.Error(text)
	}
}

// The newest events of a namespace are read with one index scan for each lane. PostgreSQL merges
// the scans.
func TestLanesOfEventsAreMerged(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 0)
	storagetest.Exec(t, db,
		"INSERT INTO job_event_lanes (lane) OVERRIDING SYSTEM VALUE SELECT generate_series(101, 120)")
	storagetest.Exec(t, db, `INSERT INTO job_events (namespace, lane, job_id, type)
		SELECT 'ns', 101 + n % 20, 'j' || n, 'x' FROM generate_series(1, 50000) n`)
	storagetest.Exec(t, db, "ANALYZE job_events")
	scan := eventScan{namespace: "ns", before: math.MaxInt64, window: 1000, size: 50}
	for lane := range int64(20) {
		scan.lanes = append(scan.lanes, 101+lane)
	}
	text := explainEvents(t, store, scan)
	if !strings.Contains(text, "Merge Append") || strings.Count(text, "job_events_of_lane") != 20 {
		t.Error(text)
	}
	page, err := ListEvents(t.Context(), store, EventQuery{Namespace: "ns", PageSize: 1000})
	if err != nil || len(page.Events) != 1000 || page.NextPageToken == "" {
		t.Fatal(len(page.Events), err)
	}
	for n := range page.Events {
		if want := fmt.Sprint("j", 50000-n); page.Events[n].JobID != want {
			t.Fatalf("event %d is of %s, want %s", n, page.Events[n].JobID, want)
		}
	}
}

// explainEvents returns the plan of a scan.
func explainEvents(t *testing.T, store *storage.Store, scan eventScan) string {
	t.Helper()
	var plan []string
	err := store.Read(t.Context(), "explain", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		s := eventStatement(scan)
		explained := strings.Join([]string{"EXPLAIN", s.text.String()}, " ")
		rows, err := tx.Query(ctx, explained, append([]any{pgx.QueryExecModeDescribeExec}, s.args...)...)
		if err == nil {
			plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// The filter run_id finds the events of a run and its step jobs, and no others. In particular, it
// does not find the events of a job with the same ID as the run. This is true whether the jobs of
// the run are known or all events of the namespace are searched.
func TestListEventsOfRun(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 0)
	ids := []string{
		"r", "~job/r/a", "~job/r/a.undo", "~job/r/s.1~2", "~job/r/sub/a", "r/sub", "~job/~/r/a", "~job/rr/a", "other",
	}
	isRun := func(id string) bool { return id == "r" || id == "r/sub" }
	for k := range 45 {
		job := ids[k%len(ids)]
		storagetest.Exec(t, db, `INSERT INTO job_events (namespace, job_id, of_run, type)
			VALUES ('ns', $1, NULLIF($2, false), 'x')`, job, isRun(job))
	}
	storagetest.Exec(t, db, `INSERT INTO job_events (namespace, job_id, type)
		VALUES ('ns', 'r', 'x'), ('ns', 'r/sub', 'x')`) // jobs with the IDs of the runs
	read := func(filter string, size int) (list []string) {
		q := EventQuery{Namespace: "ns", Filter: filter, PageSize: size}
		for {
			page, err := ListEvents(t.Context(), store, q)
			if err != nil {
				t.Fatal(err)
			}
			for n := range page.Events {
				list = append(list, page.Events[n].JobID)
			}
			if q.PageToken = page.NextPageToken; q.PageToken == "" {
				return list
			}
		}
	}
	check := func() {
		t.Helper()
		for filter, want := range map[string][]string{
			"run_id = r": ids[:4], "run_id = r AND step_id = a": ids[1:3], "run_id = r AND step_id = s": ids[3:4],
			`run_id = "r/sub"`:                   ids[4:6],
			`run_id = "r*" AND step_id = a`:      {"~job/r/a", "~job/r/a.undo", "~job/r/sub/a", "~job/rr/a"},
			`run_id = r AND job_id = "~job/r/a"`: ids[1:2],
		} {
			parsed, err := ParseEvents(filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range ids {
				e := jobs.EventRow{JobID: job, OfRun: isRun(job)}
				if got := parsed.MatchesEvent(&e); got != slices.Contains(want, job) {
					t.Errorf("%s: an event of %s matches: %v", filter, job, got)
				}
				if e.OfRun && parsed.MatchesEvent(&jobs.EventRow{JobID: job}) {
					t.Errorf("%s: an event of the job %s matches", filter, job)
				}
			}
			for _, size := range []int{0, 2} {
				got := read(filter, size)
				if len(got) != 5*len(want) {
					t.Errorf("%s in pages of %d: %d events, want %d", filter, size, len(got), 5*len(want))
				}
				for n, job := range got { // newest first
					if job != want[len(want)-1-n%len(want)] {
						t.Errorf("%s in pages of %d: event %d is of %s", filter, size, n, job)
					}
				}
			}
		}
	}
	check()
	storagetest.Exec(t, db,
		`INSERT INTO processes (namespace, process_id, kind, status) VALUES ('ns', '~flow/r', 'flow', 'RUNNING'),
		('ns', '~job/r/a', 'job', 'RUNNING'), ('ns', '~job/r/a.undo', 'job', 'RUNNING'), ('ns', '~job/r/s.1~2', 'job',
		  'RUNNING')`)
	check()
	storagetest.Exec(t, db, `DELETE FROM processes WHERE namespace = 'ns' AND process_id = '~flow/r'`)
	check() // as in a namespace that has only the jobs of the run
}

// If a run is in another namespace than its jobs, a page contains the events of its jobs, even if
// the namespace has more newer events than a page is searched in.
func TestListEventsOfRunElsewhere(t *testing.T) {
	t.Parallel()
	store, db := stock(t, 0)
	storagetest.Exec(t, db, `INSERT INTO processes (namespace, process_id, kind, status)
		VALUES ('ns', '~job/r/a', 'job', 'COMPLETED')`)
	storagetest.Exec(t, db, `INSERT INTO job_events (namespace, job_id, type) VALUES ('ns', '~job/r/a', 'x')`)
	storagetest.Exec(t, db, `INSERT INTO job_events (namespace, job_id, type)
		SELECT 'ns', 'other', 'x' FROM generate_series(1, 100)`)
	page, err := listEventsWithin(t.Context(), store, EventQuery{Namespace: "ns", Filter: "run_id = r"}, 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Events) != 1 || page.NextPageToken != "" {
		t.Errorf("%d events and the token %q, want 1 event and no token", len(page.Events), page.NextPageToken)
	}
}
