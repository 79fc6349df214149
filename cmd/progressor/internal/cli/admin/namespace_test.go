package admin

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestNamespaceDelete(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "namespace", "delete", "orders", "--with-data", "--dry-run")
	clitest.WantLines(t, out, "processes RUNNING 1,234", "waiting tasks 1,000,000+")
	clitest.WantRequest(t, f.Last,
		&progressorv1.DeleteNamespaceRequest{Namespace: "orders", WithData: true, DryRun: true})
	out = p.OK(t, "namespace", "delete", "orders", "--no-wait")
	clitest.WantLines(t, out, "namespace orders is being deleted")
	clitest.WantRequest(t, f.Last, &progressorv1.DeleteNamespaceRequest{Namespace: "orders"})
	p.OK(t, "namespace", "delete", "orders", "--with-data", "--yes", "--no-wait")
	clitest.WantRequest(t, f.Last, &progressorv1.DeleteNamespaceRequest{Namespace: "orders", WithData: true})
	if r := p.Run(t, "namespace", "delete", "orders", "--with-data"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "confirm with --yes") {
		t.Errorf("%+v", r)
	}
	for answer, code := range map[string]int{"y\n": cli.ExitOK, "\n": cli.ExitInterrupted} {
		p.Interactive, p.Stdin = true, answer
		r := p.Run(t, "namespace", "delete", "orders", "--with-data", "--no-wait")
		if r.Code != code || !strings.Contains(r.Stderr, "1,234 processes RUNNING\n") {
			t.Errorf("%q: %+v", answer, r)
		}
		if last := f.Last.(*progressorv1.DeleteNamespaceRequest); last.GetDryRun() != (code != cli.ExitOK) {
			t.Errorf("%q: %v", answer, last)
		}
	}
}

func TestNamespace(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	out := p.OK(t, "namespace", "put", "orders", "--connect-url", "http://127.0.0.1:9000", "--encoding", "json",
		"--header", "authorization=Bearer a;b,c", "--history-mode", "last", "--zombie-policy", "error",
		"--step-timeout", "10s",
		"--max-attempts", "7", "--retry-after", "1s", "--retention", "24h", "--max-running", "5", "--max-waiting", "6")
	clitest.WantLines(t, out, "processor      http://127.0.0.1:9000 json", "history mode   LAST", "retention      24h")
	if strings.Contains(out, "Bearer") {
		t.Error("a header's value is printed")
	}
	clitest.WantRequest(t, f.Last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "orders", HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_LAST, MaxRunning: 5, MaxWaiting: 6,
		ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR, StepTimeout: durationpb.New(10 * time.Second),
		Retention:   durationpb.New(24 * time.Hour),
		RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 7, InitialInterval: durationpb.New(time.Second)},
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{
				Url: "http://127.0.0.1:9000", Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
				Headers: map[string]string{"authorization": "Bearer a;b,c"},
			}}},
	}})
	out = p.OK(t, "namespace", "put", "orders", "--connect-url", "http://a:1", "--connect-url", "http://b:1")
	clitest.WantLines(t, out, "processor  http://a:1 http://b:1")
	clitest.WantRequest(t, f.Last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "orders",
		Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{
				Url: "http://a:1", MoreUrls: []string{"http://b:1"},
			}}},
	}})
	p.Stdin = "processor: {builtin: {name: echo}}\nstep-timeout: 1m30s\nhistory_mode: none\n"
	p.OK(t, "ns", "put", "play", "-f", "-", "--history-mode", "full")
	clitest.WantRequest(t, f.Last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "play", Processor: builtinProcessor("echo"), StepTimeout: durationpb.New(90 * time.Second),
		HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_FULL,
	}})
	// put accepts the output of get -o json.
	p.Stdin = `{"namespace": {"namespace": "play", "processor": {"builtin": {"name": "echo"}}, "maxRunning": 7}}`
	p.OK(t, "namespace", "put", "play", "-f", "-", "--retention", "1h")
	clitest.WantRequest(t, f.Last, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "play", Processor: builtinProcessor("echo"), MaxRunning: 7, Retention: durationpb.New(time.Hour),
	}})
	out = p.OK(t, "namespace", "health", "orders")
	clitest.WantLines(t, out, "orders DEGRADED 1,234 35s 0 2", "orders BEHIND tasks wait add nodes")
	if row := "orders     DEGRADED     1,234  35s           0         2\n"; !strings.Contains(out, row) {
		t.Errorf("numbers are not aligned to the right:\n%s", out)
	}
	clitest.WantRequest(t, f.Last, &progressorv1.GetNamespaceHealthRequest{Namespace: "orders"})
	if r := p.Run(t, "namespace", "health", "down"); r.Code != cli.ExitFailed || !strings.Contains(r.Stdout, "DOWN") ||
		!strings.Contains(r.Stderr, "no task starts in 1 namespace") {
		t.Errorf("%+v", r)
	}
	if r := p.Run(t, "namespace", "health", "down", "-o", "json"); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Stdout, "HEALTH_STATUS_DOWN") {
		t.Errorf("%+v", r)
	}
	clitest.WantLines(t, p.OK(t, "namespace", "pause", "demo"), "paused     yes")
	for _, args := range [][]string{{}, {"--pull", "--builtin", "x"}, {"--encoding", "json"},
		{"--history-mode", "some"}} {
		if r := p.Run(t, append([]string{"namespace", "put", "x"}, args...)...); r.Code != cli.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// The flags for changes set the recorded kinds, replace those of the file, and turn recording off.
func TestNamespaceChanges(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	put := func(args ...string) *progressorv1.ChangeSettings {
		t.Helper()
		p.OK(t, append([]string{"namespace", "put", "orders", "--pull"}, args...)...)
		return f.Last.(*progressorv1.PutNamespaceRequest).GetNamespace().GetChanges()
	}
	event, lifecycle := progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE
	clitest.WantRequest(t, put("--changes", "event,lifecycle", "--change-payloads", "--change-retention", "48h"),
		&progressorv1.ChangeSettings{
			Kinds: []progressorv1.ChangeKind{event, lifecycle}, Payloads: true,
			Retention: durationpb.New(48 * time.Hour),
		})
	p.Stdin = `{"namespace": {"processor": {"pull": {}},
		"changes": {"kinds": ["CHANGE_KIND_EVENT"], "payloads": true}}}`
	clitest.WantRequest(t, put("-f", "-", "--changes", "lifecycle"),
		&progressorv1.ChangeSettings{Kinds: []progressorv1.ChangeKind{lifecycle}, Payloads: true})
	if changes := put("-f", "-", "--changes", "none"); changes != nil {
		t.Errorf("--changes none: %v", changes)
	}
	for args, want := range map[string]string{
		"--changes events":        `--changes: unknown value "events"; use one of EVENT, LIFECYCLE, JOB, STEP, RUN`,
		"--change-payloads":       "--change-payloads and --change-retention require --changes KIND",
		"--change-retention 5h":   "--change-payloads and --change-retention require --changes KIND",
		"--changes none,event":    `--changes: unknown value "none"`,
		"--changes event --pulls": "unknown flag --pulls",
	} {
		r := p.Run(t, append([]string{"namespace", "put", "orders", "--pull"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v, want %s", args, r, want)
		}
	}
}
