package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/tracing"
)

// tracer adds the span of the context to each request. It starts no spans. To get a span for each
// request, pass an interceptor to WithConnectOptions; it runs before this one.
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
