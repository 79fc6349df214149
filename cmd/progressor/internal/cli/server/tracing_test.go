package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestTracingFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags tracingFlags
		want  string
	}{
		"good":     {tracingFlags{Endpoint: "https://otel.example/v1/traces", Ratio: 0.1}, ""},
		"ratio":    {tracingFlags{Ratio: 1.5}, "--tracing.ratio: must be a number from 0 to 1"},
		"no url":   {tracingFlags{Endpoint: "jaeger:4318"}, "--tracing.endpoint: must be the URL of a collector"},
		"password": {tracingFlags{Endpoint: "http://me:s3cret@h:4318"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		"query":    {tracingFlags{Endpoint: "http://h:4318/?key=s3cret"}, "--tracing.endpoint: must not contain a query"},
	} {
		err := test.flags.check()
		if text := fmt.Sprint(err); (err == nil) != (test.want == "") ||
			!strings.Contains(text, test.want) && err != nil || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for env, want := range map[string]bool{
		"": false, "OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318": true, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://h:4318/v1/traces": true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318 OTEL_SDK_DISABLED=true": false, "OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318 OTEL_TRACES_EXPORTER=none": false,
	} {
		getenv := func(name string) (string, bool) {
			for pair := range strings.FieldsSeq(env) {
				if key, value, _ := strings.Cut(pair, "="); key == name {
					return value, true
				}
			}
			return "", false
		}
		if got := (tracingFlags{}).areEnabled(getenv); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
}

// blockedExporter is a collector that accepts nothing until it is released.
type blockedExporter struct {
	sdktrace.SpanExporter
	open chan struct{}
	err  error
}

func (s *blockedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	<-s.open
	return errors.Join(s.err, s.SpanExporter.ExportSpans(ctx, spans))
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// While the collector accepts nothing, a limited number of spans wait. The others are dropped at
// once and counted.
func TestSpanQueue(t *testing.T) {
	t.Parallel()
	const most, all = 600, 1000
	for name, test := range map[string]struct {
		err                     error
		exported, queue, failed float64
	}{
		"slow":   {nil, most, all - most, 0},
		"broken": {errors.New("no"), 0, all - most, most},
	} {
		taken := tracetest.NewInMemoryExporter()
		exporter := &blockedExporter{taken, make(chan struct{}), test.err}
		q := newSpanQueue(exporter, most, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
		for range all {
			_, span := provider.Tracer("t").Start(t.Context(), "s")
			span.End()
		}
		_, unsampled := provider.Tracer("t").Start(trace.ContextWithRemoteSpanContext(t.Context(),
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})), "s")
		unsampled.End()
		close(exporter.open)
		if err := provider.ForceFlush(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := []float64{counterValue(t, q.exported), counterValue(t, q.dropped.WithLabelValues("queue")),
			counterValue(t, q.dropped.WithLabelValues("export"))}
		if got[0] != test.exported || got[1] != test.queue || got[2] != test.failed || q.waiting.Load() != 0 {
			t.Errorf("%s: exported, dropped by the queue and by the export: %v; %d wait", name, got, q.waiting.Load())
		}
	}
}

// A log line about a traced request has the ID of the trace.
func TestTracedLog(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	log := slog.New(contextLog{slog.NewJSONHandler(&text, nil)}).With("node", 1)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}})
	log.InfoContext(trace.ContextWithSpanContext(t.Context(), sc), "traced")
	log.Info("plain")
	traced, plain, _ := strings.Cut(text.String(), "\n")
	if !strings.Contains(traced,
		`"node":1,"trace_id":"ab000000000000000000000000000000","span_id":"cd00000000000000"`) ||
		strings.Contains(plain, "trace_id") {
		t.Error(text.String())
	}
}
