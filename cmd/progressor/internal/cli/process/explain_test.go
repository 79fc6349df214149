package process

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestExplain(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // fixed: the output must not depend on the current time
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(noon.Add(time.Duration(s) * time.Second)) }
	resp := &progressorv1.ExplainProcessResponse{
		Process: order(), WaitsFor: progressorv1.WaitsFor_WAITS_FOR_OPERATOR, WaitsForDetail: "It broke.",
		Next: "Nothing.", Unblock: "A repair.",
		Spans: []*progressorv1.Span{
			{What: "processing", TaskId: 1, FromTime: at(0), ToTime: at(4), Detail: "INIT"},
			{What: "idle", FromTime: at(4), ToTime: at(8)},
			{What: "operator", FromTime: at(8), Detail: "ERROR"},
		},
		TimeByWhat: map[string]*durationpb.Duration{
			"processing": durationpb.New(4 * time.Second), "idle": durationpb.New(4 * time.Second),
			"operator": durationpb.New(8 * time.Second),
		},
	}
	f := &clitest.Engine{Insight: resp}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "explain", "demo", "o-1")
	clitest.WantLines(t, out, "waits for  operator", "now        It broke.", "next       Nothing.",
		"unblock    A repair.", "time       operator 8s, idle 4s, processing 4s",
		"2026-11-20T12:00:00.000Z  4s   processing  1     ████████                          INIT",
		"2026-11-20T12:00:04.000Z  4s   idle                      ········",
		"2026-11-20T12:00:08.000Z  8s…  operator                          ░░░░░░░░░░░░░░░░  ERROR")
	clitest.WantRequest(t, f.Last, &progressorv1.ExplainProcessRequest{Namespace: "demo", ProcessId: "o-1"})
	if text := p.OK(t, "explain", "demo", "o-1", "-o", "json"); !json.Valid([]byte(text)) {
		t.Errorf("not JSON: %s", text)
	}
	resp.Spans, resp.TimeByWhat = nil, nil
	for n := range 30 {
		resp.Spans = append(resp.Spans,
			&progressorv1.Span{What: "processing", TaskId: int64(n + 1), FromTime: at(n), ToTime: at(n),
				Detail: fmt.Sprint("call ", n+1, ".")})
	}
	out = p.OK(t, "explain", "demo", "o-1")
	if strings.Contains(out, "call 10.") || !strings.Contains(out, "call 11.") ||
		!strings.Contains(out, "without the first 10 spans") {
		t.Errorf("want only the newest 20 spans:\n%s", out)
	}
	clitest.WantLines(t, p.OK(t, "explain", "demo", "o-1", "--all"), "call 1.")
}

// Explain sink shows the state and the sentences of the engine. For a process in a namespace named
// sink, use explain process.
func TestExplainSink(t *testing.T) {
	f := &clitest.Engine{Insight: &progressorv1.ExplainSinkResponse{
		Sink: &progressorv1.Sink{Namespace: "shop", SinkId: "audit", Status: &progressorv1.SinkStatus{
			State:      progressorv1.SinkState_SINK_STATE_FAILING,
			LagChanges: 1234, Lag: durationpb.New(90 * time.Second),
		}},
		Detail: "It broke.", Next: "Another try.", Unblock: "To resume it, run progressor sink resume shop audit.",
	}}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "explain", "sink", "shop", "audit"), "sink     shop/audit", "state    failing",
		"lag      1,234 changes, the oldest 1m30s old", "now      It broke.", "next     Another try.",
		"unblock  To resume it, run progressor sink resume shop audit.")
	clitest.WantRequest(t, f.Last, &progressorv1.ExplainSinkRequest{Namespace: "shop", SinkId: "audit"})
	if text := p.OK(t, "explain", "sink", "shop", "audit", "-o", "json"); !json.Valid([]byte(text)) {
		t.Errorf("not JSON: %s", text)
	}
	f.Insight = &progressorv1.ExplainProcessResponse{Process: order()}
	p.OK(t, "explain", "process", "sink", "o-1")
	clitest.WantRequest(t, f.Last, &progressorv1.ExplainProcessRequest{Namespace: "sink", ProcessId: "o-1"})
}
