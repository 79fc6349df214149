package storage

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// stage is one statement of a flush, written as a call of a generated method. It is called twice:
// first with a queue, which records the statement in a pipeline, then with a replay, which returns
// the results of the statement.
type stage = func(ctx context.Context, db DB) error

var errQueued = errors.New("queued")

// queue records statements. Recording a statement costs about 1 µs.
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

// replay returns the results of recorded statements, in order.
type replay struct{ results pgx.BatchResults }

func (r replay) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return r.results.Exec()
}
func (r replay) Query(context.Context, string, ...any) (pgx.Rows, error) { return r.results.Query() }
func (r replay) QueryRow(context.Context, string, ...any) pgx.Row        { return r.results.QueryRow() }

// pipeline sends all stages at once, as one implicit transaction with one round trip, and reads
// their results. The results must not be used unless it returns nil, because they arrive before the
// commit.
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
