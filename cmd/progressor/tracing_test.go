package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// collector is a fake collector that receives spans by OTLP over HTTP.
type collector struct {
	url string

	mu       sync.Mutex
	paths    map[string]bool
	spans    []*tracepb.Span
	services map[string]bool
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{paths: map[string]bool{}, services: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := r.Body, error(nil)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(r.Body)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(body)
	}
	request := &coltracepb.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(text, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[r.URL.Path] = true
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.services[a.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named returns the span with a name, or nil if it has not arrived.
func (c *collector) named(name string) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// serve sends spans to a collector, including the last ones when it stops, and counts them. Its log
// lines have the ID of their trace.
func TestServeTraces(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	d := background(t, nil, "serve", "--db.dsn", storagetest.DSN(t), "--listen", "127.0.0.1:0", "--tracing.endpoint", c.url)
	d.client.ok(t, "namespace", "put", "shop", "--builtin", "echo")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/progressor.v1.ProcessService/Start",
		strings.NewReader(`{"namespace":"shop","processId":"o-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || resp.Body.Close() != nil {
		t.Fatalf("%d: %s", resp.StatusCode, body)
	}
	d.stop(t)
	start, task := c.named("progressor.v1.ProcessService/Start"), c.named("task INIT")
	if start == nil || task == nil {
		t.Fatalf("the collector has got %v", c.spans)
	}
	if got := fmt.Sprintf("%x %x", start.GetTraceId(), start.GetParentSpanId()); got != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
		t.Errorf("the request is in %s", got)
	}
	if string(task.GetParentSpanId()) != string(start.GetSpanId()) || string(task.GetTraceId()) != string(start.GetTraceId()) {
		t.Errorf("the task is a child of %x, not of %x", task.GetParentSpanId(), start.GetSpanId())
	}
	if !c.paths["/v1/traces"] || len(c.paths) != 1 || !c.services["progressor"] {
		t.Errorf("%v, %v", c.paths, c.services)
	}
}

// A collector that is down, or rejects spans, delays nothing.
func TestServeWithoutItsCollector(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	d := background(t, nil, "serve", "--db.dsn", storagetest.DSN(t), "--listen", "127.0.0.1:0", "--tracing.endpoint", away.URL)
	d.client.ok(t, "namespace", "put", "e", "--builtin", "echo")
	wantLines(t, d.client.ok(t, "start", "e", "p", "--args", "hello"), "response hello")
	if _, body := fetch(t, d.url+"/metrics"); !strings.Contains(body, `progressor_trace_spans_dropped_total{reason="export"}`) {
		t.Error("dropped spans are not counted")
	}
	d.stop(t)
}

func TestTracingFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags tracingFlags
		says  string
	}{
		"good":     {tracingFlags{Endpoint: "https://otel.example/v1/traces", Ratio: 0.1}, ""},
		"ratio":    {tracingFlags{Ratio: 1.5}, "--tracing.ratio: must be a number from 0 to 1"},
		"no url":   {tracingFlags{Endpoint: "jaeger:4318"}, "--tracing.endpoint: must be the URL of a collector"},
		"password": {tracingFlags{Endpoint: "http://me:s3cret@h:4318"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		"query":    {tracingFlags{Endpoint: "http://h:4318/?key=s3cret"}, "--tracing.endpoint: must not contain a query"},
	} {
		err := test.flags.check()
		if text := fmt.Sprint(err); (err == nil) != (test.says == "") || !strings.Contains(text, test.says) && err != nil || strings.Contains(text, "s3cret") {
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
		if got := (tracingFlags{}).asked(getenv); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
}

// stuck is a collector that accepts nothing until it is released.
type stuck struct {
	sdktrace.SpanExporter
	open chan struct{}
	err  error
}

func (s *stuck) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
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
		exporter := &stuck{taken, make(chan struct{}), test.err}
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
		got := []float64{counterValue(t, q.exported), counterValue(t, q.dropped.WithLabelValues("queue")), counterValue(t, q.dropped.WithLabelValues("export"))}
		if got[0] != test.exported || got[1] != test.queue || got[2] != test.failed || q.waiting.Load() != 0 {
			t.Errorf("%s: exported, dropped by the queue and by the export: %v; %d wait", name, got, q.waiting.Load())
		}
	}
}

// A log line about a traced request has the ID of the trace.
func TestTracedLog(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	log := slog.New(tracedLog{slog.NewJSONHandler(&text, nil)}).With("node", 1)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}})
	log.InfoContext(trace.ContextWithSpanContext(t.Context(), sc), "traced")
	log.Info("plain")
	traced, plain, _ := strings.Cut(text.String(), "\n")
	if !strings.Contains(traced, `"node":1,"trace_id":"ab000000000000000000000000000000","span_id":"cd00000000000000"`) || strings.Contains(plain, "trace_id") {
		t.Error(text.String())
	}
}
