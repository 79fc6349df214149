package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// interceptor runs between the decoding of a request and its handler. It validates and authorizes
// requests, recovers panics, converts errors, limits what a client has in flight, and records
// metrics, spans and logs.
type interceptor struct {
	valid   *validation
	access  *authorization // nil if all clients may do everything
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
				response, err = nil, i.recovered(ctx, procedure, r)
			}
			if err != nil { // the response that a handler returns with an error is not complete
				response, err = nil, i.mapError(ctx, procedure, err, request.Any())
			}
			if span != nil {
				endSpan(span, request.Any(), messageOf(response), err)
			}
			i.metrics.observe(procedure, err, time.Since(begin))
			noteEnd(ctx, err)
		}()
		keepDecoded(ctx, request.Any())
		client, of := clientOf(ctx, request.Peer().Addr), classOf(procedure, request.Any())
		if err := i.clients.enter(client, of); err != nil {
			return nil, err
		}
		defer i.clients.leave(client, of)
		if err := i.valid.check(request.Any()); err != nil {
			return nil, err
		}
		granted, err := i.access.check(ctx, procedure, request.Any())
		if err != nil {
			return nil, err
		}
		return i.shared.unary(granted.in(ctx), request, granted.handler(next))
	}
}

// WrapStreamingHandler wraps streaming handlers.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		begin := time.Now()
		procedure := conn.Spec().Procedure
		ctx, span := i.traces.begin(ctx, procedure, conn.Peer().Protocol, conn.RequestHeader())
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stream := &checkedStream{StreamingHandlerConn: conn, valid: i.valid, access: i.access, ctx: ctx, end: cancel}
		defer func() {
			if r := recover(); r != nil {
				err = i.recovered(ctx, procedure, r)
			}
			if err != nil {
				err = i.mapError(ctx, procedure, err, stream.last)
			}
			endSpan(span, stream.last, nil, err)
			i.metrics.observe(procedure, err, time.Since(begin))
			noteEnd(ctx, err)
		}()
		client := clientOf(ctx, conn.Peer().Addr)
		if err := i.clients.enter(client, classStream); err != nil {
			return err
		}
		defer i.clients.leave(client, classStream)
		err = next(ctx, stream)
		if denied, ok := errors.AsType[*connect.Error](context.Cause(ctx)); ok { // set by follow
			err = denied
		}
		return err
	}
}

// WrapStreamingClient returns next unchanged.
func (*interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// checkedStream validates and authorizes each received message, and removes from sent messages what
// the principal may not see. Every stream receives one message.
type checkedStream struct {
	connect.StreamingHandlerConn
	valid   *validation
	access  *authorization
	ctx     context.Context //nolint:containedctx // context of the stream
	end     func(error)     // ends the stream
	last    any             // the last received message, to which errors refer
	granted atomic.Pointer[access]
}

// Receive receives the next message.
func (s *checkedStream) Receive(message any) error {
	if err := s.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	s.last = message
	keepDecoded(s.ctx, message)
	if err := s.valid.check(message); err != nil {
		connectErr, _ := toConnect(err, message)
		return connectErr
	}
	granted, err := s.access.check(s.ctx, s.Spec().Procedure, message)
	if err != nil {
		return err
	}
	s.granted.Store(&granted)
	if granted.rule != nil {
		go s.access.follow(s.ctx, s.Spec().Procedure, message, func(now access) { s.granted.Store(&now) }, s.end)
	}
	return nil
}

// Send sends a message.
func (s *checkedStream) Send(message any) error {
	if granted := s.granted.Load(); granted != nil {
		message = granted.shown(message)
	}
	return s.StreamingHandlerConn.Send(message)
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

// recovered logs a panic and converts it to an error. It passes http.ErrAbortHandler on to
// net/http.
func (i *interceptor) recovered(ctx context.Context, procedure string, r any) error {
	if r == http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
		panic(r)
	}
	i.log.ErrorContext(ctx, "request panicked", "method", procedure, "panic", fmt.Sprint(r), "stack",
		string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New(internalText))
}
