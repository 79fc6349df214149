package storage

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// reconnectPause is the pause between attempts to connect to a server that accepts no connections.
const reconnectPause = 100 * time.Millisecond

// reconnects limits how often a store tries to connect while the server accepts no connections, for
// example while it recovers after a crash. The server starts a process for each attempt. Without a
// limit, each request would make an attempt, and the attempts would slow the recovery down.
//
// It is the tracer of all connections, because pgx reports the result of an attempt only to a
// tracer.
type reconnects struct {
	mu     sync.Mutex
	err    error     // error of the last attempt, nil if it succeeded
	next   time.Time // earliest time of the next attempt after an error
	trying bool      // an attempt after an error has begun and not ended
}

// begin is called before an attempt. After an error, it allows one attempt at a time, with a pause
// in between, and returns that error to the other callers.
func (r *reconnects) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	if r.trying || time.Now().Before(r.next) {
		return r.err
	}
	r.trying = true
	return nil
}

// end records the result of an attempt. If the caller has given up, the result of the attempt is
// unknown, and the last known result stays.
func (r *reconnects) end(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trying = false
	switch {
	case err == nil:
		r.err = nil
	case ctx.Err() == nil:
		r.err, r.next = err, time.Now().Add(reconnectPause)
	}
}

// TraceConnectStart implements pgx.ConnectTracer.
func (*reconnects) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (r *reconnects) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	r.end(ctx, data.Err)
}

// TraceQueryStart does nothing. It is part of pgx.QueryTracer, which every tracer must implement.
func (*reconnects) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing, as TraceQueryStart.
func (*reconnects) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
