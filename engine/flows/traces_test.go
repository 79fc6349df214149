package flows_test

import (
	"context"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestTraceOfARun checks that the steps of a run, and those of its inner runs, are in the trace of
// the request that started the run, regardless of when they begin.
func TestTraceOfARun(t *testing.T) {
	t.Parallel()
	s := enginetest.NewSpans(1)
	n := start(t, storagetest.DSN(t), enginetest.Config(func(c *engine.Config) { c.Traces = s }))
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "deep", "job": {}}]}`)
	n.put(t, "ns", `{"type": "outer", "steps": [{"step_id": "first", "job": {}}, {"step_id": "second", "job": {}},
		{"step_id": "child", "process": {}}, {"step_id": "sub", "run": {"type": "inner"}}]}`)
	ctx, asking := s.Begin(context.Background(), "client")
	_, err := n.Start(ctx, &progressorv1.StartRunRequest{Namespace: "ns", Type: "outer", RunId: "r"}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.ended(t, "ns", "r")
	for name, want := range map[string]int{"job first": 1, "job second": 1, "job deep": 1, "task INIT": 3} {
		all := s.Await(t, testTimeout, name, want)
		if len(all) != want {
			t.Errorf("%d spans %s", len(all), name)
		}
		for _, span := range all {
			if span.SpanContext().TraceID() != asking.SpanContext().TraceID() {
				t.Errorf("%s of %s is in another trace", name, enginetest.Attribute(span, "progressor.process_id"))
			}
		}
	}
	n.run(t, "ns", "inner", "plain", "")
	n.ended(t, "ns", "plain")
	if k := len(s.Named("job deep")); k != 1 {
		t.Errorf("got %d spans of job deep, want 1: the untraced run must create none", k)
	}
}
