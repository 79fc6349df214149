package durable_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// database opens a pool on a database of the application, with the table of Tx.
func database(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	storagetest.Exec(t, pool, durable.TxTable)
	return pool
}

// books opens a database with a table of effects.
func books(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := database(t, storagetest.DSN(t))
	storagetest.Exec(t, db, "CREATE TABLE effects (what text, at bigint GENERATED ALWAYS AS IDENTITY)")
	return db
}

func one(t *testing.T, db *pgxpool.Pool, sql string) (text string) {
	t.Helper()
	if err := db.QueryRow(context.WithoutCancel(t.Context()), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// effectsIn returns the effects that were committed, in order.
func effectsIn(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	return one(t, db, "SELECT coalesce(string_agg(what, ' ' ORDER BY at), '') FROM effects")
}

func count(n int) string { return strconv.Itoa(n) }

func insert(c context.Context, tx pgx.Tx, what string) error {
	_, err := tx.Exec(c, "INSERT INTO effects VALUES ($1)", what)
	return err
}

// book returns a function with the one step book. Its body inserts an effect and then returns the
// result of after.
func book(db durable.TxBeginner, after func(c context.Context) error, opts ...durable.StepOption) processor.Processor {
	return function(func(ctx durable.Ctx) (string, error) {
		return durable.Tx(ctx, "book", db, func(c context.Context, tx pgx.Tx) (string, error) {
			return "seat 7", cmp.Or(insert(c, tx, "book"), after(c))
		}, opts...)
	})
}

func always(context.Context) error { return nil }

// entries returns the entries of a result.
func entries(resp *response) string {
	var made []string
	for _, event := range resp.GetResult().GetEvents() {
		made = append(made, string(event.GetPayload()))
	}
	return strings.Join(made, " ")
}

// unavailable is a database that cannot be reached while err is set.
type unavailable struct {
	durable.TxBeginner
	err error
}

func (u *unavailable) Begin(ctx context.Context) (pgx.Tx, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.TxBeginner.Begin(ctx)
}

// An error rolls back what the body did. After the error of the last try, no attempt can commit
// until an operator repeats the step.
func TestTxFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err           error
		journal, last string
		tries         int
	}{
		"failure": {processor.Fail("odd", "no"), "start:f try:book step:book fail:f",
			`{"k":"step","n":"book","e":{"reason":"odd","message":"no"}} `, 2},
		"rejection": {processor.Reject("full", "no"), "start:f step:book fail:f",
			`{"k":"step","n":"book","e":{"reason":"full","message":"no","rejected":true}} `, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := books(t)
			err, tries := c.err, 0
			var last *request
			f := book(db, func(context.Context) error {
				tries++
				return err
			}, durable.Retry(2, time.Second))
			p := start(t, processor.Func(func(ctx context.Context, req *request) (*response, error) {
				if tries == c.tries-1 && req.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
					last = proto.CloneOf(req)
				}
				return f.Process(ctx, req)
			}), processortest.WithoutCheckpoints())
			if err := p.Advance(t.Context(), time.Minute); err != nil || tries != c.tries {
				t.Error(err, tries)
			}
			check(t, "journal", journal(p), c.journal)
			err = nil
			resp, failed := f.Process(t.Context(), last)
			check(t, "stale attempt", entries(resp)[:len(c.last)]+fmt.Sprint(failed), c.last+"<nil>")
			check(t, "effects", effectsIn(t, db), "")
			if p.Status() != process.StatusError {
				return
			}
			if _, err := p.Repair(t.Context(), []byte(`{"durable_repair":{"rewind":["book"]}}`)); err != nil {
				t.Fatal(err)
			}
			check(t, "status", string(p.Status()), string(process.StatusCompleted))
			check(t, "effects", effectsIn(t, db), "book")
		})
	}
}

// If the database cannot be reached, the step does not fail, because it may have committed. The
// process continues after a repair.
func TestTxWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := &unavailable{books(t), errors.New("no route")}
	p := start(t, book(db, always))
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "status", string(p.Status()), string(process.StatusError))
	check(t, "detail", p.Detail(), "it is unknown whether step book has committed: no route")
	check(t, "journal", journal(p), "start:f")
	db.err = nil
	if err := p.RepairSimple(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f step:book end:f")
}

// Without its table, the task fails with an error that says how to create it.
func TestTxWithoutTable(t *testing.T) {
	t.Parallel()
	db := books(t)
	storagetest.Exec(t, db, "DROP TABLE durable_steps")
	p := start(t, book(db, always))
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("it is unknown whether step book has committed: database %s has no table durable_steps: "+
		"create it with durable.TxTable: ", db.Config().ConnConfig.Database)
	if !strings.HasPrefix(p.Detail(), want) {
		t.Errorf("detail: %s", p.Detail())
	}
	storagetest.Exec(t, db, durable.TxTable)
	if err := p.RepairSimple(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, "effects", effectsIn(t, db), "book")
}

// A transaction that PostgreSQL has rolled back because of other transactions runs again in the
// same try. After ten conflicts, the step fails.
func TestTxConflicts(t *testing.T) {
	t.Parallel()
	db := books(t)
	for conflicts, want := range map[int]string{9: "start:f step:book end:f", 10: "start:f step:book fail:f"} {
		runs := 0
		p := start(t, book(db, func(context.Context) error {
			if runs++; runs <= conflicts {
				return &pgconn.PgError{Code: "40001"}
			}
			return nil
		}), processortest.WithKey("ns", count(conflicts)))
		check(t, count(conflicts), journal(p), want)
	}
	check(t, "effects", effectsIn(t, db), "book")
}

// If a body ends its transaction, the function fails with the position of the Tx, and nothing is
// committed.
func TestTxEndedByBody(t *testing.T) {
	t.Parallel()
	db := books(t)
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commits": func(c context.Context, tx pgx.Tx) error { return tx.Commit(c) },
		"rolls":   func(c context.Context, tx pgx.Tx) error { return tx.Rollback(c) },
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			return "", durable.RunTx(ctx, "book", db, func(c context.Context, tx pgx.Tx) error {
				return errors.Join(insert(c, tx, "book"), end(c, tx))
			})
		}), processortest.WithKey("ns", name))
		if !strings.HasPrefix(p.Detail(), "durable/tx_test.go:") ||
			!strings.Contains(p.Detail(), "the body of a Tx "+name) {
			t.Errorf("detail: %s", p.Detail())
		}
	}
	check(t, "effects", effectsIn(t, db), "")
	check(t, "rows", one(t, db, "SELECT count(*)::text FROM durable_steps"), "0")
}

// Values that are too large for one task together are stored by several tasks. A value that is too
// large is an error, and its transaction is rolled back.
func TestTxOfLargeValues(t *testing.T) {
	t.Parallel()
	db := books(t)
	size := 1 << 20 // more than is allowed
	f := function(func(ctx durable.Ctx) (string, error) {
		all, err := durable.Each(ctx, "e", []string{"a", "b", "c", "d", "e", "f"},
			func(ctx durable.Ctx, name string) (string, error) {
				return durable.Tx(ctx, "book", db, func(c context.Context, tx pgx.Tx) (string, error) {
					return strings.Repeat(name, size), insert(c, tx, "book")
				})
			})
		return count(len(all)), err
	})
	p := start(t, f)
	if !strings.Contains(p.Detail(), "e[0]: step e[0]/book: the value has 1048578 bytes as JSON") {
		t.Errorf("detail: %s", p.Detail())
	}
	check(t, "effects", effectsIn(t, db), "")
	size = 1_000_000
	p = start(t, f, processortest.WithKey("ns", "p"))
	check(t, "status", string(p.Status())+p.Detail(), string(process.StatusCompleted))
	check(t, "effects", effectsIn(t, db), "book book book book book book")
}

// A check before a deploy uses no database.
func TestTxCheck(t *testing.T) {
	t.Parallel()
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	}))
	begun := false
	db := &unavailable{err: errors.New("no")}
	f := function(func(ctx durable.Ctx) (string, error) {
		if err := durable.RunTx(ctx, "book", db, func(context.Context, pgx.Tx) error {
			begun = true
			return nil
		}, durable.UndoTx(db, func(context.Context, pgx.Tx, struct{}) error { return nil })); err != nil {
			return "", err
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	})
	check(t, "findings", checked(t, p, f), "new step book: the next task runs it (durable/tx_test.go)")
	if begun {
		t.Error("the check ran the step")
	}
}

func TestPruneTx(t *testing.T) {
	t.Parallel()
	db := books(t)
	storagetest.Exec(t, db, `INSERT INTO durable_steps (key, created_time)
		VALUES ('old', now() - interval '31 days'), ('new', now() - interval '29 days')`)
	if n, err := durable.PruneTx(t.Context(), db, 30*24*time.Hour); err != nil || n != 1 {
		t.Error(n, err)
	}
	check(t, "rows", one(t, db, "SELECT string_agg(key, ' ') FROM durable_steps"), "new")
	if _, err := durable.PruneTx(t.Context(), db, 0); err == nil {
		t.Error("all rows may be deleted")
	}
}
