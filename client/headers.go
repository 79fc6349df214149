package client

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/tracing"
)

// headers is an interceptor that adds the trace context of ctx and the name of the program to the
// headers of each request. It does not start spans. To get a span for each request, pass an
// interceptor to WithConnectOptions. That interceptor runs before this one.
type headers struct{ userAgent string }

// module is the path of the module that contains this package.
const module = "github.com/progressor-engine/progressor"

// userAgent returns the header User-Agent of a program, which may be empty. It contains the version
// of this module if the program was built with a released version.
func userAgent(program string) string {
	agent := "progressor-go"
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(build.Deps, &build.Main) {
			if m.Path == module && m.Version != "" && m.Version != "(devel)" {
				agent += "/" + strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return strings.TrimSpace(program + " " + agent)
}

func (h headers) set(ctx context.Context, header http.Header) {
	tracing.Inject(ctx, header)
	header.Set("User-Agent", h.userAgent)
}

func (h headers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		h.set(ctx, request.Header())
		return next(ctx, request)
	}
}

func (h headers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		h.set(ctx, conn.RequestHeader())
		return conn
	}
}

func (headers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
