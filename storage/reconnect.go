package storage

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectPause is the pause between attempts to connect to a server that accepts no
	// connections.
	connectPause = 100 * time.Millisecond
	// connectTurn is how long an attempt may take until another one may begin.
	connectTurn = time.Second
)

// reconnects limits how often pools try to connect while the server accepts no connections, for
// example while it recovers after a crash. The server starts a process for each attempt. Without a
// limit, each request would make an attempt, and the attempts would slow the recovery down.
//
// It is the tracer of the pools, because pgx reports an error of an attempt only to a tracer.
type reconnects struct {
	mu        sync.Mutex
	err       error         // error of the last attempt, nil if it succeeded
	failed    time.Time     // time of the last error
	succeeded time.Time     // time of the last success
	next      time.Time     // earliest time of the next attempt after an error
	ended     chan struct{} // closed when an attempt ends
}

// begin is called before an attempt. After an error, it lets one caller at a time try, with a pause
// in between. The others wait for a result of an attempt. If an attempt has failed since the
// request asked for a connection, begin returns its error, so that requests do not wait one after
// the other.
func (r *reconnects) begin(ctx context.Context) error {
	asked, ok := ctx.Value(askedKey{}).(time.Time)
	if !ok {
		asked = time.Now()
	}
	for {
		r.mu.Lock()
		now := time.Now()
		if err := r.err; err != nil && asked.Before(r.failed) {
			r.mu.Unlock()
			return &noConnectionError{err}
		}
		if r.err == nil || !now.Before(r.next) {
			r.next = now.Add(connectTurn)
			r.mu.Unlock()
			return nil
		}
		if r.ended == nil {
			r.ended = make(chan struct{})
		}
		ended, turn := r.ended, time.NewTimer(r.next.Sub(now))
		r.mu.Unlock()
		select {
		case <-ended:
		case <-turn.C:
		case <-ctx.Done():
			turn.Stop()
			return &noConnectionError{ctx.Err()}
		}
		turn.Stop()
	}
}

// end records the result of an attempt that began at a time. It ignores an error if another attempt
// has succeeded since then. If the caller has given up, the result of the attempt is unknown, and
// the last known result stays.
func (r *reconnects) end(ctx context.Context, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		r.err, r.succeeded = nil, now
	case ctx.Err() != nil:
		r.next = now
	case !began.Before(r.succeeded):
		r.err, r.failed, r.next = err, now, now.Add(connectPause)
	}
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
}

// noConnectionError reports that a request got no connection. It does not wrap the cause, because
// callers would take the cause for an error of their own statement or context.
type noConnectionError struct{ cause error }

func (e *noConnectionError) Error() string { return "cannot connect: " + e.cause.Error() }

// The keys of times in contexts.
type (
	askedKey   struct{} // when a request asked for a connection
	attemptKey struct{} // when an attempt to connect began
)

// asking returns a context with the current time as the time when a request asked for a connection.
func asking(ctx context.Context) context.Context {
	if ctx.Value(askedKey{}) != nil {
		return ctx // it waited for its share of a pool
	}
	return context.WithValue(ctx, askedKey{}, time.Now())
}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (*reconnects) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	return asking(ctx)
}

// TraceAcquireEnd does nothing. It is part of pgxpool.AcquireTracer.
func (*reconnects) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// TraceConnectStart implements pgx.ConnectTracer.
func (*reconnects) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return context.WithValue(ctx, attemptKey{}, time.Now())
}

// TraceConnectEnd implements pgx.ConnectTracer. It records only errors, because a connection is
// confirmed before the attempt has succeeded.
func (r *reconnects) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	if began, ok := ctx.Value(attemptKey{}).(time.Time); ok && data.Err != nil {
		r.end(ctx, began, data.Err)
	}
}

// TraceQueryStart does nothing. It is part of pgx.QueryTracer, which every tracer must implement.
func (*reconnects) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing, as TraceQueryStart.
func (*reconnects) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
