package tracing

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{parent, parent + "\nvendor=value,other=1", strings.TrimSuffix(parent, "1") + "0"} {
		sc := OfText([]byte(text))
		if !sc.IsValid() || !sc.IsRemote() || string(Text(sc)) != text {
			t.Errorf("%q: %v, written as %q", text, sc, Text(sc))
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "json": `{"traceparent": "` + parent + `"}`, "longer": parent + "x", "shorter": parent[:54],
		"no hex":   strings.Replace(parent, "0af", "0ag", 1),
		"no trace": "00-00000000000000000000000000000000-b7ad6b7169203331-01", "no version": "ff" + parent[2:],
		"binary": strings.Repeat("\x00", 55), "dashes": strings.Repeat("-", 55),
		"a long state": parent + "\na=" + strings.Repeat("x", maxState),
	} {
		if sc := OfText([]byte(text)); sc.IsValid() {
			t.Errorf("%s: taken for a trace: %v", name, sc)
		}
	}
	if Text(trace.SpanContext{}) != nil {
		t.Error("an invalid span has a text")
	}
}

// A tracestate that exceeds the length that must be supported is dropped, but the trace is kept.
func TestLongState(t *testing.T) {
	t.Parallel()
	members := make([]string, 30)
	for n := range members {
		members[n] = "k" + strings.Repeat("x", n) + "=" + strings.Repeat("v", 30)
	}
	sc := OfValues(parent, strings.Join(members, ","))
	if sc.TraceState().Len() != len(members) {
		t.Fatalf("%d members were read", sc.TraceState().Len())
	}
	if text := string(Text(sc)); text != parent {
		t.Errorf("%q", text)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	header.Set("traceparent", parent)
	header.Set("tracestate", "a=1")
	ctx := Extract(t.Context(), header)
	if text := string(Text(trace.SpanContextFromContext(ctx))); text != parent+"\na=1" {
		t.Fatalf("%q", text)
	}
	configured := http.Header{"Traceparent": {"old"}, "Tracestate": {"old=1"}}
	Inject(trace.ContextWithRemoteSpanContext(t.Context(), OfText([]byte(parent))), configured)
	if configured.Get("traceparent") != parent || configured.Get("tracestate") != "" {
		t.Errorf("%v", configured)
	}
	untouched := http.Header{"Traceparent": {"old"}}
	if Inject(t.Context(), untouched); untouched.Get("traceparent") != "old" {
		t.Error("a request without a trace has lost the header that was configured")
	}
	own := trace.ContextWithRemoteSpanContext(t.Context(), OfText([]byte(strings.Replace(parent, "b7ad", "0000", 1))))
	if Extract(own, header) != own {
		t.Error("an existing span was replaced by the span of the header")
	}
	if ctx := t.Context(); Extract(ctx, http.Header{}) != ctx {
		t.Error("without a header, Extract returned a different context")
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	traceID, spanID := IDs{}.NewIDs(t.Context())
	if again, _ := (IDs{}).NewIDs(t.Context()); !traceID.IsValid() || !spanID.IsValid() || again == traceID {
		t.Errorf("%v %v", traceID, spanID)
	}
	id := AttemptID(traceID, "ns", "p", 7)
	for name, other := range map[string]trace.SpanID{
		"token": AttemptID(traceID, "ns", "p", 8), "process": AttemptID(traceID, "ns", "q", 7),
		"namespace": AttemptID(traceID, "n", "sp", 7), "trace": AttemptID(trace.TraceID{1}, "ns", "p", 7),
	} {
		if other == id || !other.IsValid() {
			t.Errorf("another %s has the id %v", name, other)
		}
	}
	if AttemptID(traceID, "ns", "p", 7) != id {
		t.Error("two nodes computed different IDs")
	}
	if got := (IDs{}).NewSpanID(WithSpanID(context.Background(), id), traceID); got != id {
		t.Errorf("%v, want %v", got, id)
	}
}
