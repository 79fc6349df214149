package process

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestStart(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "start", "demo", "--args", `{"item": "book"}`)
	clitest.WantLines(t, out, "process   demo/p-1", "task      1", `response  {"item":"book"}`)
	clitest.WantRequest(t, f.Last,
		&progressorv1.StartRequest{Namespace: "demo", Args: []byte(`{"item": "book"}`),
			Wait: progressorv1.Wait_WAIT_COMPLETED})

	p.OK(t, "start", "demo", "o-1", "--accepted", "--wait-timeout", "5s", "--limit", "0", "--backward",
		"--priority", "-3", "--start-time", "2030-01-02T03:04:05Z", "--context", "c", "-k", "key-1")
	limit := int32(0)
	clitest.WantRequest(t, f.Last, &progressorv1.StartRequest{
		Namespace: "demo", ProcessId: "o-1", Wait: progressorv1.Wait_WAIT_ACCEPTED,
		Timeout:   durationpb.New(5 * time.Second),
		Range:     &progressorv1.HistoryRange{Limit: &limit, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD},
		StartTime: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), Context: []byte("c"), Priority: -3,
	})
	if got := f.Last.(*progressorv1.StartRequest).GetIdempotencyKey(); got != "key-1" {
		t.Errorf("idempotency key = %q", got)
	}
}

func TestArgs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args")
	if err := os.WriteFile(file, []byte("of a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--args", "text"}, "text"},
		{[]string{"--args", "@" + file}, "of a file"},
		{[]string{"--args", "@-"}, "of\x00stdin"},
		{[]string{"--args", "@@at"}, "@at"},
		{[]string{"--args", "-5"}, "-5"},
		{[]string{"--args", ""}, ""},
		{[]string{"--args-base64", "AAEC"}, "\x00\x01\x02"},
	}
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	p.Stdin = "of\x00stdin"
	for _, tt := range tests {
		p.OK(t, append([]string{"call", "demo", "o-1"}, tt.args...)...)
		if got := string(f.Last.(*progressorv1.CallRequest).GetArgs()); got != tt.want {
			t.Errorf("%q: args = %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, args := range [][]string{
		{"--args", "a", "--args-base64", "AA=="}, {"--args-base64", "!"}, {"--args", "@/does/not/exist"},
	} {
		if r := p.Run(t, append([]string{"call", "demo", "o-1"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: code %d, want %d: %s", args, r.Code, cli.ExitUsage, r.Stderr)
		}
	}
}

func TestOutputForPrograms(t *testing.T) {
	p := clitest.Serve(t, newCommands, &clitest.Engine{})
	out := p.OK(t, "call", "demo", "o-1", "--args-base64", "AAEC", "-o", "json")
	if out != "{\n  \"taskId\": \"2\",\n  \"response\": \"AAEC\"\n}\n" {
		t.Errorf("output = %s", out)
	}
	p.Env["PROGRESSOR_OUTPUT"] = "json"
	if out := p.OK(t, "repair", "demo", "o-1", "--simple"); out != "{\n  \"taskId\": \"3\"\n}\n" {
		t.Errorf("output = %s", out)
	}
	clitest.WantLines(t, p.OK(t, "repair", "demo", "o-1", "--simple", "-o", "table"), "task     3")
}

func order() *progressorv1.Process {
	at := timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	return &progressorv1.Process{
		Namespace: "demo", ProcessId: "o-1", Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
		Detail: "no book\nleft", CorruptedBy: 7, AuxState: []byte(`{"n": 1}`), LastEventId: 2, CreatedTime: at,
		History: []*progressorv1.Event{{EventId: 1, TaskId: 1, Timestamp: at, Payload: []byte("reserved")},
			{EventId: 2, TaskId: 2, Payload: []byte{0}}},
		Timers: []*progressorv1.Timer{{FireTime: at, Status: progressorv1.TaskStatus_TASK_STATUS_WAITING},
			{Name: "old", FireTime: at, Remove: true}},
	}
}

func TestGet(t *testing.T) {
	f := &clitest.Engine{Process: order()}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "get", "demo", "o-1", "--offset", "5", "--backward")
	clitest.WantLines(t, out, "status         ERROR", `detail         no book\nleft`, "corrupted by   task 7",
		`state          {"n":1}`,
		"(default)  2026-11-20T12:00:00.000Z  timeout  WAITING", "old        2026-11-20T12:00:00.000Z  remove",
		"1      1     2026-11-20T12:00:00.000Z  reserved", "base64:AA==")
	offset := int64(5)
	clitest.WantRequest(t, f.Last,
		&progressorv1.GetProcessRequest{Namespace: "demo", ProcessId: "o-1", Range: &progressorv1.HistoryRange{
			Offset: &offset, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD,
		}})
}

func TestGetThenPut(t *testing.T) {
	f := &clitest.Engine{Process: order()}
	p := clitest.Serve(t, newCommands, f)
	p.Stdin = p.OK(t, "get", "demo", "o-1", "-o", "json")
	p.OK(t, "put", "other", "o-2", "-f", "-", "--detail", "moved")
	want := order()
	for _, e := range want.GetHistory() {
		e.TaskId = 0
	}
	want.Timers[0].Status = 0
	clitest.WantRequest(t, f.Last, &progressorv1.PutProcessRequest{
		Namespace: "other", ProcessId: "o-2", Status: want.GetStatus(), Detail: "moved", AuxState: want.GetAuxState(),
		History: want.GetHistory(), Timers: want.GetTimers(),
	})
	p.OK(t, "put", "demo", "o-3", "--event", "one, two", "--event", "three", "--aux-state", "s", "--metadata",
		`{"a":1}`)
	got := f.Last.(*progressorv1.PutProcessRequest)
	if len(got.GetHistory()) != 2 || string(got.GetHistory()[0].GetPayload()) != "one, two" ||
		got.GetHistory()[1].GetEventId() != 2 ||
		got.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING || got.GetMetadata().AsMap()["a"] != 1.0 {
		t.Errorf("request = %v", got)
	}
	p.Stdin = "status: running\nhistry: []\n"
	r := p.Run(t, "put", "demo", "o-4", "-f", "-")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "line 2: histry: unknown field") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
}

func TestList(t *testing.T) {
	f := &clitest.Engine{Pages: []*progressorv1.ListProcessesResponse{
		{Processes: []*progressorv1.Process{order()}, NextPageToken: "next"},
		{Processes: []*progressorv1.Process{{Namespace: "demo", ProcessId: "o-2"}}},
	}}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "list", "demo", "--status", "Error")
	clitest.WantLines(t, out, "PROCESS", "o-1", "more: --page-token next")
	if got := f.Last.(*progressorv1.ListProcessesRequest); got.GetFilter() != "status = ERROR" || !got.GetUsersOnly() {
		t.Errorf("request = %v", got)
	}
	for _, internal := range [][]string{
		{"--internal"}, {"--filter", "kind = cron"}, {`fingerprint = "a"`}, {`process_id = "~cron/*"`},
		{"--status=error", "process_id = '~flow/a'"},
	} {
		p.OK(t, append([]string{"list", "demo"}, internal...)...)
		if f.Last.(*progressorv1.ListProcessesRequest).GetUsersOnly() {
			t.Errorf("%q: internal processes are left out", internal)
		}
	}
	for args, want := range map[string]string{
		"kind = job": "kind = job", "kind = job --status error": "(status = ERROR) AND (kind = job)",
		"kind = job --filter=detail:*": "(kind = job) AND (detail:*)",
	} {
		filter, flag, found := strings.Cut(args, " --")
		line := []string{"list", "demo", filter}
		if found {
			line = append(line, strings.Fields("--"+flag)...)
		}
		p.OK(t, line...)
		if got := f.Last.(*progressorv1.ListProcessesRequest).GetFilter(); got != want {
			t.Errorf("%s: filter = %q, want %q", args, got, want)
		}
	}
	var all struct{ Processes []any }
	if err := json.Unmarshal([]byte(p.OK(t, "list", "demo", "--all", "-o", "json")), &all); err != nil ||
		len(all.Processes) != 2 {
		t.Errorf("%d processes, %v", len(all.Processes), err)
	}
	f.Pages[0] = &progressorv1.ListProcessesResponse{}
	if out := p.OK(t, "list", "demo"); out != "none\n" {
		t.Errorf("output = %q", out)
	}
	if r := p.Run(t, "list", "demo", "--status", "broken"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "use one of INIT, RUNNING") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
}

func TestTraceAndAwait(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	failed := &progressorv1.Task{
		TaskId: 7, Namespace: "demo", ProcessId: "o-1", Type: progressorv1.TaskType_TASK_TYPE_CALL, Attempt: 1,
		Status:      progressorv1.TaskStatus_TASK_STATUS_ERROR,
		Failure:     &progressorv1.Failure{Reason: "out_of_stock", Message: "no book"},
		RunningTime: timestamppb.New(at), FinishedTime: timestamppb.New(at.Add(1500 * time.Microsecond)),
		Events: []*progressorv1.Event{{EventId: 4}, {EventId: 5}},
	}
	f := &clitest.Engine{Tasks: []*progressorv1.Task{failed}}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "trace", "demo", "o-1"), "7     CALL  ERROR", "1.5ms",
		"failure out_of_stock: no book  4 5")

	r := p.Run(t, "await", "demo", "o-1", "--task", "7")
	if r.Code != cli.ExitTaskFailed || !strings.Contains(r.Stdout, "status         ERROR") ||
		r.Stderr != "progressor: task 7 failed: out_of_stock\n" {
		t.Errorf("%+v", r)
	}
	failed.Status, failed.Failure = progressorv1.TaskStatus_TASK_STATUS_WAITING, nil
	for _, timeout := range []string{"20ms", "1ns"} { // with 1ns, no response arrives in time
		r := p.Run(t, "await", "demo", "o-1", "-k", "key", "--wait-timeout", timeout)
		if r.Code != cli.ExitTimeout || !strings.Contains(r.Stdout, "status         WAITING") ||
			r.Stderr != "progressor: task 7 is WAITING after "+timeout+"; it continues\n" {
			t.Errorf("%+v", r)
		}
	}
	p.OK(t, "await", "demo", "o-1", "--task", "7", "--timeout", "0")
	for _, args := range [][]string{{}, {"--task", "1", "-k", "key"}} {
		if r := p.Run(t, append([]string{"await", "demo", "o-1"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
