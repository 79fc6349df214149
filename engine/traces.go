package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// traces creates a span for each attempt of a task whose request was traced, even if the task runs
// on another node or much later. The span context of the request is stored in the context of the
// task. A nil *traces means that tracing is off.
type traces struct {
	tracer trace.Tracer
	kinds  map[string]Kind
}

func newTraces(p trace.TracerProvider, kinds map[string]Kind) *traces {
	if p == nil {
		return nil
	}
	return &traces{p.Tracer(tracing.Scope), kinds}
}

// keep returns the context to store with a request. It is the context that the caller sent or, if
// process.KeepsTrace returns true, the span of the request.
func (t *traces) keep(ctx context.Context, processID string, sent []byte) []byte {
	if t == nil || len(sent) > 0 || !process.KeepsTrace(processID) {
		return sent
	}
	return tracing.Text(trace.SpanContextFromContext(ctx))
}

// asked returns the span of a request whose task runs immediately, if the stored context does not
// contain the span. This is the case if the caller sent a context of its own, or if
// process.StartsTraces returns true. Otherwise asked returns nil.
func (t *traces) asked(ctx context.Context, processID string, kept []byte) *trace.SpanContext {
	if t == nil || tracing.OfText(kept).IsValid() || len(kept) == 0 && !process.StartsTraces(processID) {
		return nil
	}
	sc := trace.SpanContextFromContext(ctx)
	return &sc
}

// of returns a context for logging about an attempt. It contains the trace of the attempt.
func (t *traces) of(c *storage.Claim) context.Context {
	if t == nil {
		return context.Background()
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), tracing.OfText(c.Context))
}

// tracedAttempt holds the properties of an attempt's span.
type tracedAttempt struct {
	claim  *storage.Claim
	parent trace.SpanContext
	kind   trace.SpanKind
	began  time.Time // zero means now
	worker string
	token  int64 // fencing token that the worker got; 0 means that of the claim
}

// begin starts the span of an attempt on this node and adds it to ctx. The span is nil if the
// attempt is not traced. asked is the result of traces.asked.
func (t *traces) begin(
	ctx context.Context, ns *namespace, c *storage.Claim, asked *trace.SpanContext,
) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	a := tracedAttempt{claim: c, parent: tracing.OfText(c.Context), kind: trace.SpanKindInternal}
	if !a.parent.IsValid() && asked != nil {
		a.parent = *asked
	}
	if k, known := t.kinds[c.Kind]; ns.connect != nil && (c.Kind == "" || known && k.Processor == nil) {
		a.kind = trace.SpanKindClient
	}
	// a timer has no request, so it starts a trace
	fires := process.StartsTraces(c.ProcessID) && c.TaskType == process.TaskTimeout
	if !a.parent.IsValid() && !fires {
		return ctx, nil
	}
	span := t.span(a)
	if fires && !span.SpanContext().IsSampled() {
		return ctx, nil
	}
	return trace.ContextWithSpan(ctx, span), span
}

// span creates the span of an attempt. Its ID is derived from the attempt, so that every node knows
// it.
func (t *traces) span(a tracedAttempt) trace.Span {
	c := a.claim
	attributes := []attribute.KeyValue{
		attribute.String("progressor.namespace", c.Namespace), attribute.String("progressor.process_id", c.ProcessID),
		attribute.Int64("progressor.task_id", c.TaskID),
		attribute.String("progressor.task_type", string(c.TaskType)),
		attribute.Int64("progressor.attempt", int64(c.Attempt)),
	}
	name := "task " + string(c.TaskType)
	if k := t.kinds[c.Kind]; k.Describe != nil {
		if own, _, ok := k.Describe(c); ok {
			name = c.Kind + " " + own
			attributes = append(attributes, attribute.String(k.nameKey, own))
		}
	}
	if a.worker != "" {
		attributes = append(attributes, attribute.String("progressor.worker_id", a.worker))
	}
	ctx := context.Background()
	if a.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, a.parent)
		token := cmp.Or(a.token, c.FencingToken)
		ctx = tracing.WithSpanID(ctx, tracing.AttemptID(a.parent.TraceID(), c.Namespace, c.ProcessID, token))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(a.kind), trace.WithAttributes(attributes...)}
	if !a.began.IsZero() {
		options = append(options, trace.WithTimestamp(a.began))
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return span
}

// handOut returns the traceparent and tracestate of an attempt for its worker, or "" if it is not
// traced.
func (t *traces) handOut(c *storage.Claim) (parent, state string) {
	if t == nil {
		return "", ""
	}
	sc := tracing.OfText(c.Context)
	if !sc.IsValid() {
		return "", ""
	}
	return tracing.Values(sc.WithSpanID(tracing.AttemptID(sc.TraceID(), c.Namespace, c.ProcessID, c.FencingToken)))
}

// leaseContext returns the part of the context that is cached with a lease.
func (t *traces) leaseContext(context []byte) []byte {
	if t == nil || !tracing.OfText(context).IsValid() {
		return nil
	}
	return context
}

// leased returns the span of a lease whose end is about to be stored. Any node may store it.
func (t *traces) leased(l *storage.Lease) trace.Span {
	if t == nil {
		return nil
	}
	parent := tracing.OfText(l.Claim.Context)
	if !parent.IsValid() {
		return nil
	}
	return t.span(tracedAttempt{
		claim: &l.Claim, parent: parent, kind: trace.SpanKindProducer, began: l.Claim.RunningTime, worker: l.WorkerID,
		token: l.WorkerToken,
	})
}

// lost creates the span of an attempt whose node or worker was lost. Without that span, the spans
// of its processor would have no parent.
func (t *traces) lost(z *storage.Zombie, d *decision, now time.Time) {
	if t == nil || !tracing.OfText(z.Context).IsValid() {
		return
	}
	a := tracedAttempt{
		claim: storage.ZombieClaim(z), parent: tracing.OfText(z.Context), kind: trace.SpanKindInternal,
		began: z.RunningTime, worker: z.WorkerID,
	}
	endSpan(t.span(a), d, now, nil)
}

// sendAlong adds the trace of the attempt to the messages of its result, unless they have a
// context.
func sendAlong(span trace.Span, messages []storage.Message) {
	if span == nil || len(messages) == 0 {
		return
	}
	text := tracing.Text(span.SpanContext())
	for n := range messages {
		if m := &messages[n]; m.Context == nil {
			m.Context = text
		}
	}
}

// endSpan ends the span of an attempt with its outcome. at is the database time if the span began
// with a database time, and otherwise zero.
func endSpan(span trace.Span, d *decision, at time.Time, err error) {
	if span == nil {
		return
	}
	defer func() { span.End(trace.WithTimestamp(at)) }()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("progressor.outcome", outcomeName(d, err)))
	switch {
	case err != nil && !errors.Is(err, process.ErrFenced):
		span.SetStatus(codes.Error, "the result was not stored")
	case d.failure != nil:
		span.SetAttributes(attribute.String("progressor.failure_reason", d.failure.GetReason()))
		span.SetStatus(codes.Error, d.failure.GetReason())
	case d.rejection != nil:
		span.SetAttributes(attribute.String("progressor.rejection_reason", d.rejection.GetReason()))
	}
}

// outcomeName returns the name of the outcome of an attempt.
func outcomeName(d *decision, err error) string {
	switch {
	case errors.Is(err, process.ErrFenced):
		return "fenced"
	case err != nil:
		return "not_stored"
	case d.completion.Uncounted:
		return "give_back"
	}
	return string(d.completion.Outcome)
}
