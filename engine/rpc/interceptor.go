package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
)

// interceptor runs between the decoding of a request and its handler. It validates requests,
// recovers panics, converts errors, limits what a client has in flight, and records metrics, spans
// and logs.
type interceptor struct {
	valid   *validation
	log     *slog.Logger
	metrics *metrics
	shared  *shared
	clients *clients
	traces  *traces // nil if tracing is off
}

// WrapUnary wraps unary handlers.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		begin := time.Now()
		procedure := request.Spec().Procedure
		ctx, span := i.traces.begin(ctx, procedure, request.Peer().Protocol, request.Header())
		defer func() {
			if r := recover(); r != nil {
				response, err = nil, i.caught(ctx, procedure, r)
			}
			if err != nil { // the response that a handler returns with an error is not complete
				response, err = nil, i.mapError(ctx, procedure, err, request.Any())
			}
			if span != nil {
				endSpan(span, request.Any(), messageOf(response), err)
			}
			i.metrics.observe(procedure, err, time.Since(begin))
		}()
		client, of := clientOf(request.Peer().Addr), classOf(procedure, request.Any())
		if err := i.clients.enter(client, of); err != nil {
			return nil, err
		}
		defer i.clients.leave(client, of)
		if err := i.valid.check(request.Any()); err != nil {
			return nil, err
		}
		return i.shared.unary(ctx, request, next)
	}
}

// WrapStreamingHandler wraps streaming handlers.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		begin := time.Now()
		procedure := conn.Spec().Procedure
		ctx, span := i.traces.begin(ctx, procedure, conn.Peer().Protocol, conn.RequestHeader())
		stream := &validatedStream{StreamingHandlerConn: conn, valid: i.valid}
		defer func() {
			if r := recover(); r != nil {
				err = i.caught(ctx, procedure, r)
			}
			if err != nil {
				err = i.mapError(ctx, procedure, err, stream.last)
			}
			endSpan(span, stream.last, nil, err)
			i.metrics.observe(procedure, err, time.Since(begin))
		}()
		client := clientOf(conn.Peer().Addr)
		if err := i.clients.enter(client, classStream); err != nil {
			return err
		}
		defer i.clients.leave(client, classStream)
		return next(ctx, stream)
	}
}

// WrapStreamingClient returns next unchanged.
func (*interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// validatedStream validates each received message.
type validatedStream struct {
	connect.StreamingHandlerConn
	valid *validation
	last  any // the last received message, the subject of errors
}

// Receive receives the next message.
func (s *validatedStream) Receive(message any) error {
	if err := s.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	s.last = message
	if err := s.valid.check(message); err != nil {
		connectErr, _ := toConnect(err, message)
		return connectErr
	}
	return nil
}

func (i *interceptor) mapError(ctx context.Context, procedure string, err error, request any) error {
	connectErr, internal := toConnect(err, request)
	if internal {
		namespace, processID := scopeOf(request)
		i.log.WarnContext(ctx, "request ended with an internal error",
			"method", procedure, "namespace", namespace, "process_id", processID, "error", err)
	}
	return connectErr
}

// caught logs a panic and converts it to an error. It passes http.ErrAbortHandler on to net/http.
func (i *interceptor) caught(ctx context.Context, procedure string, r any) error {
	if r == http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
		panic(r)
	}
	i.log.ErrorContext(ctx, "request panicked", "method", procedure, "panic", fmt.Sprint(r), "stack",
		string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New(internalText))
}
