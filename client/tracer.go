package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/tracing"
)

// tracer names the span of its context in each request. It makes no spans itself: who wants one of each request gives an interceptor by
// WithConnectOptions, which stands before this one.
type tracer struct{}

func (tracer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		tracing.Inject(ctx, request.Header())
		return next(ctx, request)
	}
}

func (tracer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		tracing.Inject(ctx, conn.RequestHeader())
		return conn
	}
}

func (tracer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
