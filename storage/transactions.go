package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// This file has the transactions outside the lanes: reads, and transactions of other packages.

// Write runs statements of another package that need no lane, such as deleting old rows.
func (s *Store) Write(ctx context.Context, op string, write func(context.Context, DB) error) error {
	return mapped(op, s.write(ctx, func(conn *pgx.Conn) error { return write(ctx, conn) }))
}

// RunLocked locks processes and then runs a transaction that changes them, outside the lanes. If
// there are no keys, it locks nothing. It is for rare commands. op is the name of the operation in
// errors.
func (s *Store) RunLocked(
	ctx context.Context, op string, keys []process.Key, write func(context.Context, DB) error,
) error {
	err := s.write(ctx, s.afterLocks(ctx, lockRequest{keys: keys}, write))
	if err == nil {
		s.changeReaders.committed(keys)
	}
	return mapped(op, err)
}

// insertTries is the maximum number of tries in InsertLocked and in a flush. They try again if
// another session has created the same process (see PrepareInit).
const insertTries = 3

// InsertLocked is RunLocked with the settings of the hot path, for inserting many processes. It
// calls write again if another session has created one of them at the same time.
func (s *Store) InsertLocked(
	ctx context.Context, op string, keys []process.Key, write func(context.Context, DB) error,
) error {
	conn, err := s.hot.Acquire(ctx)
	if err != nil {
		return mapped(op, err)
	}
	defer conn.Release()
	request := lockRequest{keys: keys, created: make(map[process.Key]bool, len(keys))}
	for _, key := range keys {
		request.created[key] = true
	}
	for try := 1; ; try++ {
		err = s.writeOn(conn.Conn(), s.afterLocks(ctx, request, write))
		if try == insertTries || !IsUniqueViolation(err) {
			break
		}
	}
	if err == nil {
		s.changeReaders.committed(keys)
	}
	return mapped(op, err)
}

// afterLocks returns a function that runs a transaction after locking processes.
func (s *Store) afterLocks(
	ctx context.Context, request lockRequest, write func(context.Context, DB) error,
) func(*pgx.Conn) error {
	return func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if len(request.keys) > 0 {
				if err := s.waitStage(request)(ctx, tx); err != nil {
					return err
				}
			}
			return write(ctx, tx)
		})
	}
}

// readOnly are the options of read-only transactions with one snapshot.
var readOnly = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Read runs a read-only transaction with one snapshot, on a connection that attempts do not use. op
// is the name of the operation in errors.
func (s *Store) Read(ctx context.Context, op string, read func(context.Context, pgx.Tx) error) error {
	return mapped(op, pgx.BeginTxFunc(ctx, s.general, readOnly, func(tx pgx.Tx) error { return read(ctx, tx) }))
}

// Search is like Read, for operations that may take a long time: lists and searches. Together they
// leave at least one connection to other reads and to maintenance, unless there is only one.
func (s *Store) Search(ctx context.Context, op string, read func(context.Context, pgx.Tx) error) error {
	return mapped(op, pgx.BeginTxFunc(ctx, s.slow, readOnly, func(tx pgx.Tx) error { return read(ctx, tx) }))
}

// ReadOne runs one read-only statement. It needs no transaction for a snapshot, which saves two
// round trips. op is the name of the operation in errors.
func (s *Store) ReadOne(ctx context.Context, op string, read func(context.Context, DB) error) error {
	return mapped(op, read(ctx, s.general))
}

// Query runs one statement with a method of Store, such as ReadOne, and returns its result. The
// error is pgx.ErrNoRows if the statement reads a single row that does not exist. op is the name of
// the operation in errors.
func Query[Params, Result any](
	ctx context.Context, run func(context.Context, string, func(context.Context, DB) error) error, op string,
	query func(context.Context, DB, Params) (Result, error), params Params,
) (result Result, err error) {
	err = run(ctx, op, func(ctx context.Context, db DB) (err error) {
		result, err = query(ctx, db, params)
		return err
	})
	return result, err
}

// Scan runs one statement that claims tasks, with the settings of the hot path. op is the name of
// the operation in errors.
func (s *Store) Scan(ctx context.Context, op string, scan func(context.Context, DB) error) error {
	return mapped(op, scan(ctx, s.hot))
}

// FirstCall selects the first of the tasks of a namespace that wait for a slot.
type FirstCall struct {
	Namespace  string
	SkipPaused bool // jobs of paused names do not count
	OnlyPolled bool // tasks that the engine itself runs do not count
}

// ScanLocked is like Scan, but first locks the process of a task. It waits at most the given time
// for this lock. A scan skips locked rows, so without the wait it may never claim the tasks of a
// process that other sessions lock continuously. If ScanLocked does not get the lock, it returns
// nil and does not execute scan.
func (s *Store) ScanLocked(
	ctx context.Context, op string, first FirstCall, wait time.Duration, scan func(context.Context, DB) error,
) error {
	conn, err := s.hot.Acquire(ctx)
	if err != nil {
		return mapped(op, err)
	}
	defer conn.Release()
	err = pipeline(ctx, conn.Conn(), []stage{
		func(ctx context.Context, db DB) error {
			return s.q.SetLockTimeout(ctx, db, fmt.Sprint(max(wait.Milliseconds(), 1)))
		},
		func(ctx context.Context, db DB) error {
			return s.q.LockFirstCall(ctx, db, dbsqlc.LockFirstCallParams{
				Namespace: first.Namespace, Polls: first.OnlyPolled, Pauses: first.SkipPaused,
			})
		},
		scan,
	})
	if SQLState(err) == stateLockNotAvailable {
		return nil
	}
	return mapped(op, err)
}

// RunReserved runs statements, such as those of watchers and metrics, on connections that slow
// reads cannot use. op is the name of the operation in errors.
func (s *Store) RunReserved(ctx context.Context, op string, run func(context.Context, DB) error) error {
	return mapped(op, run(ctx, s.kept))
}

// TakeTasks runs a transaction that locks tasks with SKIP LOCKED and moves them. It has the
// settings of the hot path. op is the name of the operation in errors.
func (s *Store) TakeTasks(ctx context.Context, op string, take func(context.Context, DB) error) error {
	return mapped(op, pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) error { return take(ctx, tx) }))
}
