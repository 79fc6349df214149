package rpc

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/requestid"
	"github.com/progressor-engine/progressor/internal/tracing"
)

// traces creates spans for requests that a client traces, and for requests that start a trace. A
// nil *traces means that tracing is off.
type traces struct{ tracer trace.Tracer }

func newTraces(p trace.TracerProvider) *traces {
	if p == nil {
		return nil
	}
	return &traces{p.Tracer(tracing.Scope)}
}

// begin starts the span of a request, or returns nil if the request gets none. Reads and the
// requests of workers start no trace. They only continue one.
func (t *traces) begin(
	ctx context.Context, procedure, protocol string, header http.Header,
) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	asked := tracing.Extract(ctx, header)
	given := trace.SpanContextFromContext(asked).IsValid()
	if !given && (isRead(procedure) || strings.Contains(procedure, ".WorkerService/")) {
		return ctx, nil
	}
	name := strings.TrimPrefix(procedure, "/")
	service, method, _ := strings.Cut(name, "/")
	traced, span := t.tracer.Start(asked, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", protocol), attribute.String("rpc.service", service),
		attribute.String("rpc.method", method), attribute.String("progressor.request_id", requestid.Of(ctx))))
	if !given && !span.SpanContext().IsSampled() {
		return ctx, nil // tasks do not inherit a trace that is not recorded
	}
	return traced, span
}

// messageOf returns the message of a response, or nil.
func messageOf(r connect.AnyResponse) any {
	if r == nil {
		return nil
	}
	return r.Any()
}

// endSpan ends the span of a request. err is the error that the client gets.
func endSpan(span trace.Span, request any, response any, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	namespace, processID := scopeOf(request)
	if r, ok := response.(interface{ GetProcessId() string }); ok && processID == "" {
		processID = r.GetProcessId()
	}
	if r, ok := response.(interface{ GetTaskId() int64 }); ok && r.GetTaskId() != 0 {
		span.SetAttributes(attribute.Int64("progressor.task_id", r.GetTaskId()))
	}
	for key, value := range map[string]string{"progressor.namespace": namespace, "progressor.process_id": processID} {
		if value != "" {
			span.SetAttributes(attribute.String(key, value))
		}
	}
	if err == nil {
		return
	}
	code := connect.CodeOf(err)
	span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", code.String()))
	switch code {
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeUnavailable, connect.CodeDataLoss,
		connect.CodeDeadlineExceeded, connect.CodeUnimplemented:
		span.SetStatus(codes.Error, code.String()) // other codes are errors of the client
	}
}
