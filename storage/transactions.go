package storage

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
)

// The transactions that go through no lane: those of the packages above this one, and of reads.

// Write runs statements of a package above this one that have no place in a lane, such as the forgetting of old rows.
func (s *Store) Write(ctx context.Context, op string, write func(context.Context, DB) error) error {
	return mapped(op, s.write(ctx, func(conn *pgx.Conn) error { return write(ctx, conn) }))
}

// Locked runs a transaction that changes processes outside of the lanes, once it holds them: for orders that are rare. op names it in errors.
func (s *Store) Locked(ctx context.Context, op string, keys []process.Key, write func(context.Context, DB) error) error {
	return mapped(op, s.write(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.lockStage(keys)(ctx, tx); err != nil {
				return err
			}
			return write(ctx, tx)
		})
	}))
}

// readOnly are the options of transactions that only read, all of one moment.
var readOnly = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Read runs a transaction that only reads, all of one moment, on a connection that no attempt waits for. op names it in errors.
func (s *Store) Read(ctx context.Context, op string, read func(context.Context, pgx.Tx) error) error {
	return mapped(op, pgx.BeginTxFunc(ctx, s.general, readOnly, func(tx pgx.Tx) error { return read(ctx, tx) }))
}

// Search is Read for what may take long: lists and searches. Together they leave at least one connection to other
// reads and to maintenance, unless there is only one.
func (s *Store) Search(ctx context.Context, op string, read func(context.Context, pgx.Tx) error) error {
	return mapped(op, pgx.BeginTxFunc(ctx, s.searches, readOnly, func(tx pgx.Tx) error { return read(ctx, tx) }))
}

// ReadOne runs one statement that only reads. Alone it sees one moment, and a transaction around it would be two more round trips. op names it in errors.
func (s *Store) ReadOne(ctx context.Context, op string, read func(context.Context, DB) error) error {
	return mapped(op, read(ctx, s.general))
}

// Taking runs a transaction that moves tasks which it takes with SKIP LOCKED, with the plans of the hot path. op names it in errors.
func (s *Store) Taking(ctx context.Context, op string, take func(context.Context, DB) error) error {
	return mapped(op, pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) error { return take(ctx, tx) }))
}
