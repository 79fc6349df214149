package storage

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// share limits how many connections of a pool one kind of work uses at a time. As long as every
// share is smaller than its pool, no kind of work can use all connections, however slow its
// statements are. It is safe for concurrent use.
type share struct {
	name  string
	pool  *pgxpool.Pool
	slots chan struct{}
	waits atomic.Int64 // acquisitions that found no free slot
}

// newShare returns a share of all connections of a pool except one, but at least one.
func newShare(name string, pool *pgxpool.Pool) *share {
	size := max(int(pool.Config().MaxConns)-1, 1)
	return &share{name: name, pool: pool, slots: make(chan struct{}, size)}
}

// shareConn is a connection that counts against a share until it is released.
type shareConn struct {
	conn    *pgx.Conn
	release func()
}

// Conn returns the connection itself.
func (c *shareConn) Conn() *pgx.Conn { return c.conn }

// Release returns the connection to its pool. Calls after the first one do nothing.
func (c *shareConn) Release() { c.release() }

// Acquire waits for a connection.
func (s *share) Acquire(ctx context.Context) (*shareConn, error) {
	ctx = asking(ctx)
	select {
	case s.slots <- struct{}{}:
	default:
		s.waits.Add(1)
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		<-s.slots
		return nil, err
	}
	release := sync.OnceFunc(func() {
		conn.Release()
		<-s.slots
	})
	return &shareConn{conn.Conn(), release}, nil
}

// Exec runs a statement.
func (s *share) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer conn.Release()
	return conn.conn.Exec(ctx, sql, args...)
}

// Query runs a query. Its connection is released when the rows are closed.
func (s *share) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.conn.Query(ctx, sql, args...)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &shareRows{rows, conn}, nil
}

// QueryRow runs a query that returns one row. Its connection is released by Scan.
func (s *share) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return failedRow{err}
	}
	return &shareRow{conn.conn.QueryRow(ctx, sql, args...), conn}
}

// Begin implements the interface for pgx.BeginFunc. The connection is released when the transaction
// ends.
func (s *share) Begin(ctx context.Context) (pgx.Tx, error) { return s.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction with options.
func (s *share) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.conn.BeginTx(ctx, options)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &shareTx{tx, conn}, nil
}

// Ping checks that the database answers.
func (s *share) Ping(ctx context.Context) error {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return conn.conn.Ping(ctx)
}

// maxConns returns the maximum number of connections of the pool.
func (s *share) maxConns() int { return int(s.pool.Config().MaxConns) }

// shareRows are rows that release their connection when they are closed or read to their end.
type shareRows struct {
	pgx.Rows
	conn *shareConn
}

func (r *shareRows) Close() {
	r.Rows.Close()
	r.conn.Release()
}

func (r *shareRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

type shareRow struct {
	pgx.Row
	conn *shareConn
}

func (r *shareRow) Scan(dest ...any) error {
	defer r.conn.Release()
	return r.Row.Scan(dest...)
}

// failedRow is the row of a query that got no connection.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// shareTx is a transaction that releases its connection when it ends.
type shareTx struct {
	pgx.Tx
	conn *shareConn
}

func (t *shareTx) Commit(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Commit(ctx)
}

func (t *shareTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Rollback(ctx)
}
