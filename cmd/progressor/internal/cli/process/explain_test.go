package process

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
		"unblock    A repair.", "time spent  8s waiting for an operator, 4s idle, 4s running",
		"2026-11-20T12:00:00.000Z  4s   processing  1     ████████                          INIT",
		"2026-11-20T12:00:04.000Z  4s   idle                      ········",
		"2026-11-20T12:00:08.000Z  8s…  operator                          ░░░░░░░░░░░░░░░░  ERROR")
	clitest.WantRequest(t, f.Last, &progressorv1.ExplainProcessRequest{Namespace: "demo", ProcessId: "o-1"})
	if text := p.OK(t, "explain", "demo", "o-1", "-o", "json"); !json.Valid([]byte(text)) {
		t.Errorf("not JSON: %s", text)
	}
	resp.WaitsFor = progressorv1.WaitsFor_WAITS_FOR_PLACE
	clitest.WantLines(t, p.OK(t, "explain", "demo", "o-1"), "waits for   place")
	resp.Spans[2].What = "worker"
	resp.TimeByWhat = map[string]*durationpb.Duration{"worker": durationpb.New(8 * time.Second)}
	clitest.WantLines(t, p.OK(t, "explain", "demo", "o-1"), "waits for   worker", "time spent  8s waiting for a worker")
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

// On a terminal, explain shows the times in sentences like its other times, and its bars fit.
func TestExplainOnATerminal(t *testing.T) {
	noon := time.Date(2020, 11, 20, 12, 0, 0, 5e6, time.UTC)
	o := order()
	o.StatusChangedTime = timestamppb.New(noon)
	resp := &progressorv1.ExplainProcessResponse{
		Process: o, WaitsForDetail: "It has been COMPLETED since 2020-11-20T12:00:00.005Z.",
		Next:    "Step a ends at 2020-11-20T12:00:07.000Z (in 7s).",
		Unblock: "To run it again, run progressor cron rerun demo c 2020-11-20T12:00:00.000Z.",
		Spans: []*progressorv1.Span{
			{What: "processing", TaskId: 1, FromTime: timestamppb.New(noon),
				ToTime: timestamppb.New(noon.Add(time.Hour)),
				Detail: "INIT, which took a long time and has a long text"},
			{What: "idle", FromTime: timestamppb.New(noon.Add(time.Hour)),
				ToTime: timestamppb.New(noon.Add(2 * time.Hour))},
		},
		TimeByWhat: map[string]*durationpb.Duration{"time": durationpb.New(1500 * time.Millisecond)},
	}
	p := clitest.Serve(t, newCommands, &clitest.Engine{Insight: resp})
	p.Env["NO_COLOR"] = "1"
	p.Columns, p.Zone = 80, time.FixedZone("EST", -5*3600)
	out := p.OK(t, "explain", "demo", "o-1")
	clitest.WantLines(t, out, "since 2020-11-20 07:00:00\n", "It has been COMPLETED since 2020-11-20 07:00:00.",
		"ends at 2020-11-20 07:00:07 (in 7s).", "rerun demo c 2020-11-20T12:00:00.000Z.",
		"time spent 1.5s waiting for a timer or start time", "█████████ INIT", "·········\n")
	_, timeline, _ := strings.Cut(out, "timeline\n")
	for line := range strings.Lines(timeline) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	p.Columns = 0
	clitest.WantLines(t, p.OK(t, "explain", "demo", "o-1"), "since 2020-11-20T12:00:00.005Z.")
}

// On a narrow terminal, the filters of errors follow the table and are not cut.
func TestErrorsOnATerminal(t *testing.T) {
	const filter = `status = ERROR AND fingerprint = "753641173a8a4a31"`
	f := &clitest.Engine{Insight: &progressorv1.ListErrorsResponse{Groups: []*progressorv1.ErrorGroup{{
		Namespace: "demo", Reason: "broken_goods", Count: 2, Filter: filter,
		Message: "order A-2: the goods broke while they were packed",
	}}}}
	p := clitest.Serve(t, newCommands, f)
	p.Env["NO_COLOR"] = "1"
	for _, p.Columns = range []int{0, 80, 200} {
		out := p.OK(t, "errors", "demo")
		own := strings.Contains(out, "filter of each row\n2 processes")
		if !strings.Contains(out, filter) || own != (p.Columns == 80) {
			t.Errorf("%d columns:\n%s", p.Columns, out)
		}
	}
}

// On a narrow terminal, trace omits minor columns before it cuts args and outcomes.
func TestTraceOnATerminal(t *testing.T) {
	at := timestamppb.New(time.Date(2020, 11, 20, 12, 0, 0, 0, time.UTC))
	p := clitest.Serve(t, newCommands, &clitest.Engine{
		Tasks: []*progressorv1.Task{{TaskId: 1, Type: progressorv1.TaskType_TASK_TYPE_CALL, Attempt: 1,
			Status: progressorv1.TaskStatus_TASK_STATUS_FINISHED, ScheduledTime: at, RunningTime: at, FinishedTime: at,
			Args: []byte(`{"order":"B-1","pay":200}`), Response: []byte(`{"order":"B-1","paid":true,"left":0}`)}},
	})
	p.Env["NO_COLOR"] = "1"
	p.Columns, p.Zone = 80, time.UTC
	clitest.WantLines(t, p.OK(t, "trace", "demo", "o-1"), `{"order":"B-1","pay":20`, `{"order":"B-1","paid":tr`)
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
