package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func wantRequest(t *testing.T, got any, want proto.Message) {
	t.Helper()
	ignoreKey := protocmp.IgnoreFields(&progressorv1.CallRequest{}, "idempotency_key")
	ignoreStartKey := protocmp.IgnoreFields(&progressorv1.StartRequest{}, "idempotency_key")
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignoreKey, ignoreStartKey); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestStart(t *testing.T) {
	f := &fakeEngine{}
	p := serveFake(t, f)
	out := p.ok(t, "start", "demo", "--args", `{"item": "book"}`)
	wantLines(t, out, "process   demo/p-1", "task      1", `response  {"item":"book"}`)
	wantRequest(t, f.last, &progressorv1.StartRequest{Namespace: "demo", Args: []byte(`{"item": "book"}`), Wait: progressorv1.Wait_WAIT_COMPLETED})

	p.ok(t, "start", "demo", "o-1", "--accepted", "--timeout", "5s", "--limit", "0", "--backward", "--priority", "-3",
		"--start-time", "2030-01-02T03:04:05Z", "--context", "c", "-k", "key-1")
	limit := int32(0)
	wantRequest(t, f.last, &progressorv1.StartRequest{
		Namespace: "demo", ProcessId: "o-1", Wait: progressorv1.Wait_WAIT_ACCEPTED, Timeout: durationpb.New(5 * time.Second),
		Range:     &progressorv1.HistoryRange{Limit: &limit, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD},
		StartTime: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), Context: []byte("c"), Priority: -3,
	})
	if got := f.last.(*progressorv1.StartRequest).GetIdempotencyKey(); got != "key-1" {
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
	f := &fakeEngine{}
	p := serveFake(t, f)
	p.stdin = "of\x00stdin"
	for _, tt := range tests {
		p.ok(t, append([]string{"call", "demo", "o-1"}, tt.args...)...)
		if got := string(f.last.(*progressorv1.CallRequest).GetArgs()); got != tt.want {
			t.Errorf("%q: args = %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, args := range [][]string{
		{"--args", "a", "--args-base64", "AA=="}, {"--args-base64", "!"}, {"--args", "@/does/not/exist"},
	} {
		if r := p.run(t, append([]string{"call", "demo", "o-1"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: code %d, want %d: %s", args, r.code, exitUsage, r.stderr)
		}
	}
}

func TestOutputForPrograms(t *testing.T) {
	p := serveFake(t, &fakeEngine{})
	out := p.ok(t, "call", "demo", "o-1", "--args-base64", "AAEC", "-o", "json")
	if out != "{\n  \"taskId\": \"2\",\n  \"response\": \"AAEC\"\n}\n" {
		t.Errorf("output = %s", out)
	}
	p.env["PROGRESSOR_OUTPUT"] = "json"
	if out := p.ok(t, "repair", "demo", "o-1", "--simple"); out != "{\n  \"taskId\": \"3\"\n}\n" {
		t.Errorf("output = %s", out)
	}
	wantLines(t, p.ok(t, "repair", "demo", "o-1", "--simple", "-o", "table"), "task     3")
}

func TestShowPayload(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  string
	}{
		{"", 0, ""},
		{`{"a": [1, 2]}`, 0, `{"a":[1,2]}`},
		{"plain text", 0, "plain text"},
		{"two\nlines", 0, `two\nlines`},
		{"\x1b[31mred", 0, "base64:G1szMW1yZWQ="},
		{"\"\u009b31m\"", 0, `"\u009b31m"`},
		{"\xff\xfe", 0, "base64://4="},
		{"aaaaaaaaaa", 4, "aaaa… (10 bytes)"},
	}
	for _, tt := range tests {
		if got := showPayload([]byte(tt.in), tt.limit); got != tt.want {
			t.Errorf("showPayload(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func order() *progressorv1.Process {
	at := timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	return &progressorv1.Process{
		Namespace: "demo", ProcessId: "o-1", Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
		Detail: "no book\nleft", CorruptedBy: 7, AuxState: []byte(`{"n": 1}`), LastEventId: 2, CreatedTime: at,
		History: []*progressorv1.Event{{EventId: 1, TaskId: 1, Timestamp: at, Payload: []byte("reserved")}, {EventId: 2, TaskId: 2, Payload: []byte{0}}},
		Timers:  []*progressorv1.Timer{{FireTime: at, Status: progressorv1.TaskStatus_TASK_STATUS_WAITING}, {Name: "old", FireTime: at, Remove: true}},
	}
}

func TestGet(t *testing.T) {
	f := &fakeEngine{process: order()}
	p := serveFake(t, f)
	out := p.ok(t, "get", "demo", "o-1", "--offset", "5", "--backward")
	wantLines(t, out, "status         ERROR", `detail         no book\nleft`, "corrupted by   task 7", `state          {"n":1}`,
		"(default)  2026-11-20T12:00:00.000Z  timeout  WAITING", "old        2026-11-20T12:00:00.000Z  remove",
		"1      1     2026-11-20T12:00:00.000Z  reserved", "base64:AA==")
	offset := int64(5)
	wantRequest(t, f.last, &progressorv1.GetProcessRequest{Namespace: "demo", ProcessId: "o-1", Range: &progressorv1.HistoryRange{
		Offset: &offset, Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD,
	}})
}

func TestGetThenPut(t *testing.T) {
	f := &fakeEngine{process: order()}
	p := serveFake(t, f)
	p.stdin = p.ok(t, "get", "demo", "o-1", "-o", "json")
	p.ok(t, "put", "other", "o-2", "-f", "-", "--detail", "moved")
	want := order()
	for _, e := range want.GetHistory() {
		e.TaskId = 0
	}
	want.Timers[0].Status = 0
	wantRequest(t, f.last, &progressorv1.PutProcessRequest{
		Namespace: "other", ProcessId: "o-2", Status: want.GetStatus(), Detail: "moved", AuxState: want.GetAuxState(),
		History: want.GetHistory(), Timers: want.GetTimers(),
	})
	p.ok(t, "put", "demo", "o-3", "--event", "one, two", "--event", "three", "--aux-state", "s", "--metadata", `{"a":1}`)
	got := f.last.(*progressorv1.PutProcessRequest)
	if len(got.GetHistory()) != 2 || string(got.GetHistory()[0].GetPayload()) != "one, two" || got.GetHistory()[1].GetEventId() != 2 ||
		got.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING || got.GetMetadata().AsMap()["a"] != 1.0 {
		t.Errorf("request = %v", got)
	}
	p.stdin = "status: running\nhistry: []\n"
	r := p.run(t, "put", "demo", "o-4", "-f", "-")
	if r.code != exitUsage || !strings.Contains(r.stderr, "line 2: histry: unknown field") {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}

func TestList(t *testing.T) {
	f := &fakeEngine{pages: []*progressorv1.ListProcessesResponse{
		{Processes: []*progressorv1.Process{order()}, NextPageToken: "next"},
		{Processes: []*progressorv1.Process{{Namespace: "demo", ProcessId: "o-2"}}},
	}}
	p := serveFake(t, f)
	out := p.ok(t, "list", "demo", "--status", "Error")
	wantLines(t, out, "PROCESS", "o-1", "more: --page-token next")
	if got := f.last.(*progressorv1.ListProcessesRequest).GetFilter(); got != "status = ERROR" {
		t.Errorf("filter = %q", got)
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
		p.ok(t, line...)
		if got := f.last.(*progressorv1.ListProcessesRequest).GetFilter(); got != want {
			t.Errorf("%s: filter = %q, want %q", args, got, want)
		}
	}
	var all struct{ Processes []any }
	if err := json.Unmarshal([]byte(p.ok(t, "list", "demo", "--all", "-o", "json")), &all); err != nil || len(all.Processes) != 2 {
		t.Errorf("%d processes, %v", len(all.Processes), err)
	}
	f.pages[0] = &progressorv1.ListProcessesResponse{}
	if out := p.ok(t, "list", "demo"); out != "none\n" {
		t.Errorf("output = %q", out)
	}
	if r := p.run(t, "list", "demo", "--status", "broken"); r.code != exitUsage || !strings.Contains(r.stderr, "known: INIT, RUNNING") {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}

func TestTraceAndAwait(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	failed := &progressorv1.Task{
		TaskId: 7, Namespace: "demo", ProcessId: "o-1", Type: progressorv1.TaskType_TASK_TYPE_CALL, Attempt: 1,
		Status: progressorv1.TaskStatus_TASK_STATUS_ERROR, Failure: &progressorv1.Failure{Reason: "out_of_stock", Message: "no book"},
		RunningTime: timestamppb.New(at), FinishedTime: timestamppb.New(at.Add(1500 * time.Microsecond)),
		Events: []*progressorv1.Event{{EventId: 4}, {EventId: 5}},
	}
	f := &fakeEngine{tasks: []*progressorv1.Task{failed}}
	p := serveFake(t, f)
	wantLines(t, p.ok(t, "trace", "demo", "o-1"), "7     CALL  ERROR", "1.5ms", "failure out_of_stock: no book  4 5")

	r := p.run(t, "await", "demo", "o-1", "--task", "7")
	if r.code != exitTaskFailed || !strings.Contains(r.stdout, "status         ERROR") || r.stderr != "progressor: task 7 failed: out_of_stock\n" {
		t.Errorf("%+v", r)
	}
	failed.Status, failed.Failure = progressorv1.TaskStatus_TASK_STATUS_WAITING, nil
	for _, timeout := range []string{"20ms", "1ns"} { // with 1ns, no response arrives in time
		r := p.run(t, "await", "demo", "o-1", "-k", "key", "--timeout", timeout)
		if r.code != exitTimeout || !strings.Contains(r.stdout, "status         WAITING") || r.stderr != "progressor: task 7 is WAITING after "+timeout+"; it continues\n" {
			t.Errorf("%+v", r)
		}
	}
	p.ok(t, "await", "demo", "o-1", "--task", "7", "--timeout", "0")
	for _, args := range [][]string{{}, {"--task", "1", "-k", "key"}} {
		if r := p.run(t, append([]string{"await", "demo", "o-1"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestNamespace(t *testing.T) {
	f := &fakeEngine{}
	p := serveFake(t, f)
	out := p.ok(t, "namespace", "put", "orders", "--connect-url", "http://127.0.0.1:9000", "--encoding", "json",
		"--header", "authorization=Bearer a;b,c", "--history-mode", "last", "--zombie-policy", "error", "--step-timeout", "10s",
		"--max-attempts", "7", "--retry-after", "1s", "--retention", "24h", "--max-running", "5", "--max-waiting", "6")
	wantLines(t, out, "processor      http://127.0.0.1:9000 json", "history mode   LAST", "retention      24h")
	if strings.Contains(out, "Bearer") {
		t.Error("a header's value is printed")
	}
	wantRequest(t, f.last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "orders", HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_LAST, MaxRunning: 5, MaxWaiting: 6,
		ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR, StepTimeout: durationpb.New(10 * time.Second),
		Retention:   durationpb.New(24 * time.Hour),
		RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 7, InitialInterval: durationpb.New(time.Second)},
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{
			Url: "http://127.0.0.1:9000", Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
			Headers: map[string]string{"authorization": "Bearer a;b,c"},
		}}},
	}})
	out = p.ok(t, "namespace", "put", "orders", "--connect-url", "http://a:1", "--connect-url", "http://b:1")
	wantLines(t, out, "processor  http://a:1 http://b:1")
	wantRequest(t, f.last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "orders", Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{
			Url: "http://a:1", MoreUrls: []string{"http://b:1"},
		}}},
	}})
	p.stdin = "processor: {builtin: {name: echo}}\nstep-timeout: 1m30s\nhistory_mode: none\n"
	p.ok(t, "ns", "put", "play", "-f", "-", "--history-mode", "full")
	wantRequest(t, f.last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "play", Processor: builtinProcessor("echo"), StepTimeout: durationpb.New(90 * time.Second),
		HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_FULL,
	}})
	p.stdin = `{"namespace": {"namespace": "play", "processor": {"builtin": {"name": "echo"}}, "maxRunning": 7}}` // the output of get -o json
	p.ok(t, "namespace", "put", "play", "-f", "-", "--retention", "1h")
	wantRequest(t, f.last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "play", Processor: builtinProcessor("echo"), MaxRunning: 7, Retention: durationpb.New(time.Hour),
	}})
	out = p.ok(t, "namespace", "health", "orders")
	wantLines(t, out, "orders DEGRADED 1,234 35s 0 2", "orders BEHIND tasks wait add nodes")
	wantRequest(t, f.last, &progressorv1.GetNamespaceHealthRequest{Namespace: "orders"})
	if r := p.run(t, "namespace", "health", "down"); r.code != exitFailed || !strings.Contains(r.stdout, "DOWN") ||
		!strings.Contains(r.stderr, "no task starts in 1 namespace") {
		t.Errorf("%+v", r)
	}
	if r := p.run(t, "namespace", "health", "down", "-o", "json"); r.code != exitFailed || !strings.Contains(r.stdout, "HEALTH_STATUS_DOWN") {
		t.Errorf("%+v", r)
	}
	wantLines(t, p.ok(t, "namespace", "pause", "demo"), "paused     yes")
	for _, args := range [][]string{{}, {"--pull", "--builtin", "x"}, {"--encoding", "json"}, {"--history-mode", "some"}} {
		if r := p.run(t, append([]string{"namespace", "put", "x"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// Every command has a help text with an example, and docs/cli.md describes all commands.
func TestEveryCommandIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{Main: Main{Stdout: os.Stdout, Stderr: os.Stderr}, settings: newSettings(func(string) (string, bool) { return "", false })}
	parser, err := newParser(a, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		path := commandPath(leaf)
		if !strings.Contains(leaf.Detail, "progressor "+path) {
			t.Errorf("%s: its help has no example", path)
		}
		if !strings.Contains(string(doc), "progressor "+path) {
			t.Errorf("%s is missing in docs/cli.md", path)
		}
		for _, flag := range leaf.Flags {
			if !strings.Contains(string(doc), "--"+flag.Name) && !isSetting(flag.Value) && !flag.Hidden {
				t.Errorf("%s: --%s is missing in docs/cli.md", path, flag.Name)
			}
		}
	}
}

func commandPath(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		return node.Name
	}
	return commandPath(node.Parent) + " " + node.Name
}

func TestHelpVersionAndCompletion(t *testing.T) {
	p := program{}
	wantLines(t, p.ok(t, "--help"), "progressor <command>", "namespace (ns) put")
	wantLines(t, p.ok(t, "serve", "--help"), "$PROGRESSOR_DB_DSN")
	wantLines(t, p.ok(t, "version"), "progressor ")
	wantLines(t, p.ok(t, "completion", "bash"), `" namespace put") words=`, "complete -o default -F _progressor progressor")
	if r := p.run(t); r.code != exitUsage || !strings.Contains(r.stdout, "Usage:") {
		t.Errorf("%+v", r)
	}
	if r := p.run(t, "stat"); r.code != exitUsage || !strings.Contains(r.stderr, `did you mean "start"`) {
		t.Errorf("%+v", r)
	}
	if r := p.run(t, "get", "demo"); r.code != exitUsage || !strings.Contains(r.stderr, `expected "<id>", for example: progressor get <ns> <id>`) {
		t.Errorf("%+v", r)
	}
}
