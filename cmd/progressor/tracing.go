package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/tracing"
)

const (
	// maxSpans is how many spans wait for their export, at about 1 KiB each; what comes beyond is dropped and counted.
	maxSpans = 8192
	// lastExport bounds what a node that stops waits for its collector.
	lastExport = 3 * time.Second
)

type tracingFlags struct {
	Endpoint string  `placeholder:"URL" setting:"" help:"Send OpenTelemetry traces by OTLP to this collector, such as http://127.0.0.1:4318. Default: what OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere: tracing is off."`
	Protocol string  `default:"auto" enum:"auto,http,grpc" placeholder:"PROTOCOL" setting:"" help:"http (OTLP over HTTP, port 4318 by custom), grpc (4317), or auto: what OTEL_EXPORTER_OTLP_PROTOCOL says, else http. Default: ${default}."`
	Ratio    float64 `default:"1" placeholder:"RATIO" setting:"" help:"Part of the requests without a trace of their own that begin one, 0 to 1; a request that has one is recorded as its caller has decided. Default: ${default}."`
}

func (f tracingFlags) check() error {
	if !(f.Ratio >= 0 && f.Ratio <= 1) { // NaN is neither
		return errors.New("--tracing.ratio: want a number from 0 to 1")
	}
	if f.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(f.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("--tracing.endpoint: want the URL of a collector, such as http://127.0.0.1:4318")
	case u.User != nil:
		return errors.New("--tracing.endpoint: must not hold a user or a password: OTEL_EXPORTER_OTLP_HEADERS takes a header Authorization")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("--tracing.endpoint: must not hold a query or a fragment")
	}
	return nil
}

// asked tells whether anybody wants traces.
func (f tracingFlags) asked(getenv func(string) (string, bool)) bool {
	env := func(name string) string { v, _ := getenv(name); return v }
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(f.Endpoint, env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// grpc tells which of the two the collector speaks.
func (f tracingFlags) grpc(getenv func(string) (string, bool)) bool {
	if f.Protocol != "auto" {
		return f.Protocol == "grpc"
	}
	traces, _ := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	all, _ := getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	return cmp.Or(traces, all) == "grpc"
}

// exporter sends spans to the collector. It connects with the first ones. What the flags do not say OpenTelemetry reads from OTEL_EXPORTER_OTLP_….
func (f tracingFlags) exporter(ctx context.Context, getenv func(string) (string, bool)) (sdktrace.SpanExporter, error) {
	if f.grpc(getenv) {
		var options []otlptracegrpc.Option
		if f.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(f.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	}
	var options []otlptracehttp.Option
	if f.Endpoint != "" {
		target := f.Endpoint
		if u, err := url.Parse(target); err == nil && strings.Trim(u.Path, "/") == "" {
			target = u.JoinPath("/v1/traces").String()
		}
		options = append(options, otlptracehttp.WithEndpointURL(target))
	}
	return otlptracehttp.New(ctx, options...)
}

// traces are the spans of this node on their way to the collector.
type traces struct {
	trace.TracerProvider
	stop func(context.Context)
}

// open makes what spans are made by; nil: nobody wants any. node is how this one is called.
func (f tracingFlags) open(ctx context.Context, getenv func(string) (string, bool), node string, log *slog.Logger, registry prometheus.Registerer) (*traces, error) {
	if !f.asked(getenv) {
		return nil, nil //nolint:nilnil // off, and no error
	}
	exporter, err := f.exporter(ctx, getenv)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "progressor"), attribute.String("service.version", buildVersion()), attribute.String("service.instance.id", node),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(about), sdktrace.WithIDGenerator(tracing.IDs{}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(f.Ratio))),
		sdktrace.WithSpanProcessor(newSpanQueue(exporter, maxSpans, log, registry)),
	)
	log.Info("traces are sent to a collector", "endpoint", cmp.Or(f.Endpoint, "by OTEL_EXPORTER_OTLP_ENDPOINT"), "ratio", f.Ratio)
	return &traces{provider, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastExport)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", "error", err)
		}
	}}, nil
}

// spanQueue stands before the batches of the SDK and counts: the SDK drops what it has no room for without a word. It never waits.
type spanQueue struct {
	sdktrace.SpanProcessor // the batches; there is room for max
	next                   sdktrace.SpanExporter
	max                    int64
	waiting                atomic.Int64
	failing                atomic.Bool
	log                    *slog.Logger
	exported               prometheus.Counter
	dropped                *prometheus.CounterVec
}

func newSpanQueue(next sdktrace.SpanExporter, most int, log *slog.Logger, registry prometheus.Registerer) *spanQueue {
	q := &spanQueue{
		next: next, max: int64(most), log: log,
		exported: prometheus.NewCounter(prometheus.CounterOpts{Name: "progressor_trace_spans_exported_total", Help: "Spans that the collector has taken."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_trace_spans_dropped_total", Help: "Spans that were dropped: queue (too many waited for their export), export (the collector did not take them).",
		}, []string{"reason"}),
	}
	registry.MustRegister(q.exported, q.dropped)
	for _, reason := range []string{"queue", "export"} {
		q.dropped.WithLabelValues(reason)
	}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(counting{q}, sdktrace.WithMaxQueueSize(most))
	return q
}

// OnEnd takes a span, or drops it.
func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.max {
		q.waiting.Add(-1)
		q.dropped.WithLabelValues("queue").Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// counting is the exporter of a queue.
type counting struct{ *spanQueue }

// ExportSpans sends a batch. Its error is told here, once until it goes well again, and not to the SDK, which would tell it each time.
func (c counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer c.waiting.Add(-int64(len(spans)))
	if err := c.next.ExportSpans(ctx, spans); err != nil {
		c.dropped.WithLabelValues("export").Add(float64(len(spans)))
		if c.failing.CompareAndSwap(false, true) {
			c.log.Warn("spans not sent to the collector: they are dropped and counted", "spans", len(spans), "error", err)
		}
		return nil
	}
	c.exported.Add(float64(len(spans)))
	if c.failing.CompareAndSwap(true, false) {
		c.log.Info("the collector takes spans again")
	}
	return nil
}

// Shutdown ends the exporter.
func (c counting) Shutdown(ctx context.Context) error { return c.next.Shutdown(ctx) }

// tracedLog adds the ids of a trace to the lines that are about it.
type tracedLog struct{ slog.Handler }

// Handle writes a line.
func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the ids.
func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the ids.
func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.Handler.WithGroup(name)} }
