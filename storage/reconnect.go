package storage

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
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
// It is the tracer of the connections, because pgx reports an error of an attempt only to a tracer.
type reconnects struct {
	mu        sync.Mutex
	err       error         // error of the last attempt, nil if it succeeded
	succeeded time.Time     // time of the last success
	next      time.Time     // earliest time of the next attempt after an error
	ended     chan struct{} // closed when an attempt ends
}

// begin is called before an attempt. After an error, it lets one caller at a time try, with a pause
// in between. The others wait, and get the result of an attempt that ends after their call.
func (r *reconnects) begin(ctx context.Context) error {
	for {
		r.mu.Lock()
		now := time.Now()
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
			turn.Stop()
			return r.result()
		case <-turn.C:
		case <-ctx.Done():
			turn.Stop()
			return ctx.Err()
		}
	}
}

// result returns the result of the last attempt.
func (r *reconnects) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	return &noConnectionError{r.err}
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
		r.err, r.next = err, now.Add(connectPause)
	}
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
}

// noConnectionError reports that an attempt of another caller to connect has failed. It does not
// wrap the cause, because callers would take it for an error of their own statement or context.
type noConnectionError struct{ cause error }

func (e *noConnectionError) Error() string { return "cannot connect: " + e.cause.Error() }

// attemptKey is the key of the start time of an attempt in a context.
type attemptKey struct{}

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
