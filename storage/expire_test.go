package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// expire runs Expire with a retention of one hour in the namespace shop. It returns the number of
// processes that were removed.
func (b *bench) expire() int {
	b.t.Helper()
	expired, err := b.Expire(b.t.Context(), map[string]storage.Retention{
		"shop": {Completed: time.Hour, Failed: time.Hour, Cancelled: time.Hour},
	})
	return must(b.t, expired, err)["shop"]
}

// Expire removes processes that ended longer ago than the retention of their namespace, in batches
// of 100 for each status. It skips processes that are locked, and processes in ERROR, which have
// not ended.
func TestExpire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"old", "new", "held"} {
		b.process(id)
		b.save(end(b.claim(id), storage.Completed))
	}
	b.process("running", timer(time.Hour))
	b.breakByTimer("error")
	for _, id := range []string{"failed", "again"} { // a FAILED job has ended, but a process in ERROR has not
		b.enqueue(id)
		b.save(end(b.leased(id), storage.Failed, broken("no"), of(&jobs.End{})))
	}
	b.exec(`UPDATE processes SET attention_time = now() - interval '61 minutes',
		status_changed_time = now() - interval '61 minutes' WHERE process_id <> 'new' AND attention IS NOT NULL`)
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status, attention, attention_time,
		status_changed_time)
		SELECT CASE WHEN n <= 250 THEN 'shop' ELSE 'kept' END, 'c' || n, 'CANCELLED', 'RUNNING', 'CANCELLED',
		  now() - interval '2 hours', now() - interval '2 hours' FROM generate_series(1, 260) n`)
	must(t, 0, jobs.Retry(t.Context(), b.Store, key("again"), jobs.Unique{}, false))
	b.recount()
	conn, err := pgx.Connect(t.Context(), b.dsn)
	must(t, conn, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	must(t, tx, err)
	if _, err := tx.Exec(t.Context(),
		"SELECT FROM progressor.processes WHERE process_id = 'held' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	// The first batch contains 100 CANCELLED processes, the COMPLETED process "old", and the FAILED
	// job.
	for _, want := range []int{102, 100, 50, 0} {
		equal(t, "expired", b.expire(), want)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "expired after the lock was released", b.expire(), 1)
	for n := 1; n > 0; {
		left, err := b.PurgeRemoved(t.Context())
		n = must(t, left, err)
	}
	equal(t, "remaining processes", ask[string](b,
		`SELECT string_agg(DISTINCT rtrim(process_id, '0123456789'), ' ' ORDER BY rtrim(process_id, '0123456789'))
			FROM processes`), "again c error new running")
	equal(t, "remaining rows of jobs", ask[string](b, "SELECT string_agg(process_id, ' ') FROM jobs"), "again")
	equal(t, `processes in namespace "kept", which has no retention`,
		ask[int](b, "SELECT count(*) FROM processes WHERE namespace = 'kept'"), 10)
	b.start("old") // its ID can be used again
}
