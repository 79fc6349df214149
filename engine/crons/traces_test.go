package crons_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each fire starts a trace, which includes its run. A fire that TriggerCron starts belongs to the
// trace of that request. A request to an HTTP target has the trace context of the run in its
// headers.
func TestTraceOfAFire(t *testing.T) {
	t.Parallel()
	s := enginetest.NewSpans(1)
	requested := make(chan trace.SpanContext, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested <- trace.SpanContextFromContext(tracing.Extract(context.Background(), r.Header))
	}))
	t.Cleanup(server.Close)
	n := enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds,
		enginetest.Config(func(c *engine.Config) { c.Traces = s }))
	crons := &node{Node: n, Crons: n.Crons}
	createCtx, creator := s.Begin(context.Background(), "creator")
	if _, err := n.Crons.Create(createCtx, &progressorv1.CreateCronRequest{
		Cron: starts("process", "* * * * * *", "complete"),
	}, kim); err != nil {
		t.Fatal(err)
	}
	fire := s.Await(t, testTimeout, "task TIMEOUT", 1)[0]
	if fire.Parent().IsValid() || fire.SpanContext().TraceID() == creator.SpanContext().TraceID() {
		t.Error("a fire is in the trace of the request that created its cron")
	}
	enginetest.Eventually(t, testTimeout, "a run in the trace of a fire", func() bool {
		for _, run := range s.Named("task INIT") {
			for _, fire := range s.Named("task TIMEOUT") {
				if run.Parent().SpanID() == fire.SpanContext().SpanID() &&
					run.SpanContext().TraceID() == fire.SpanContext().TraceID() {
					return true
				}
			}
		}
		return false
	})
	crons.create(t, &progressorv1.Cron{
		Namespace: "ns", CronId: "http", Spec: &progressorv1.CronSpec{Expressions: []string{never}},
		Policy: &progressorv1.CronPolicy{},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{Url: server.URL}},
		},
	})
	triggerCtx, operator := s.Begin(context.Background(), "operator")
	if _, err := n.Crons.Trigger(triggerCtx, &progressorv1.TriggerCronRequest{
		Namespace: "ns", CronId: "http",
	}, kim); err != nil {
		t.Fatal(err)
	}
	sc := <-requested
	if sc.TraceID() != operator.SpanContext().TraceID() || sc.SpanID() == operator.SpanContext().SpanID() {
		t.Errorf("the HTTP request is in the trace %s, want a new span in the trace %s", sc.TraceID(),
			operator.SpanContext().TraceID())
	}
}
