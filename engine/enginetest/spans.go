package enginetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/tracing"
)

// Spans is a TracerProvider that remembers the spans that have ended.
type Spans struct {
	*sdktrace.TracerProvider
	recorder *tracetest.SpanRecorder
}

// NewSpans makes one as serve does, with the sampler of that ratio.
func NewSpans(ratio float64) *Spans {
	r := tracetest.NewSpanRecorder()
	return &Spans{sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(r), sdktrace.WithIDGenerator(tracing.IDs{}), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
	), r}
}

// Begin begins a span of a test, such as a client's.
func (s *Spans) Begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return s.Tracer("test").Start(ctx, name)
}

// Named are the spans of a name that have ended, in the order of their ends.
func (s *Spans) Named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, span := range s.recorder.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

// Await waits until n spans of a name have ended.
func (s *Spans) Await(t testing.TB, patience time.Duration, name string, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	Eventually(t, patience, fmt.Sprintf("%d spans %q", n, name), func() bool { return len(s.Named(name)) >= n })
	return s.Named(name)
}

// Text is everything that was told of spans, for what must not be there.
func (s *Spans) Text() string {
	var b strings.Builder
	for _, span := range s.recorder.Ended() {
		fmt.Fprintln(&b, span.Name(), span.Attributes(), span.Events(), span.Status(), span.SpanContext().TraceState())
	}
	return b.String()
}

// Attribute is the value of an attribute of a span as text; "": it has none.
func Attribute(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}
