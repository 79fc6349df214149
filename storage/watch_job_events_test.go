package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/jobs"
)

const insertEvent = "INSERT INTO job_events (namespace, job_id, type) VALUES ('n', 'j', $1)"

// eventWatch is a watch of namespace n.
type eventWatch struct {
	b  *bench
	at jobs.EventCursor
}

// watchEvents begins a watch at a cursor of a client.
func (b *bench) watchEvents(cursor string) *eventWatch {
	b.t.Helper()
	at, err := jobs.ParseEventCursor(b.t.Context(), b.Store, "n", "cursor", cursor)
	return &eventWatch{b, must(b.t, at, err)}
}

// next returns the next events. Before that, the client of the watch reconnects.
func (w *eventWatch) next() []jobs.EventRow {
	w.b.t.Helper()
	w.at = w.b.watchEvents(w.at.String()).at
	read, err := w.read()
	must(w.b.t, 0, errors.Join(err, read.Lost))
	w.at = w.at.After(read.Events...)
	return read.Events
}

func (w *eventWatch) read() (jobs.EventsRead, error) {
	found, _, err := jobs.ReadEvents(w.b.t.Context(), w.b.Store, []jobs.EventWatch{{Namespace: "n", From: w.at}})
	if err != nil {
		return jobs.EventsRead{}, err
	}
	return found[0], nil
}

// types returns the types of the next events.
func (w *eventWatch) types() string {
	w.b.t.Helper()
	var types []string
	for _, e := range w.next() {
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}

// begin begins a transaction. It is rolled back when the test ends.
func (b *bench) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.db.Begin(b.t.Context())
	must(b.t, tx, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// in executes SQL in a transaction.
func (b *bench) in(tx pgx.Tx, sql string, args ...any) {
	b.t.Helper()
	_, err := tx.Exec(b.t.Context(), sql, args...)
	must(b.t, 0, err)
}

// A watch does not wait for other transactions. It returns the events of each transaction after its
// commit, even if later events were already returned.
func TestWatchPassesLongTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watchEvents("0.0")
	unrelated, slow := b.begin(), b.begin()
	b.in(unrelated, "CREATE TEMP TABLE report (n int)")
	b.in(slow, insertEvent, "slow")
	b.exec(insertEvent, "quick")
	equal(t, "while a transaction writes events", w.types(), "quick")
	b.in(slow, insertEvent, "slower")
	b.exec(insertEvent, "quicker")
	equal(t, "while it writes more", w.types(), "quicker")
	must(t, 0, slow.Commit(t.Context()))
	equal(t, "after its commit", w.types(), "slow slower")
	equal(t, "at the end", w.types(), "")
	now, err := jobs.EventsFromNow(t.Context(), b.Store, "n")
	equal(t, "the cursor for new events", must(t, now, err).String(), w.at.String())
}

// An event that has waited before it takes a lane comes after events that were committed in the
// meantime.
func TestJobEventIsNumberedUnderTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE public.gate AS SELECT 1 AS n")
	b.exec(`CREATE FUNCTION public.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM FROM public.gate FOR UPDATE; RETURN NEW; END $$`)
	b.exec(`CREATE TRIGGER a_gate BEFORE INSERT ON job_events FOR EACH ROW WHEN (NEW.type = 'late')
		EXECUTE FUNCTION public.wait_at_gate()`) // runs before the trigger that takes a lane
	gate := b.begin()
	b.in(gate, "SELECT FROM public.gate FOR UPDATE")
	done := make(chan error, 1)
	go func() {
		_, err := b.db.Exec(t.Context(), insertEvent, "late")
		done <- err
	}()
	for ask[int](b, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
		runtime.Gosched()
	}
	w := b.watchEvents("0.0")
	b.exec(insertEvent, "early")
	equal(t, "before", w.types(), "early")
	must(t, 0, gate.Commit(t.Context()))
	must(t, 0, <-done)
	equal(t, "afterwards", w.types(), "late")
	equal(t, "used lanes", ask[int](b, "SELECT count(DISTINCT lane) FROM job_events"), 1)
}

// The next transaction of a session does not use the lane of the previous one without its lock.
func TestLaneOfATransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watchEvents("0.0")
	session, err := b.db.Acquire(t.Context())
	must(t, session, err)
	defer session.Release()
	insert := func(kind string) {
		t.Helper()
		_, err := session.Exec(t.Context(), insertEvent, kind)
		must(t, 0, err)
	}
	insert("first")
	other := b.begin()
	b.in(other, insertEvent, "other")
	insert("second")
	equal(t, "events of the session", w.types(), "first second")
	must(t, 0, other.Commit(t.Context()))
	equal(t, "events of the other transaction", w.types(), "other")
}

// A transaction that rolls back to a savepoint before its first event no longer has the lane.
func TestLaneOfASavepoint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watchEvents("0.0")
	first, second := b.begin(), b.begin()
	b.in(first, "SAVEPOINT s")
	b.in(first, insertEvent, "undone")
	b.in(first, "ROLLBACK TO s")
	b.in(second, insertEvent, "second")
	b.in(first, insertEvent, "first")
	must(t, 0, first.Commit(t.Context()))
	equal(t, "after the first commit", w.types(), "first")
	must(t, 0, second.Commit(t.Context()))
	equal(t, "after the second commit", w.types(), "second")
}

// The events of a job are returned in order, even if they are in several lanes and one read does
// not return all of them.
func TestWatchKeepsTheOrderOfAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(insertEvent, "before") // adds a lane
	now, err := jobs.EventsFromNow(t.Context(), b.Store, "n")
	w := b.watchEvents(must(t, now, err).String())
	other := b.begin()
	b.in(other, insertEvent, "undone")
	b.exec(insertEvent, "first") // uses another lane
	must(t, 0, other.Rollback(t.Context()))
	b.exec("INSERT INTO job_events (namespace, job_id, type) SELECT 'n', 'j', n FROM generate_series(1, 600) n")
	equal(t, "used lanes", ask[int](b, "SELECT count(DISTINCT lane) FROM job_events"), 2)
	want := []string{"first"}
	for n := range 600 {
		want = append(want, fmt.Sprint(n+1))
	}
	read := strings.Fields(w.types())
	equal(t, "events of the first read", read, want[:500])
	equal(t, "events of the second read", strings.Fields(w.types()), want[500:])
}

// Many transactions write events of the same jobs, in several statements and namespaces. Some are
// rolled back. A watch gets each committed event once, and the events of a job in order.
func TestWatchUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const writers, transactions, rows = 8, 40, 20
	b.exec("CREATE TABLE public.rows AS SELECT id, 0 AS n FROM generate_series(0, $1) id", rows-1)
	write := func(tx pgx.Tx) error {
		ids := []int{rand.IntN(rows), rand.IntN(rows), rand.IntN(rows)}
		_, err := tx.Exec(t.Context(), "SELECT FROM public.rows WHERE id = ANY ($1) ORDER BY id FOR UPDATE", ids)
		for range 1 + rand.IntN(3) {
			if err == nil {
				_, err = tx.Exec(t.Context(), `
					WITH numbered AS (UPDATE public.rows SET n = n + 2 WHERE id = ANY ($1) RETURNING id, n)
					INSERT INTO job_events (namespace, job_id, type)
					SELECT namespace, id, n - k
					  FROM numbered, unnest('{n, m}'::text[]) AS namespace, generate_series(0, 1) k
					 ORDER BY id, namespace, k DESC`, ids)
			}
		}
		if err == nil && rand.IntN(4) == 0 {
			return errUndo
		}
		return err
	}
	var running atomic.Int32
	running.Store(writers)
	go all(writers, func(int) {
		for range transactions {
			if err := pgx.BeginFunc(t.Context(), b.db, write); err != nil && !errors.Is(err, errUndo) {
				t.Error(err)
			}
		}
		running.Add(-1)
	})
	last := map[string]int{}
	w := b.watchEvents("0.0")
	for ended := false; ; {
		found := w.next()
		for _, e := range found {
			if last[e.JobID]++; fmt.Sprint(last[e.JobID]) != e.Type {
				t.Fatalf("got event %s of job %s, want event %d", e.Type, e.JobID, last[e.JobID])
			}
		}
		if ended && len(found) == 0 {
			break
		}
		ended = running.Load() == 0
	}
	for id := range rows {
		equal(t, fmt.Sprintf("the last event of job %d", id), last[fmt.Sprint(id)],
			ask[int](b, "SELECT n FROM public.rows WHERE id = $1", id))
	}
	if lanes := ask[int](b, "SELECT count(*) FROM job_event_lanes WHERE lane > 0"); lanes > writers {
		t.Errorf("%d lanes for %d writers", lanes, writers)
	}
}

var errUndo = errors.New("roll back")

// A watch that is behind the retention, or whose database was restored, gets an error that shows
// where it can continue. Numbers of deleted events are not reused.
func TestWatchBehindTheRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	behind, now := b.watchEvents("0.0"), b.watchEvents("0.0")
	b.exec(insertEvent, "old")
	forget := func() {
		t.Helper()
		_, err := jobs.ForgetEvents(t.Context(), b.Store, map[string]time.Duration{"n": time.Hour})
		must(t, 0, err)
	}
	forget()
	equal(t, "before the retention has passed", now.types(), "old")
	b.exec("UPDATE job_events SET created_time = now() - interval '2 hours'")
	forget()
	between := b.watchEvents("0.0")
	b.exec("INSERT INTO job_events (namespace, job_id, type, created_time) VALUES ('n', 'j', 'older', '2026-01-01')")
	equal(t, "new events", now.types(), "older")
	forget()
	equal(t, "events", ask[int](b, "SELECT count(*) FROM job_events"), 0)
	equal(t, "new events", now.types(), "")
	b.exec(insertEvent, "new")
	equal(t, "new events", now.types(), "new")
	equal(t, "all events", b.watchEvents("0.0").types(), "new")
	expectLost := func(w *eventWatch, reason string) {
		t.Helper()
		read, err := w.read()
		must(t, 0, err)
		var lost *process.CursorError
		if !errors.As(read.Lost, &lost) || !strings.Contains(lost.Message, reason) || len(read.Events) > 0 {
			t.Fatalf("%v, %v", read.Events, read.Lost)
		}
		equal(t, "events after the oldest cursor", b.watchEvents(lost.Oldest).types(), "new")
	}
	expectLost(behind, "retention")
	expectLost(between, "retention")
	now.at.Generation = uuid.New()
	expectLost(now, "restored")
}

// Cursors of older engines have a transaction ID and the number of an event. They continue without
// a gap in the events from before the migration and in later ones.
func TestWatchFromAnOlderCursor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cursor := func(kind string) string {
		return ask[string](b, "SELECT xid::text || '.' || event_id FROM job_events WHERE type = $1", kind)
	}
	b.exec(insertEvent, "seen")
	b.exec(insertEvent, "old")
	b.exec("UPDATE job_events SET lane = 0") // the value that events have before the migration
	b.exec(insertEvent, "new")
	b.exec(insertEvent, "newer")
	for from, want := range map[string]string{
		"seen": "old new newer", "old": "new newer", "new": "newer", "newer": "",
	} {
		equal(t, "events after "+from, b.watchEvents(cursor(from)).types(), want)
	}
	_, err := jobs.ParseEventCursor(t.Context(), b.Store, "n", "cursor", "9000000000000000000.1")
	var lost *process.CursorError
	if !errors.As(err, &lost) {
		t.Fatalf("a cursor of another database: %v", err)
	}
	equal(t, "all events", b.watchEvents(lost.Oldest).types(), "seen old new newer")
	for _, text := range []string{"x", "1.-1", "01.1", "99999999999999999999.1", "AQ"} {
		var invalid *process.InvalidError
		if _, err := jobs.ParseEventCursor(t.Context(), b.Store, "n", "cursor", text); !errors.As(err, &invalid) {
			t.Errorf("cursor %s: %v", text, err)
		}
	}
}

// Events of a dump that was restored into another cluster have transaction IDs that this cluster
// has not reached. They come before all new events.
func TestWatchAfterADumpIsRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, kind := range []string{"old1", "old2"} {
		b.exec(`INSERT INTO job_events (namespace, xid, job_id, type)
			VALUES ('n', '9000000000000000000', 'j', $1)`, kind)
	}
	b.exec(insertEvent, "new")
	equal(t, "events", b.watchEvents("0.0").types(), "old1 old2 new")
}
