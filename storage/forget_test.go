package storage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// forget deletes rows that are older than an hour, starting with the oldest.
func (b *bench) forget() (more bool) {
	b.t.Helper()
	b.ForgetFromStart()
	more, err := b.Forget(b.t.Context(), time.Hour)
	must(b.t, more, err)
	return more
}

// A key is deleted when its task ended longer ago than the retention, regardless of the age of the
// request. Until then, a repeated request gets the answer.
func TestForgetRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	ended := b.claim("p", keyed("ended", "x"))
	b.save(end(ended, storage.Finished))
	b.exec(`UPDATE tasks SET scheduled_time = now() - interval '1 day', running_time = now() - interval '1 day',
		finished_time = now() - interval '1 day'`)
	runs := b.claim("p", keyed("runs", "x"))
	b.call("p", keyed("waits", "x"))
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	keys := func(want string) {
		t.Helper()
		equal(t, "keys", ask[int](b, "SELECT count(*) FROM requests"), want)
	}
	b.forget()
	keys("2")
	equal(t, "again", b.call("p", keyed("runs", "x")).Outcome, storage.Replayed)
	saved := b.save(end(runs, storage.Finished))
	b.save(end(saved.Next, storage.Finished))
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	b.forget()
	keys("2") // both have just ended
	equal(t, "again", b.call("p", keyed("runs", "x")).Outcome, storage.Replayed)
	equal(t, "counted from the end",
		ask[bool](b, `SELECT bool_and(r.created_time = t.finished_time) FROM requests r JOIN tasks t USING
			(namespace, process_id, task_id)`), true)
	b.exec(`UPDATE tasks SET scheduled_time = now() - interval '1 day', running_time = now() - interval '1 day',
		finished_time = now() - interval '1 day'`)
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	b.forget()
	keys("0")
}

// For a key of a removed process, the retention also counts from the end of its task.
func TestForgetRequestsOfRemovedProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p", keyed("k", "x"))
	b.save(end(c, storage.Removed))
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	b.forget()
	equal(t, "keys", ask[int](b, "SELECT count(*) FROM requests"), 1)
	equal(t, "answers", ask[int](b, "SELECT count(*) FROM answers WHERE task_id = $1", c.TaskID), 1)
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	b.exec("UPDATE answers SET ended_time = now() - interval '1 day'")
	b.forget()
	equal(t, "keys", ask[int](b, "SELECT count(*) FROM requests"), 0)
	equal(t, "answers", ask[int](b, "SELECT count(*) FROM answers"), 0)
}

// If no request is old enough, the query for old requests reads at most 20 pages, regardless of
// table size and reused space.
func TestForgetReadsLittle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`INSERT INTO requests SELECT md5('r' || n)::uuid, 'shop', 'p' || n, n, '', now() - interval '1 day'
		FROM generate_series(1, 20000) n`)
	for b.forget() {
	}
	equal(t, "keys", ask[int](b, "SELECT count(*) FROM requests"), 0)
	b.exec("VACUUM requests")
	b.exec(`INSERT INTO requests SELECT md5('s' || n)::uuid, 'shop', 'p' || n, n, '', now()
		FROM generate_series(1, 20000) n`)
	b.exec("VACUUM ANALYZE requests")
	rows, err := b.db.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)
		SELECT 1 FROM requests WHERE created_time < now() - interval '1 hour' ORDER BY created_time LIMIT 5000`)
	lines, err := pgx.CollectRows(must(t, rows, err), pgx.RowTo[string])
	plan := strings.Join(must(t, lines, err), "\n")
	hit := 0
	if _, after, ok := strings.Cut(plan, "Buffers: shared hit="); ok {
		_, _ = fmt.Sscanf(after, "%d", &hit)
	}
	if !strings.Contains(plan, "requests_created_time") || hit > 20 {
		t.Errorf("a pass that finds nothing: %s", plan)
	}
	equal(t, "BRIN indexes", ask[string](b,
		`SELECT coalesce(string_agg(indexname, ',' ORDER BY indexname), '') FROM pg_indexes
		WHERE schemaname = 'progressor' AND tablename IN ('requests', 'answers', 'dead_letters')
		  AND indexdef LIKE '%USING brin%'`), "")
	b.exec("DELETE FROM requests") // requests of tasks that do not exist
}
