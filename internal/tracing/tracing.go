// Package tracing is how a trace finds its way from a request to the tasks that it asked for and on to their processors: W3C Trace Context, in
// headers and in the column context. It makes no spans and exports nothing.
//
// In the column the trace is text that any language reads: the value of the header traceparent (55 bytes), and where there is a tracestate a
// newline and its value.
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

// Scope is what the engine's spans are filed under.
const Scope = "github.com/progressor-engine/progressor"

const (
	parentHeader = "Traceparent"
	parentBytes  = 55  // 00-TRACE ID-SPAN ID-FLAGS
	maxState     = 512 // the least that W3C asks everybody to hand on; a longer tracestate is left out
)

// texts are traceparent and tracestate outside of headers.
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

// Values writes a span as the values of traceparent and tracestate; "" for one that is not valid.
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

// OfValues reads the values of traceparent and tracestate; not valid: they are none.
func OfValues(parent, state string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &texts{parent, state}))
}

// Text writes a span as the column context has it; nil for one that is not valid.
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

// OfText reads what Text wrote; not valid: these are a caller's own bytes.
func OfText(text []byte) trace.SpanContext {
	if len(text) < parentBytes || len(text) > parentBytes+1+maxState || text[2] != '-' || len(text) > parentBytes && text[parentBytes] != '\n' {
		return trace.SpanContext{}
	}
	parent, state, _ := bytes.Cut(text, []byte{'\n'})
	return OfValues(string(parent), string(state))
}

// Extract takes the caller's span out of the headers of a request, if there is one, and ctx has none yet.
func Extract(ctx context.Context, header http.Header) context.Context {
	if len(header[parentHeader]) == 0 || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// Inject puts the span of ctx into the headers of a request, if there is one.
func Inject(ctx context.Context, header http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		header.Del("Tracestate") // of whoever configured one: it belongs to another parent
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// IDs makes the ids of spans: random ones, but for spans whose id somebody had to know before they were made (WithSpanID).
type IDs struct{}

type spanIDKey struct{}

// WithSpanID has the next span that is made in ctx get this id.
func WithSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, spanIDKey{}, id)
}

// NewIDs makes the ids of a span that begins a trace.
func (IDs) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	var id trace.TraceID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, newSpanID()
}

// NewSpanID makes the id of a span in a trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return id
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // no secret
	}
	return id
}

// AttemptID is the id of the span of one attempt: every node comes to the same one, so that the one that hands a task to a worker and the one
// that stores its answer need not be the same.
func AttemptID(in trace.TraceID, namespace, processID string, fencingToken int64) (id trace.SpanID) {
	b := make([]byte, 0, len(in)+len(namespace)+len(processID)+10)
	b = append(append(append(append(append(b, in[:]...), namespace...), 0), processID...), 0)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(fencingToken))) //nolint:gosec // of a sequence
	copy(id[:], sum[:])
	if !id.IsValid() {
		id[0] = 1
	}
	return id
}
