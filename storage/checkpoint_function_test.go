package storage_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// salt is the salt of all leases that bench.lease creates.
const salt = "0123456789abcde\xff"

// leaseToken returns the lease token of a claim.
func leaseToken(c *storage.Claim, salt string) string {
	token := append([]byte{byte(len(c.Namespace))}, c.Namespace...)
	token = binary.BigEndian.AppendUint64(token, uint64(c.FencingToken))
	return base64.RawURLEncoding.EncodeToString(append(token, salt+c.ProcessID...))
}

// query is a statement with its parameters.
type query struct {
	sql  string
	args []any
}

// checkpointSQL returns the statement with which an application stores a checkpoint of an attempt.
// more contains the events and the parameters after them.
func checkpointSQL(c *storage.Claim, after int64, more string) query {
	return checkpointOf(leaseToken(c, salt), after, more)
}

func checkpointOf(token any, after int64, more string) query {
	return query{"SELECT progressor.checkpoint($1, $2, " + more + ")", []any{token, after}}
}

// leasedTimer is like fired, for a timer that a worker runs.
func (b *bench) leasedTimer(id string) *storage.Claim {
	b.t.Helper()
	c := b.fired(id)
	b.lease(c)
	return c
}

func (b *bench) lease(c *storage.Claim) {
	b.t.Helper()
	b.exec(`INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time,
		lease_duration, heartbeat_interval) VALUES ($1, $2, $3, 'w', $4, now(), now() + interval '1 minute',
		interval '1 minute', interval '20 seconds')`, c.Namespace, c.ProcessID, c.FencingToken, []byte(salt))
}

// booking begins a transaction of an application, which writes a row and then runs q.
func (b *bench) booking(app *pgx.Conn, q query) (pgx.Tx, error) {
	b.t.Helper()
	tx, err := app.Begin(b.t.Context())
	must(b.t, tx, err)
	must(b.t, 0, second(tx.Exec(b.t.Context(), "INSERT INTO public.bookings VALUES ('seat')")))
	return tx, second(tx.Exec(b.t.Context(), q.sql, q.args...))
}

// newBookings returns a bench and the connection of an application that has its own table.
func newBookings(t *testing.T) (*bench, *pgx.Conn) {
	t.Helper()
	b := newBench(t)
	b.record("EVENT")
	b.exec("CREATE TABLE public.bookings (name text)")
	app := b.role("USAGE ON SCHEMA progressor", "EXECUTE ON FUNCTION progressor.checkpoint, progressor.complete",
		"INSERT ON public.bookings")
	return b, app
}

func (b *bench) bookings() int {
	b.t.Helper()
	return ask[int](b, "SELECT count(*) FROM public.bookings")
}

// A checkpoint from SQL is stored with the rows of the application or not at all.
func TestCheckpointFromSQL(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	c := b.leasedTimer("p")
	store := checkpointSQL(c, 0, `ARRAY['a', 'b']::bytea[], 'state', '{"a": 1}'`)
	tx, err := b.booking(app, store)
	must(t, tx, err)
	must(t, 0, tx.Rollback(t.Context()))
	equal(t, "bookings after the rollback", b.bookings(), 0)
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1")

	tx, err = b.booking(app, store)
	must(t, tx, err)
	must(t, 0, tx.Commit(t.Context()))
	equal(t, "bookings", b.bookings(), 1)
	b.is("p", "RUNNING e2: INIT FINISHED, TIMEOUT runs#1")
	row, err := b.GetProcess(t.Context(), key("p"))
	equal(t, "the row", []any{string(must(t, row, err).AuxState), string(row.Metadata), row.LastEventID},
		`[state {"a": 1} 2]`)
	equal(t, "changes", b.recorded(), "p stored 1 a, p stored 2 b")
	c.LastEventID += 2
	b.save(end(c, storage.Finished, events("c")))
	b.is("p", "RUNNING e3: INIT FINISHED, TIMEOUT FINISHED")
	equal(t, "events of the attempt", ask[int](b, `SELECT count(*) FROM events e JOIN tasks t USING (task_id)
		WHERE t.task_type = 'TIMEOUT' AND e.attempt = 1 AND e."timestamp" > t.running_time`), 3)
}

// A checkpoint that cannot be stored raises an error, so the rows of the application are not stored
// either.
func TestCheckpointFromSQLIsRefused(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	old, other, cron, pushed := b.leasedTimer("p"), b.leasedTimer("q"), b.leasedTimer("cron"), b.fired("pushed")
	b.save(end(old, storage.Retry))
	b.process("called")
	called := b.claim("called")
	b.lease(called)
	b.exec("UPDATE processes SET kind = 'cron' WHERE process_id = 'cron'")
	const one = "ARRAY['a']::bytea[]"
	for name, c := range map[string]struct {
		query      query
		code, want string
	}{
		"stale": {checkpointSQL(old, 0, one), "55000", "the attempt of this lease of process"},
		"another salt": {checkpointOf(leaseToken(other, "0123456789abcdef"), 0, one), "55000",
			"of process shop/q has ended"},
		"no lease":   {checkpointSQL(pushed, 0, one), "55000", "has ended"},
		"no token":   {checkpointOf(nil, 0, one), "22023", "lease_token must be"},
		"not base64": {checkpointOf("a!", 0, one), "22023", "lease_token must be"},
		"short":      {checkpointOf("AWE", 0, one), "22023", "lease_token must be"},
		"empty":      {checkpointOf("", 0, one), "22023", "lease_token must be"},
		"not UTF-8":  {checkpointOf("Av__", 0, one), "22023", "lease_token must be"},
		"gap": {checkpointSQL(other, 5, one), "55000",
			"last_event_id must be 0, the last event of the process (got 5)"},
		"call":      {checkpointSQL(called, 0, one), "55000", "only TIMEOUT and CANCEL tasks"},
		"cron":      {checkpointSQL(cron, 0, one), "55000", "only TIMEOUT and CANCEL tasks"},
		"no events": {checkpointSQL(other, 0, "'{}'"), "22023", "events has 0 elements"},
		"NULL":      {checkpointSQL(other, 0, "ARRAY[NULL]::bytea[]"), "22023", "an element of events is NULL"},
		"nested":    {checkpointSQL(other, 0, "ARRAY[ARRAY['a'], ARRAY['b']]::bytea[]"), "22023", "one dimension"},
		"long": {checkpointSQL(other, 0, "ARRAY[convert_to(repeat('x', 1048577), 'UTF8')]"), "22023",
			"more than 1048576 bytes"},
		"many": {checkpointSQL(other, 0, "array_fill('a'::bytea, ARRAY[1001])"), "22023", "events has 1001 elements"},
		"large": {checkpointSQL(other, 0, "array_fill(convert_to(repeat('x', 1000000), 'UTF8'), ARRAY[9])"), "22023",
			"more than 8388608 bytes"},
		"state": {checkpointSQL(other, 0, one+", convert_to(repeat('x', 1048577), 'UTF8')"), "22023",
			"aux_state has"},
		"metadata": {checkpointSQL(other, 0, one+", NULL, '[1]'"), "22023", "metadata is a JSON array"},
		"digits":   {checkpointSQL(other, 0, one+", NULL, '{\"a\": 1e400}'"), "22023", "metadata has a number"},
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
	b.exec("UPDATE processes SET kind = '' WHERE process_id = 'cron'")
	equal(t, "bookings", b.bookings(), 0)
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#2")
	b.is("q", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1")
}

// While the transaction of the application is open, calls to other processes are stored. A result
// of the attempt is stored after the checkpoint of this transaction. Later checkpoints of the
// attempt are rejected.
func TestCheckpointFromSQLThatStaysOpen(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1})
	b.process("q")
	c := b.leasedTimer("p")
	tx, err := b.booking(app, checkpointSQL(c, 0, "ARRAY['a']::bytea[]"))
	must(t, tx, err)
	var idle string
	must(t, 0, tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&idle))
	equal(t, "the limit of the transaction", idle, "5s")
	retried := later(func() (storage.Saved, error) { return s.SaveResult(end(c, storage.Retry)) })
	prepared, err := s.PrepareCall(call("q"))
	equal(t, "a call to another process", must(t, prepared, err).Outcome, storage.Captured)
	must(t, 0, tx.Commit(t.Context()))
	saved, err := retried()
	must(t, saved, err)
	b.is("p", "RUNNING e1: INIT FINISHED, TIMEOUT runs#2")
	_, err = b.booking(app, checkpointSQL(c, 1, "ARRAY['b']::bytea[]"))
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55000" {
		t.Errorf("a checkpoint of the attempt that was retried: %v", err)
	}
	if _, err := b.SaveCheckpoint(end(c, "", events("late"))); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a late checkpoint: %v", err)
	}
}

// An attempt that ends while the application waits for the lock of its process cannot store a
// checkpoint.
func TestCheckpointFromSQLWaitsForTheEngine(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	c := b.leasedTimer("p")
	engine, err := b.db.BeginTx(t.Context(), pgx.TxOptions{})
	must(t, engine, err)
	must(t, 0, second(engine.Exec(t.Context(), "SELECT FROM processes WHERE process_id = 'p' FOR UPDATE")))
	must(t, 0, second(engine.Exec(t.Context(), "UPDATE running SET fencing_token = $1 WHERE process_id = 'p'",
		c.FencingToken+1_000_000)))
	stored := later(func() (pgx.Tx, error) { return b.booking(app, checkpointSQL(c, 0, "ARRAY['a']::bytea[]")) })
	for deadline := time.Now().Add(10 * time.Second); !b.sessionsWait(1, "query LIKE '%progressor.checkpoint(%'"); {
		if time.Now().After(deadline) {
			t.Fatal("the checkpoint does not wait")
		}
	}
	must(t, 0, engine.Commit(t.Context()))
	_, err = stored()
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55000" {
		t.Errorf("the checkpoint: %v", err)
	}
	b.exec("UPDATE running SET fencing_token = $1 WHERE process_id = 'p'", c.FencingToken)
}

// A checkpoint needs a transaction that sees rows that the engine stored after the transaction
// began.
func TestCheckpointFromSQLNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	b, app := newBookings(t)
	c := b.leasedTimer("p")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := app.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		must(t, tx, err)
		q := checkpointSQL(c, 0, "ARRAY['a']::bytea[]")
		_, err = tx.Exec(t.Context(), q.sql, q.args...)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "25000" {
			t.Errorf("%s: %v", level, err)
		}
		must(t, 0, tx.Rollback(t.Context()))
	}
	b.is("p", "RUNNING e0: INIT FINISHED, TIMEOUT runs#1")
}
