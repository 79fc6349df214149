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

// Spans is a TracerProvider that records the ended spans.
type Spans struct {
	*sdktrace.TracerProvider
	recorder *tracetest.SpanRecorder
}

// NewSpans returns a Spans that is configured like the tracer of progressor serve, with a sampler
// for the ratio.
func NewSpans(ratio float64) *Spans {
	r := tracetest.NewSpanRecorder()
	return &Spans{sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(r), sdktrace.WithIDGenerator(tracing.IDs{}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
	), r}
}

// Begin starts a span of a test, such as a client's.
func (s *Spans) Begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return s.Tracer("test").Start(ctx, name)
}

// Named returns the ended spans with the given name, in the order of their ends.
func (s *Spans) Named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, span := range s.recorder.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

// Await waits until n spans with the given name have ended.
func (s *Spans) Await(t testing.TB, timeout time.Duration, name string, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	Eventually(t, timeout, fmt.Sprintf("%d spans %q", n, name), func() bool { return len(s.Named(name)) >= n })
	return s.Named(name)
}

// Text returns all recorded data of the spans. Tests use it to check that something was not
// recorded.
func (s *Spans) Text() string {
	var b strings.Builder
	for _, span := range s.recorder.Ended() {
		fmt.Fprintln(&b, span.Name(), span.Attributes(), span.Events(), span.Status(), span.SpanContext().TraceState())
	}
	return b.String()
}

// Attribute returns an attribute of a span as text, or "" if it is not set.
func Attribute(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}
