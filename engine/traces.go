package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// traces makes a span for each attempt of a task that a traced request asked for, also when it runs on another node or much later: the request's
// span is kept in the task's context. nil: tracing is off, and nothing of this happens.
type traces struct{ tracer trace.Tracer }

func newTraces(p trace.TracerProvider) *traces {
	if p == nil {
		return nil
	}
	return &traces{p.Tracer(tracing.Scope)}
}

// keep is the context that is stored with a request: what the caller sent along, as it is, else the span of the request. Of the engine's own
// processes nothing is kept, but of runs: the timers of a cron go on for years, and a bulk calls a million processes.
func (t *traces) keep(ctx context.Context, processID string, sent []byte) []byte {
	if t == nil || len(sent) > 0 || process.Own(processID) && !strings.HasPrefix(processID, process.FlowPrefix) {
		return sent
	}
	return tracing.Text(trace.SpanContextFromContext(ctx))
}

// asked is the span of a request whose task runs at once, where what is stored does not tell: a caller has sent a context of its own, or orders
// a cron something. nil: there is none.
func (t *traces) asked(ctx context.Context, processID string, kept []byte) *trace.SpanContext {
	if t == nil || tracing.OfText(kept).IsValid() || len(kept) == 0 && !strings.HasPrefix(processID, process.CronPrefix) {
		return nil
	}
	sc := trace.SpanContextFromContext(ctx)
	return &sc
}

// of is a context for what the log says of an attempt: with its trace, so that the line can be found by it.
func (t *traces) of(c *storage.Claim) context.Context {
	if t == nil {
		return context.Background()
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), tracing.OfText(c.Context))
}

// tracedAttempt is what the span of an attempt is made of.
type tracedAttempt struct {
	claim  *storage.Claim
	parent trace.SpanContext
	kind   trace.SpanKind
	began  time.Time // zero: now
	worker string
}

// begin begins the span of an attempt on this node and puts it into ctx; nil: there is none. asked: see there.
func (t *traces) begin(ctx context.Context, ns *namespace, c *storage.Claim, asked *trace.SpanContext) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	a := tracedAttempt{claim: c, parent: tracing.OfText(c.Context), kind: trace.SpanKindInternal}
	if !a.parent.IsValid() && asked != nil {
		a.parent = *asked
	}
	if ns.pushed && (c.Kind == "" || c.Kind == storage.JobKind) { // the others have processors of their own
		a.kind = trace.SpanKindClient
	}
	fires := c.Kind == cronKind && c.TaskType == process.TaskTimeout // nobody asks for that: it begins a trace, as a request does
	if !a.parent.IsValid() && !fires {
		return ctx, nil
	}
	span := t.span(a)
	if fires && !span.SpanContext().IsSampled() {
		return ctx, nil
	}
	return trace.ContextWithSpan(ctx, span), span
}

// span makes a span of an attempt, as a child under the id that everybody knows for it.
func (t *traces) span(a tracedAttempt) trace.Span {
	c := a.claim
	attributes := []attribute.KeyValue{
		attribute.String("progressor.namespace", c.Namespace), attribute.String("progressor.process_id", c.ProcessID), attribute.Int64("progressor.task_id", c.TaskID),
		attribute.String("progressor.task_type", string(c.TaskType)), attribute.Int64("progressor.attempt", int64(c.Attempt)),
	}
	name := "task " + string(c.TaskType)
	if job, err := storage.JobOf(c.Job); err == nil && job != nil {
		name = "job " + job.Name
		attributes = append(attributes, attribute.String("progressor.job_name", job.Name))
	}
	if a.worker != "" {
		attributes = append(attributes, attribute.String("progressor.worker_id", a.worker))
	}
	ctx := context.Background()
	if a.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, a.parent)
		ctx = tracing.WithSpanID(ctx, tracing.AttemptID(a.parent.TraceID(), c.Namespace, c.ProcessID, c.FencingToken))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(a.kind), trace.WithAttributes(attributes...)}
	if !a.began.IsZero() {
		options = append(options, trace.WithTimestamp(a.began))
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return span
}

// handOut is traceparent and tracestate of the attempt that a worker is to make; "": it is not traced.
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

// slim is what is remembered of the context of a lease.
func (t *traces) slim(context []byte) []byte {
	if t == nil || !tracing.OfText(context).IsValid() {
		return nil
	}
	return context
}

// leased is the span of a lease whose end is about to be stored, by whichever node.
func (t *traces) leased(l *storage.Lease) trace.Span {
	if t == nil {
		return nil
	}
	parent := tracing.OfText(l.Claim.Context)
	if !parent.IsValid() {
		return nil
	}
	return t.span(tracedAttempt{claim: &l.Claim, parent: parent, kind: trace.SpanKindProducer, began: l.Claim.RunningTime, worker: l.WorkerID})
}

// lost makes the span of an attempt whose node or worker is gone. Without it, what its processor has told would hang in the air.
func (t *traces) lost(z *storage.Zombie, d *decision, now time.Time) {
	if t == nil || !tracing.OfText(z.Context).IsValid() {
		return
	}
	c := &storage.Claim{
		Namespace: z.Namespace, ProcessID: z.ProcessID, TaskID: z.TaskID, TaskType: z.TaskType, Attempt: z.Attempt, FencingToken: z.FencingToken, Job: z.Job,
	}
	a := tracedAttempt{claim: c, parent: tracing.OfText(z.Context), kind: trace.SpanKindInternal, began: z.RunningTime, worker: z.WorkerID}
	endSpan(t.span(a), d, now, nil)
}

// sendAlong has what a result says to other processes go on with the trace of the attempt. Flows say themselves where their steps belong.
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

// endSpan ends the span of an attempt with what became of it, at the time by the database's clock if the span began by it (else zero).
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

// outcomeName is what became of an attempt.
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
