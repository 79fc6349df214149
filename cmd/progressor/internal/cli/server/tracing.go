package server

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

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/internal/requestid"
	"github.com/progressor-engine/progressor/internal/tracing"
)

const (
	// maxSpans is the maximum number of spans that wait for their export, each of about 1 KiB.
	// Further spans are dropped and counted.
	maxSpans = 8192
	// lastExport is the time limit of the last export when the node stops.
	lastExport = 3 * time.Second
)

type tracingFlags struct {
	Endpoint string  `placeholder:"URL" setting:"" help:"Export OpenTelemetry traces with OTLP to this collector, such as http://127.0.0.1:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT; without it, tracing is off."`
	Protocol string  `default:"auto" enum:"auto,http,grpc" placeholder:"PROTOCOL" setting:"" help:"Protocol: http (OTLP over HTTP, usually port 4318), grpc (4317), or auto, which uses OTEL_EXPORTER_OTLP_PROTOCOL, or http if it is not set. Default: ${default}."`
	Ratio    float64 `default:"1" placeholder:"RATIO" setting:"" help:"Fraction of the requests without a trace context for which the engine starts a trace, 0 to 1. For other requests, the caller decides. Default: ${default}."`
}

func (f tracingFlags) check() error {
	if !(f.Ratio >= 0 && f.Ratio <= 1) { // also rejects NaN
		return errors.New("--tracing.ratio: must be a number from 0 to 1")
	}
	if f.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(f.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("--tracing.endpoint: must be the URL of a collector, such as http://127.0.0.1:4318")
	case u.User != nil:
		return errors.New("--tracing.endpoint: must not contain a user or a password: set an " +
			"Authorization header in OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("--tracing.endpoint: must not contain a query or a fragment")
	}
	return nil
}

// areEnabled reports whether the settings enable traces.
func (f tracingFlags) areEnabled(getenv func(string) (string, bool)) bool {
	env := func(name string) string { v, _ := getenv(name); return v }
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(f.Endpoint, env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// grpc reports whether the collector uses gRPC.
func (f tracingFlags) grpc(getenv func(string) (string, bool)) bool {
	if f.Protocol != "auto" {
		return f.Protocol == "grpc"
	}
	traces, _ := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	all, _ := getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	return cmp.Or(traces, all) == "grpc"
}

// exporter returns an exporter that sends spans to the collector. It connects when it sends the
// first spans. OpenTelemetry reads other settings from OTEL_EXPORTER_OTLP_….
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

// traces exports the spans of this node to the collector.
type traces struct {
	trace.TracerProvider
	stop func(context.Context)
}

// open creates the tracer. It returns nil if traces are disabled. node is the address of this node.
func (f tracingFlags) open(
	ctx context.Context, getenv func(string) (string, bool), node string, log *slog.Logger,
	registry prometheus.Registerer,
) (*traces, error) {
	if !f.areEnabled(getenv) {
		return nil, nil
	}
	exporter, err := f.exporter(ctx, getenv)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "progressor"), attribute.String("service.version", cli.BuildVersion()),
		attribute.String("service.instance.id", node),
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
	log.Info("exporting traces", "endpoint", cmp.Or(f.Endpoint, "from the environment"), "ratio", f.Ratio)
	return &traces{provider, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastExport)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("cannot export the last spans", "error", err)
		}
	}}, nil
}

// spanQueue passes spans to the batch processor of the SDK. It counts dropped spans, because the
// SDK drops spans silently. It never blocks.
type spanQueue struct {
	sdktrace.SpanProcessor // the batch processor, with room for max spans
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
		exported: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "progressor_trace_spans_exported_total",
				Help: "Spans that the collector has accepted."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_trace_spans_dropped_total",
			Help: "Spans dropped because too many waited (queue) or the collector did not accept them (export).",
		}, []string{"reason"}),
	}
	registry.MustRegister(q.exported, q.dropped)
	for _, reason := range []string{"queue", "export"} {
		q.dropped.WithLabelValues(reason)
	}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(countingExporter{q}, sdktrace.WithMaxQueueSize(most))
	return q
}

// OnEnd queues a span, or drops it.
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

// countingExporter exports the spans of a queue and counts them.
type countingExporter struct{ *spanQueue }

// ExportSpans exports a batch. It logs an error once until exports succeed again. It does not
// return the error, because the SDK would log every error.
func (c countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer c.waiting.Add(-int64(len(spans)))
	if err := c.next.ExportSpans(ctx, spans); err != nil {
		c.dropped.WithLabelValues("export").Add(float64(len(spans)))
		if c.failing.CompareAndSwap(false, true) {
			c.log.Warn("cannot export spans to the collector: dropping them", "spans", len(spans), "error", err)
		}
		return nil
	}
	c.exported.Add(float64(len(spans)))
	if c.failing.CompareAndSwap(true, false) {
		c.log.Info("the collector accepts spans again")
	}
	return nil
}

// Shutdown stops the exporter.
func (c countingExporter) Shutdown(ctx context.Context) error { return c.next.Shutdown(ctx) }

// contextLog adds the IDs of a request and of a trace to log lines about them.
type contextLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (h contextLog) Handle(ctx context.Context, r slog.Record) error {
	if id := requestid.Of(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h contextLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextLog{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h contextLog) WithGroup(name string) slog.Handler { return contextLog{h.Handler.WithGroup(name)} }
