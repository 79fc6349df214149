package tracing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the instrumentation scope of the spans of the engine.
const Scope = "github.com/progressor-engine/progressor"

const (
	parentHeader = "Traceparent"
	parentBytes  = 55  // 00-TRACE ID-SPAN ID-FLAGS
	maxState     = 512 // the length that W3C requires to propagate; a longer tracestate is dropped
)

// texts is a carrier for traceparent and tracestate outside of headers.
type texts struct{ parent, state string }

func (t *texts) Get(key string) string {
	if key == "traceparent" {
		return t.parent
	}
	return t.state
}

func (t *texts) Set(key, value string) {
	if key == "traceparent" {
		t.parent = value
	} else {
		t.state = value
	}
}

func (*texts) Keys() []string { return []string{"traceparent", "tracestate"} }

// Values returns the values of traceparent and tracestate for a span, or "" if it is not valid.
func Values(sc trace.SpanContext) (parent, state string) {
	t := &texts{}
	if sc.IsValid() {
		propagation.TraceContext{}.Inject(trace.ContextWithRemoteSpanContext(context.Background(), sc), t)
	}
	if len(t.state) > maxState {
		t.state = ""
	}
	return t.parent, t.state
}

// OfValues parses the values of traceparent and tracestate. The result is not valid if they are
// not.
func OfValues(parent, state string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), &texts{parent, state})
	return trace.SpanContextFromContext(ctx)
}

// Text returns the text for a span in the column context, or nil if the span is not valid.
func Text(sc trace.SpanContext) []byte {
	parent, state := Values(sc)
	if parent == "" {
		return nil
	}
	if state == "" {
		return []byte(parent)
	}
	return []byte(parent + "\n" + state)
}

// OfText parses the result of Text. The result is not valid if text is the context of a client.
func OfText(text []byte) trace.SpanContext {
	if len(text) < parentBytes || len(text) > parentBytes+1+maxState || text[2] != '-' ||
		len(text) > parentBytes && text[parentBytes] != '\n' {
		return trace.SpanContext{}
	}
	parent, state, _ := bytes.Cut(text, []byte{'\n'})
	return OfValues(string(parent), string(state))
}

// Extract adds the span in the headers of a request to ctx, unless ctx already has one.
func Extract(ctx context.Context, header http.Header) context.Context {
	if len(header[parentHeader]) == 0 || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// Inject adds the span of ctx to the headers of a request, if there is one.
func Inject(ctx context.Context, header http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		header.Del("Tracestate") // a configured one belongs to another parent
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// IDs generates random span IDs, except for spans whose ID was set by WithSpanID.
type IDs struct{}

type spanIDKey struct{}

// WithSpanID sets the ID of the next span that is created in ctx.
func WithSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, spanIDKey{}, id)
}

// NewIDs generates the IDs of the first span of a trace.
func (IDs) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	var id trace.TraceID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, newSpanID()
}

// NewSpanID generates the ID of a span in an existing trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return id
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// AttemptID returns the ID of the span of an attempt. All nodes compute the same ID, so one node
// can lease a task to a worker and another one can store its result.
func AttemptID(in trace.TraceID, namespace, processID string, fencingToken int64) (id trace.SpanID) {
	b := make([]byte, 0, len(in)+len(namespace)+len(processID)+10)
	b = append(append(append(append(append(b, in[:]...), namespace...), 0), processID...), 0)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(fencingToken)))
	copy(id[:], sum[:])
	if !id.IsValid() {
		id[0] = 1
	}
	return id
}
