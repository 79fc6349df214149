package storage

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A stage is one statement of a flush, written as a call of a generated method. It is called twice: once on a queue, which
// records the statement into a pipeline, once on a replay, which hands out that statement's results.
type stage func(ctx context.Context, db DB) error

var errQueued = errors.New("queued")

// queue records statements. Recording one costs about 1 µs.
type queue struct{ batch *pgx.Batch }

func (q queue) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, errQueued
}

func (q queue) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	q.batch.Queue(sql, args...)
	return nil, errQueued
}

func (q queue) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	q.batch.Queue(sql, args...)
	return queuedRow{}
}

type queuedRow struct{}

func (queuedRow) Scan(...any) error { return errQueued }

// replay hands out the results of recorded statements, in their order.
type replay struct{ results pgx.BatchResults }

func (r replay) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return r.results.Exec()
}
func (r replay) Query(context.Context, string, ...any) (pgx.Rows, error) { return r.results.Query() }
func (r replay) QueryRow(context.Context, string, ...any) pgx.Row        { return r.results.QueryRow() }

// pipeline sends all stages at once, as one implicit transaction with one round trip, and reads their results. Nothing that
// was read may be acted on unless it returns nil: results arrive before the commit does.
func pipeline(ctx context.Context, conn *pgx.Conn, stages []stage) (err error) {
	batch := &pgx.Batch{}
	for _, st := range stages {
		if err := st(ctx, queue{batch}); !errors.Is(err, errQueued) {
			return err
		}
	}
	results := conn.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for _, st := range stages {
		if err := st(ctx, replay{results}); err != nil {
			return err
		}
	}
	return nil
}
