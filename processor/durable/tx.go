package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/processor"
)

// TxTable is the statement that creates the table of Tx and UndoTx. Run it in each database that
// they use, for example in a migration. Tx finds the table with the search_path of its connections.
const TxTable = `CREATE TABLE IF NOT EXISTS durable_steps (
	key          text PRIMARY KEY,
	result       json,
	created_time timestamptz NOT NULL DEFAULT now()
)`

// claimStep inserts the row of a step unless it exists. It waits until other transactions that have
// inserted it end. PostgreSQL ends the transaction of a client that stopped responding.
const claimStep = `INSERT INTO durable_steps (key)
SELECT $1::text FROM set_config('idle_in_transaction_session_timeout', $2, true)
ON CONFLICT (key) DO NOTHING`

// maxConflicts is the maximum number of times that one try runs its transaction if PostgreSQL rolls
// it back because of other transactions.
const maxConflicts = 10

var errCancelled = processor.Fail("cancelled", "the process was cancelled")

// TxBeginner begins transactions. It is usually a *pgxpool.Pool. A *pgx.Conn is possible if no two
// steps use it at the same time.
type TxBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Tx is Step for a body that changes a PostgreSQL database of the application. The changes that the
// body makes in its transaction are applied exactly once: a row of the table durable_steps (see
// TxTable) contains the value of the step, and Tx inserts it in the same transaction. If the row
// exists, Tx returns this value and does not run the body.
//
// An error of the body rolls back everything, and is handled as by Step. The body is run again at
// once, up to 10 times in one try, if PostgreSQL ended its transaction because of a serialization
// failure or a deadlock. The body must therefore have no other effects. It must neither commit nor
// roll back.
//
// If it is unknown whether the transaction has committed, because the database cannot be reached or
// has no table, the step does not fail. Instead, its task fails with the reason durable_tx, and is
// retried by the retry policy of the namespace. When no attempts are left, the process is in ERROR,
// and a repair continues it.
func Tx[T any](
	ctx Ctx, name string, db TxBeginner, body func(context.Context, pgx.Tx) (T, error), opts ...StepOption,
) (T, error) {
	return runStep[T](ctx, name, opts, func(step *stepRun) {
		x := txStep{run: ctx.branch.owner, step: step, db: db}
		step.settle = x.settle
		step.body = func(ctx context.Context) (any, error) {
			return x.try(ctx, func(tx pgx.Tx) (any, error) { return body(ctx, tx) })
		}
	})
}

// RunTx is Tx for a body without a value.
func RunTx(
	ctx Ctx, name string, db TxBeginner, body func(context.Context, pgx.Tx) error, opts ...StepOption,
) error {
	_, err := Tx(ctx, name, db, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		return struct{}{}, body(ctx, tx)
	}, opts...)
	return err
}

// UndoTx is Undo for a function that changes a database. It takes effect exactly once, as Tx does.
func UndoTx[T any](db TxBeginner, f func(context.Context, pgx.Tx, T) error) StepOption {
	return Undo(func(ctx context.Context, value T) error {
		body, _ := ctx.Value(stepKey{}).(stepBody)
		_, err := once(ctx, db, body.key, func(tx pgx.Tx) (txRow, error) {
			return txRow{}, f(ctx, bodyTx{tx, body.run}, value)
		})
		return err
	})
}

// PruneTx deletes the rows of the table durable_steps that are older than this, and returns their
// number. olderThan must be longer than the time from the first to the last try of any step,
// including the time until an operator repairs its process. Otherwise, a step may take effect
// twice.
func PruneTx(ctx context.Context, db TxBeginner, olderThan time.Duration) (int64, error) {
	if olderThan <= 0 {
		return 0, fmt.Errorf("olderThan: must be positive (got %s)", olderThan)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	deleted, err := tx.Exec(ctx, "DELETE FROM durable_steps WHERE created_time < now() - make_interval(secs => $1)",
		olderThan.Seconds())
	if err != nil {
		return 0, err
	}
	return deleted.RowsAffected(), tx.Commit(ctx)
}

// txStep is a step of Tx that is not in the journal yet.
type txStep struct {
	run  *run
	step *stepRun
	db   TxBeginner
}

// key returns the key of the row. If a repair runs a failed step again, it has a new row.
func (x txStep) key() string {
	key := x.run.keyOf("", x.step.name)
	if n := x.run.journal.failed[x.step.name]; n > 0 {
		key += "!" + strconv.Itoa(n+1)
	}
	return key
}

// try returns the value of the step, or the error of one try. The last try returns the result in
// the row.
func (x txStep) try(ctx context.Context, body func(pgx.Tx) (any, error)) (any, error) {
	row, err := once(ctx, x.db, x.key(), func(tx pgx.Tx) (txRow, error) {
		value, err := body(bodyTx{tx, x.run})
		if err != nil {
			return txRow{}, err
		}
		text, err := encodeValue(value)
		return txRow{Value: text}, err
	})
	switch {
	case err == nil:
		return row.result()
	case x.run.isLast(x.step, err):
		return x.settle(err)
	default:
		return nil, err
	}
}

// settle ends a step that failed for the last time. If one of its transactions has committed
// nevertheless, settle returns the value. This happens if the response was lost, or if another
// attempt committed. Otherwise settle stores the error, so that no transaction of the step can
// commit later. If the database returns an error, settle fails the task.
func (x txStep) settle(failed error) (any, error) {
	row, err := once(x.run.ctx, x.db, x.key(), func(pgx.Tx) (txRow, error) {
		return txRow{Error: recorded(failed)}, nil
	})
	if err != nil {
		x.run.fail(processor.Fail(ReasonTx, "it is unknown whether step %s has committed: %w", x.step.name, err))
		runtime.Goexit()
	}
	return row.result()
}

// txRow is the result of a step in its row, with the fields of the journal.
type txRow struct {
	Value json.RawMessage `json:"v,omitempty"`
	Error *StepError      `json:"e,omitempty"`
}

// result returns the value, or an error that is not retried.
func (r txRow) result() (any, error) {
	switch {
	case r.Error == nil:
		return r.Value, nil
	case r.Error.Rejected:
		return nil, processor.Reject(r.Error.Reason, "%s", r.Error.Message)
	default:
		return nil, processor.Fail(r.Error.Reason, "%s", r.Error.Message).NonRetryable()
	}
}

// once runs body in a transaction and stores its result in the row of this key. If the row exists,
// it returns that result and does not run body.
func once(ctx context.Context, db TxBeginner, key string, body func(pgx.Tx) (txRow, error)) (row txRow, err error) {
	for range maxConflicts {
		row, err = tryOnce(ctx, db, key, body)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "40001" && pg.Code != "40P01" {
			break
		}
	}
	return row, err
}

func tryOnce(ctx context.Context, db TxBeginner, key string, body func(pgx.Tx) (txRow, error)) (row txRow, err error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return row, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	idle := time.Hour
	if deadline, ok := ctx.Deadline(); ok {
		idle = max(time.Until(deadline), time.Millisecond)
	}
	claimed, err := tx.Exec(ctx, claimStep, key, strconv.FormatInt(idle.Milliseconds(), 10))
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42P01" {
		return row, fmt.Errorf("database %s has no table durable_steps: create it with durable.TxTable: %w",
			tx.Conn().Config().Database, err)
	}
	if err != nil {
		return row, err
	}
	if claimed.RowsAffected() == 0 {
		err = tx.QueryRow(ctx, "SELECT result FROM durable_steps WHERE key = $1", key).Scan(&row)
		return row, err
	}
	if row, err = body(tx); err != nil {
		return row, err
	}
	text, err := json.Marshal(row)
	if err != nil {
		return row, err
	}
	if _, err = tx.Exec(ctx, "UPDATE durable_steps SET result = $2 WHERE key = $1", key, string(text)); err != nil {
		return row, err
	}
	return row, tx.Commit(ctx)
}

// bodyTx is the transaction of a body, which must not end it.
type bodyTx struct {
	pgx.Tx
	run *run
}

// Commit fails the task.
func (t bodyTx) Commit(context.Context) error {
	t.run.misuse("the body of a Tx commits: its transaction commits after it has returned")
	return nil
}

// Rollback fails the task.
func (t bodyTx) Rollback(context.Context) error {
	t.run.misuse("the body of a Tx rolls back: it must return an error instead")
	return nil
}
