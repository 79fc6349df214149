package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// completeSQL returns the statement with which an application ends an attempt. more contains
// further arguments, by name.
func completeSQL(c *storage.Claim, after int64, more ...string) query {
	return completeOf(leaseToken(c, salt), after, more...)
}

func completeOf(token any, after int64, more ...string) query {
	arguments := strings.Join(append([]string{"$1", "$2"}, more...), ", ")
	return query{"SELECT progressor.complete(" + arguments + ")", []any{token, after}}
}

// completed commits a booking that ends an attempt.
func (b *bench) completed(app *pgx.Conn, q query) {
	b.t.Helper()
	tx, err := b.booking(app, q)
	must(b.t, tx, err)
	must(b.t, 0, tx.Commit(b.t.Context()))
}

// pending returns the results that nodes must store, except those with a known fencing token.
func (b *bench) pending(known ...int64) []pull.PendingResult {
	b.t.Helper()
	results, err := pull.PendingResults(b.t.Context(), b.Store, known, 10)
	return must(b.t, results, err)
}

// requireEnded checks that a statement failed because the attempt of its lease has ended.
func requireEnded(t testing.TB, what string, err error) {
	t.Helper()
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != "55000" || !strings.Contains(pg.Message, "has ended") {
		t.Errorf("%s: %v", what, err)
	}
}

// The end of an attempt from SQL is stored with the rows of the application or not at all. From
// then on, the tokens of the application can no longer end the attempt. A node that stores the
// pending result ends the attempt, and only once.
func TestCompleteFromSQL(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	c := b.leasedTimer("p")
	whole := completeSQL(c, 0, "events => ARRAY['a', 'b']::bytea[]", "aux_state => 'state'", `metadata => '{"a": 1}'`)
	tx, err := b.booking(app, whole)
	must(t, tx, err)
	must(t, 0, tx.Rollback(t.Context()))
	equal(t, "bookings and results after the rollback", []int{b.bookings(), len(b.pending())}, "[0 0]")
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1")
	b.checkpoint(end(c, "", events("first")))

	whole.args[1] = 1
	b.completed(app, whole)
	equal(t, "bookings", b.bookings(), 1)
	b.is("p", "RUNNING e3: INIT FINISHED, TIMEOUT runs#1")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{string(must(t, row, err).AuxState), string(row.Metadata)}, `[state {"a": 1}]`)
	equal(t, "changes", b.recorded(), "p stored 1 first, p stored 2 a, p stored 3 b")
	b.requireFenced(app, c, 3)

	results := b.pending()
	if len(results) != 1 || string(results[0].Result) != `{"complete": {}}` {
		t.Fatalf("results: %+v", results)
	}
	guessed := *c
	guessed.FencingToken = results[0].Token.FencingToken
	tx, err = b.booking(app, checkpointSQL(&guessed, 3, "ARRAY['late']::bytea[]"))
	requireEnded(t, "a checkpoint with the new fencing token", err)
	must(t, 0, tx.Rollback(t.Context()))
	equal(t, "bytes of the new salt", len(results[0].Token.Salt), len(salt))
	equal(t, "other results", len(b.pending(results[0].Token.FencingToken)), 0)
	l, err := pull.ReadLease(t.Context(), b.Store, results[0].Token)
	held := must(t, l, err).Claim
	equal(t, "the attempt", []any{held.TaskID == c.TaskID, held.Attempt, held.LastEventID}, "[true 1 3]")
	leased := func(c *storage.Completion) { c.Leased, c.AnsweredBy = true, "w" }
	b.save(end(&held, storage.Completed, leased))
	b.is("p", "COMPLETED e3: INIT FINISHED, TIMEOUT FINISHED")
	equal(t, "leases and results", []int{ask[int](b, "SELECT count(*) FROM leases"), len(b.pending())}, "[0 0]")
	if _, err := b.SaveResult(end(&held, storage.Completed, leased)); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the result of another node: %v", err)
	}
	b.is("p", "COMPLETED e3: INIT FINISHED, TIMEOUT FINISHED")
}

// requireFenced checks that the tokens of a claim can no longer end or extend its attempt, and that
// the attempt does not end when its lease has expired.
func (b *bench) requireFenced(app *pgx.Conn, c *storage.Claim, last int64) {
	t := b.t
	t.Helper()
	state := b.state(c.ProcessID)
	again, err := b.booking(app, completeSQL(c, last))
	requireEnded(t, "a second complete", err)
	must(t, 0, again.Rollback(t.Context()))
	again, err = b.booking(app, checkpointSQL(c, last, "ARRAY['late']::bytea[]"))
	requireEnded(t, "a checkpoint", err)
	must(t, 0, again.Rollback(t.Context()))
	for _, outcome := range []storage.Outcome{storage.Finished, storage.Completed, storage.Failed, storage.Retry} {
		if _, err := b.SaveResult(end(c, outcome)); !errors.Is(err, process.ErrFenced) {
			t.Errorf("outcome %s: %v", outcome, err)
		}
	}
	if _, err := b.SaveCheckpoint(end(c, "", events("late"))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a checkpoint: %v", err)
	}
	token := pull.LeaseToken{Key: key(c.ProcessID), FencingToken: c.FencingToken, Salt: []byte(salt)}
	beaten, err := pull.BeatAll(t.Context(), b.Store, "w", []pull.Beat{{Token: token}})
	equal(t, "the heartbeat finds the lease lost", must(t, beaten, err)[0].LeaseLost, true)
	if _, err := pull.ReadLease(t.Context(), b.Store, token); !errors.Is(err, process.ErrFenced) {
		t.Errorf("the lease: %v", err)
	}
	b.exec("UPDATE leases SET expires_time = now() - interval '1 day'")
	b.exec("UPDATE running SET deadline = now() - interval '1 day'")
	suspects, err := b.ListSuspects(t.Context(), time.Second, 10)
	equal(t, "suspects", must(t, suspects, err), "[]")
	results := b.pending()
	if len(results) != 1 {
		t.Fatalf("results: %+v", results)
	}
	zombies, err := b.ReadZombies(t.Context(), []storage.Suspect{{AttemptRef: storage.AttemptRef{
		Key: key(c.ProcessID), FencingToken: results[0].Token.FencingToken,
	}}}, time.Second)
	equal(t, "zombies", len(must(t, zombies, err)), 0)
	released, err := pull.LeasesOf(t.Context(), b.Store, []pull.WorkerOf{{WorkerID: "w"}}, 10)
	equal(t, "leases of the worker that are released if it stops", len(must(t, released, err)), 0)
	b.exec("UPDATE leases SET leased_time = now() - interval '1 day'")
	forgotten, err := b.ForgetLeases(t.Context())
	equal(t, "more old leases", must(t, forgotten, err), false)
	b.is(c.ProcessID, state)
}

// A complete that cannot be stored raises an error, so the rows of the application are not stored
// either.
func TestCompleteFromSQLIsRefused(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	old, other := b.leasedTimer("p"), b.leasedTimer("q")
	b.save(end(old, storage.Retry))
	b.process("called")
	called := b.claim("called")
	b.lease(called)
	b.process("cancelled")
	b.cancel("cancelled")
	cancel := b.cancelTask("cancelled")
	b.lease(cancel)
	for name, c := range map[string]struct {
		query      query
		code, want string
	}{
		"stale":        {completeSQL(old, 0), "55000", "the attempt of this lease of process shop/p has ended"},
		"another salt": {completeOf(leaseToken(other, "0123456789abcdef"), 0), "55000", "of process shop/q has ended"},
		"no token":     {completeOf(nil, 0), "22023", "lease_token must be"},
		"gap": {completeSQL(other, 1), "55000",
			"last_event_id must be 0, the last event of the process (got 1)"},
		"call": {completeSQL(called, 0), "55000", "only TIMEOUT and CANCEL tasks"},
		"events": {completeSQL(other, 0, "events => array_fill('a'::bytea, ARRAY[1001])"), "22023",
			"events has 1001 elements, 0 to 1000"},
		"metadata": {completeSQL(other, 0, "metadata => '[1]'"), "22023", "metadata is a JSON array"},
		"outcome": {completeSQL(other, 0, "outcome => 'fail'"), "22023",
			"outcome must be complete, timer or wait (got fail)"},
		"no outcome": {completeSQL(other, 0, "outcome => NULL"), "22023", "(got NULL)"},
		"no time": {completeSQL(other, 0, "outcome => 'timer'"), "22023",
			"timer_after must be set for the outcome timer"},
		"a time": {completeSQL(other, 0, "timer_after => '1s'"), "22023", "need the outcome timer (got complete)"},
		"a name": {completeSQL(other, 0, "outcome => 'wait'", "timer_name => 'n'"), "22023",
			"need the outcome timer (got wait)"},
		"a late timer": {completeSQL(other, 0, "outcome => 'timer'", "timer_after => '36501 days'"), "22023",
			"timer_after must be at most 36500 days (got 36501 days)"},
		"a long name": {
			completeSQL(other, 0, "outcome => 'timer'", "timer_after => '1s'", "timer_name => repeat('n', 257)"),
			"22023", "timer_name has 257 bytes"},
		"a cancel that waits": {completeSQL(cancel, 0, "outcome => 'wait'"), "55000",
			"the outcome of a CANCEL task must be complete (got wait)"},
	} {
		tx, err := b.booking(app, c.query)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != c.code || !strings.HasPrefix(pg.Message, "progressor: ") ||
			!strings.Contains(pg.Message, c.want) {
			t.Errorf("%s: %v, want %s %q", name, err, c.code, c.want)
		}
		if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: the commit: %v", name, err)
		}
	}
	equal(t, "bookings and results", []int{b.bookings(), len(b.pending())}, "[0 0]")
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#2")
	b.is("q", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1")
}

// The pending result has the format of a result of the API. A timer counts from the call of the
// function. A process with the maximum number of timers can replace a timer, but cannot add one.
func TestResultsFromSQL(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	timers := 0
	for n, c := range []struct {
		more []string
		want string
	}{
		{[]string{"outcome => 'wait'"}, "{}"},
		{[]string{"outcome => 'timer'", "timer_after => '1 hour'"}, `{"setTimer": {"at": "1h"}}`},
		{[]string{"outcome => 'timer'", "timer_after => '-1 hour'"}, `{"setTimer": {"at": "0h"}}`},
		{[]string{"outcome => 'timer'", "timer_after => '1 hour'", "timer_name => 'n'"},
			`{"namedTimers": [{"at": "1h", "name": "n"}]}`},
	} {
		id := fmt.Sprint("p", n)
		b.completed(app, completeSQL(b.leasedTimer(id), 0, c.more...))
		equal(t, id, ask[string](b, `SELECT regexp_replace(pending_result::text, '[0-9T:.-]+Z',
			coalesce(round(extract(epoch FROM
				(regexp_match(pending_result::text, '[0-9T:.-]+Z'))[1]::timestamptz - now()) / 3600) || 'h', ''))
			FROM leases WHERE process_id = $1`, id), c.want)
		timers++
	}
	equal(t, "results", len(b.pending()), timers)
	c := b.leasedTimer("full")
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT 'shop', 'full', nextval('task_ids'), 'TIMEOUT', 'time', now() + interval '1 hour', n
		  FROM generate_series(1, 100) n`)
	tx, err := b.booking(app, completeSQL(c, 0, "outcome => 'timer'", "timer_after => '1h'", "timer_name => 'n'"))
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55000" ||
		!strings.Contains(pg.Message, "timer_name: 100 other timers are pending, at most 99 are allowed") {
		t.Errorf("one more timer: %v", err)
	}
	must(t, 0, tx.Rollback(t.Context()))
	b.completed(app, completeSQL(c, 0, "outcome => 'timer'", "timer_after => '1h'", "timer_name => '7'"))
}

// While the transaction of the application is open, a result from the engine waits. The result is
// fenced after a commit, and takes effect after a rollback.
func TestCompleteFromSQLMeetsTheEngine(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	for _, commit := range []bool{true, false} {
		c := b.leasedTimer(fmt.Sprint(commit))
		tx, err := b.booking(app, completeSQL(c, 0, "events => ARRAY['a']::bytea[]"))
		must(t, tx, err)
		// On a busy machine, the test may need more time than the function allows.
		must(t, 0, second(tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")))
		retried := later(func() (storage.Saved, error) { return s.SaveResult(end(c, storage.Retry)) })
		b.until("the engine waits", func() bool { return b.lanesWait(1, "true") })
		if commit {
			must(t, 0, tx.Commit(t.Context()))
		} else {
			must(t, 0, tx.Rollback(t.Context()))
		}
		_, err = retried()
		equal(t, "fenced", errors.Is(err, process.ErrFenced), commit)
	}
	equal(t, "results", len(b.pending()), 1)
	b.is("true", "RUNNING e1: INIT FINISHED, TIMEOUT runs#1")
	b.is("false", "RUNNING e0: INIT FINISHED, TIMEOUT runs#2")
}

// An attempt with a pending result is neither a zombie nor a running task with a lost lease,
// although its lease and its timeout have expired. If no node stores the result, CheckQuiescent
// reports this.
func TestPendingResultIsDescribed(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	b.completed(app, completeSQL(b.leasedTimer("p"), 0))
	b.exec("UPDATE running SET deadline = now() - interval '1 day'")
	described := func() (list []string) {
		report, err := storage.CheckQuiescent(t.Context(), b.db, 10*time.Second, 10*time.Second)
		for _, v := range must(t, report, err).Violations {
			list = append(list, v.Invariant, v.Detail)
		}
		return append(list, fmt.Sprint("zombies: ", ask[int](b, "SELECT count(*) FROM zombie_list")))
	}
	equal(t, "before the lease expires", described(), "[zombies: 0]")
	b.exec("UPDATE leases SET expires_time = now() - interval '1 day'")
	got := described()
	if len(got) != 3 || got[0] != "result_is_stored" || got[2] != "zombies: 0" ||
		!strings.Contains(got[1], "worker w has ended task") {
		t.Errorf("after the lease has expired: %q", got)
	}
	e, err := insight.ReadExplained(t.Context(), b.Store, insight.ExplainedRequest{
		Key: key("p"), ZombieAfter: time.Second,
	})
	equal(t, "explained as ended", must(t, e, err).State.Running.Lease.Ended, true)
}

// An attempt with a pending result ends if the grace period of a cancel is over or if the process
// is removed. The next lease of a process with the same ID has no pending result.
func TestPendingResultOfEndedProcess(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	b.completed(app, completeSQL(b.leasedTimer("p"), 0))
	b.completed(app, completeSQL(b.leasedTimer("q"), 0))
	b.cancelOverdue("p")
	b.is("p", "CANCELLED e0: INIT FINISHED, TIMEOUT CANCELLED, CANCEL ERROR")
	b.remove("q")
	equal(t, "results", len(b.pending()), 0)
	b.remove("p")
	for _, id := range []string{"p", "q"} {
		b.until("the removal is complete", func() bool {
			must(t, 0, second(b.PurgeRemoved(t.Context())))
			return ask[int](b, "SELECT count(*) FROM processes WHERE process_id = $1", id) == 0
		})
		b.enqueue(id)
		b.leased(id)
	}
	equal(t, "results of new leases", len(b.pending()), 0)
}

// The commit of a complete notifies the nodes. A rollback does not.
func TestCompleteFromSQLNotifies(t *testing.T) {
	t.Parallel()
	storagetest.NeedsNotify(t)
	b, app := newBookings(t)
	c := b.leasedTimer("p")
	heard, up := make(chan string, 10), make(chan bool, 10)
	go b.Listen(t.Context(), map[string]func(string){"progressor_results": func(payload string) { heard <- payload }},
		func(is bool) { up <- is })
	equal(t, "it listens", <-up, true)
	tx, err := b.booking(app, completeSQL(c, 0))
	must(t, tx, err)
	must(t, 0, tx.Rollback(t.Context()))
	b.completed(app, completeSQL(c, 0))
	_, err = app.Exec(t.Context(), "NOTIFY progressor_results, 'the last one'")
	must(t, 0, err)
	equal(t, "the notice", <-heard, "")
	equal(t, "the next notice", <-heard, "the last one")
}
