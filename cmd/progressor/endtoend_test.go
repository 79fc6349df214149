package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestDev runs progressor dev with its demo, stops it, and starts it again with the same data.
func TestDev(t *testing.T) {
	if testing.Short() {
		t.Skip("starts its own PostgreSQL")
	}
	dir := t.TempDir()
	d := background(t, nil, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir, "--demo-flow")
	p := d.Client
	p.OK(t, "start", "demo", "order-1", "--args",
		`{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}]}`)
	clitest.WantLines(t, p.OK(t, "call", "demo", "order-1", "--args", `{"pay":200}`), "paid")
	clitest.WantLines(t, p.OK(t, "start", "echo", "e-1", "--args", "hello"), "response hello")
	clitest.WantLines(t, p.OK(t, "get", "demo", "order-1"), "paid")
	// Only an order without a payment keeps its timer until the next command.
	p.OK(t, "start", "demo", "order-2", "--args",
		`{"order":"A-8","customer":"ada","items":[{"sku":"tea","quantity":1}]}`)
	clitest.WantLines(t, p.OK(t, "get", "demo", "order-2"), "status RUNNING", "(default)", "reserved")
	clitest.WantLines(t, p.OK(t, "list", "demo"), "order-1")
	for _, namespace := range []string{"demo", "echo"} {
		clitest.WantLines(t, p.OK(t, "namespace", "get", namespace), "retention 168h")
	}
	clitest.WantLines(t, p.OK(t, "trace", "demo", "order-1"), "INIT FINISHED", "CALL FINISHED")
	for run, status := range map[string]string{"A-1": "SUCCEEDED", "A-2": "WAITING_WORKER", "A-3": "FAILED"} {
		clitest.Eventually(t, run+" is "+status, func() error {
			if out := p.OK(t, "run", "get", "demo", run); !strings.Contains(out, status) {
				return errors.New(out)
			}
			return nil
		})
	}
	if code, body := clitest.Fetch(t, d.URL+"/metrics"); code != http.StatusOK ||
		!strings.Contains(body, "progressor_task_processing_duration_ms") ||
		!strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d", code)
	}
	dsn, err := os.ReadFile(filepath.Join(dir, "dsn"))
	if err != nil {
		t.Fatal(err)
	}
	database := clitest.Program{Commands: newCommands,
		Env: map[string]string{"PROGRESSOR_DB_DSN": strings.TrimSpace(string(dsn))}}
	clitest.WantLines(t, database.OK(t, "doctor"), "violations: 0", cli.BuildVersion())

	taken := clitest.Program{Commands: newCommands}.Run(t, "dev", "--listen", strings.TrimPrefix(d.URL, "http://"), "--data-dir", t.TempDir())
	if taken.Code != cli.ExitFailed ||
		!strings.Contains(taken.Stderr,
			"is used by another program. Next: use another address, such as --listen 127.0.0.1:0") {
		t.Errorf("%+v", taken)
	}
	d.Stop(t)
	if _, err := pgx.Connect(t.Context(), strings.TrimSpace(string(dsn))); err == nil {
		t.Error("PostgreSQL still runs")
	}

	again := background(t, nil, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir, "--kafka", "--kafka-listen",
		"127.0.0.1:0")
	produceTo(t, kafkaInBanner.FindString(again.Output))
	clitest.WantLines(t, again.Client.OK(t, "get", "demo", "order-1"), "demo/order-1", "reserved")
	again.Stop(t)
}

var kafkaInBanner = regexp.MustCompile(`127\.0\.0\.1:\d+  \(messages are in memory\)`)

// produceTo writes a message to a new topic of the Kafka broker whose address is in a line of the
// banner.
func produceTo(t *testing.T, line string) {
	t.Helper()
	address, _, _ := strings.Cut(line, " ")
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.DaemonWait)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "new", Value: []byte("x")}).FirstErr(); err != nil {
		t.Errorf("produce to %q: %v", line, err)
	}
}

// Errors of the engine determine the exit code of a command. They are one line with the reason and
// the next command.
func TestErrorsOfTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t),
		"-c", clitest.WriteConfig(t,
			"namespaces: [{namespace: demo, processor: {builtin: {name: orders}}}, {namespace: echo, processor: "+
				"{builtin: {name: echo}}}]"))
	p := d.Client
	p.OK(t, "start", "demo", "broken", "--args", `{"order":"A-8","items":[{"sku":"broken","quantity":1}]}`)
	tests := []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"get", "demo", "nobody"}, cli.ExitNotFound,
			[]string{"process_not_found", "Next: progressor list demo"}},
		{[]string{"get", "nowhere", "nobody"}, cli.ExitNotFound, []string{"namespace_not_found"}},
		{[]string{"start", "demo", "broken", "--args", "{}"}, cli.ExitConflict, []string{"process_exists"}},
		{[]string{"call", "demo", "broken", "--args", `{"pay":1}`}, cli.ExitRejected, []string{"task_rejected"}},
		{[]string{"call", "demo", "broken", "--args", `{"pay":100}`}, cli.ExitTaskFailed,
			[]string{"task_failed", "process is ERROR", "progressor repair demo broken --simple"}},
		{[]string{"call", "demo", "broken", "--args", `{"status":true}`}, cli.ExitConflict,
			[]string{"process_status", "process is ERROR"}},
		{[]string{"call", "echo", strings.Repeat("x", 300)}, cli.ExitUsage,
			[]string{"<id>: must be at most 256 bytes"}},
	}
	for _, tt := range tests {
		r := p.Run(t, tt.args...)
		if r.Code != tt.code || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("%q: code %d, want %d: %s", tt.args, r.Code, tt.code, r.Stderr)
		}
		clitest.WantLines(t, r.Stderr, tt.want...)
	}
	clitest.WantLines(t, p.OK(t, "repair", "demo", "broken", "--args", `{"refund":true}`), "task")
	p.OK(t, "remove", "demo", "broken")
	if r := p.Run(t, "get", "demo", "broken"); r.Code != cli.ExitNotFound {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

// The most used commands for processes and namespaces work with the real engine.
func TestCommandsOnTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.Client
	p.OK(t, "namespace", "put", "echo", "--builtin", "echo", "--history-mode", "none")
	clitest.WantLines(t, p.OK(t, "namespace", "get", "echo"), "builtin echo", "NONE")
	clitest.WantLines(t, p.OK(t, "namespace", "list"), "echo")

	out := p.OK(t, "start", "echo", "e-1", "--args", "one", "--metadata", `{"tenant":"acme"}`, "-k", "key-1", "-o",
		"json")
	if err := json.Unmarshal([]byte(out), &map[string]any{}); err != nil {
		t.Errorf("%v in %s", err, out)
	}
	if again := p.OK(t, "start", "echo", "e-1", "--args", "one", "--metadata", `{"tenant":"acme"}`, "-k", "key-1", "-o",
		"json"); again != out {
		t.Errorf("the same key got different responses: %s, then %s", out, again)
	}
	p.OK(t, "call", "echo", "e-1", "--args", "two", "--accepted", "-k", "key-2")
	clitest.WantLines(t, p.OK(t, "await", "echo", "e-1", "-k", "key-2"), "NOTIFY", "FINISHED")
	clitest.WantLines(t, p.OK(t, "get", "echo", "e-1", "--backward", "--limit", "1"), "state two", "acme", "2 ")
	p.Stdin = p.OK(t, "get", "echo", "e-1", "-o", "json")
	p.OK(t, "put", "echo", "e-2", "-f", "-")
	clitest.WantLines(t, p.OK(t, "get", "echo", "e-2"), "status RUNNING", "state two", "one")
	clitest.WantLines(t, p.OK(t, "put", "echo", "e-3", "--status", "error", "--detail", "moved", "--event", "x"),
		"status ERROR", "detail moved")
	clitest.WantLines(t, p.OK(t, "list", "echo", "--status", "error"), "e-3")
	p.OK(t, "repair", "echo", "e-3", "--simple")
	clitest.WantLines(t, p.OK(t, "get", "echo", "e-3"), "status RUNNING")
	out = p.OK(t, "list", "echo", "--page-size", "2")
	clitest.WantLines(t, out, "more: --page-token ")
	clitest.WantLines(t, p.OK(t, "list", "echo", "--page-size", "2", "--all"), "e-1", "e-2", "e-3")

	p.OK(t, "namespace", "pause", "echo")
	r := p.Run(t, "call", "echo", "e-1", "--args", "three", "--timeout", "100ms", "-k", "key-3")
	if r.Code != cli.ExitTimeout {
		t.Errorf("a call in a paused namespace: %+v", r)
	}
	p.OK(t, "namespace", "resume", "echo")
	clitest.WantLines(t, p.OK(t, "await", "echo", "e-1", "-k", "key-3"), "outcome three")
	d.Stop(t)
}

// Two nodes serve the same namespaces. A second signal stops a node at once, even if it runs a
// task.
func TestTwoNodesAndTheSecondSignal(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}
	reached, release := make(chan struct{}), make(chan struct{})
	blocked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(reached)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"result":{}}`)
	}))
	defer blocked.Close()
	defer close(release)
	one := background(t, env, "serve", "--listen", "127.0.0.1:0")
	two := background(t, env, "serve", "--listen", "127.0.0.1:0", "--debug.listen", "127.0.0.1:0")
	one.Client.OK(t, "namespace", "put", "blocked", "--connect-url", blocked.URL, "--encoding", "json")
	clitest.WantLines(t, two.Client.OK(t, "namespace", "list"), "blocked")
	one.Client.OK(t, "start", "blocked", "s-1", "--accepted")
	select {
	case <-reached:
	case <-time.After(clitest.DaemonWait):
		t.Fatal("the processor was not called")
	}
	for _, d := range []*clitest.Daemon{one, two} {
		d.Signals <- syscall.SIGINT
		d.Signals <- syscall.SIGINT
	}
	codes := []int{one.Await(t), two.Await(t)}
	if codes[0] != cli.ExitInterrupted && codes[1] != cli.ExitInterrupted {
		t.Errorf("exit codes %d: the second signal did not stop the node that runs the task at once", codes)
	}
}

// After SIGTERM, /readyz returns 503 for engine.linger while requests are still served, so that a
// load balancer notices the stop before clients do.
func TestServeLingers(t *testing.T) {
	t.Parallel()
	d := clitest.Start(t, newCommands, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve",
		"--listen", "127.0.0.1:0", "--engine.linger", "10s", "--log.format", "json")
	d.Signals <- syscall.SIGTERM
	clitest.Eventually(t, "not ready", func() error {
		if status, body := clitest.Fetch(t, d.URL+"/readyz"); status != http.StatusServiceUnavailable ||
			!strings.Contains(body, "stopping") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if status, _ := clitest.Fetch(t, d.URL+"/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d", status)
	}
	d.Client.OK(t, "namespace", "list")
	if code := d.Await(t); code != cli.ExitOK {
		t.Errorf("code %d after the linger time", code)
	}
}

// serve does not start with invalid settings, a used address, an unreachable database or an old
// schema.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		args []string
		code int
		want string
	}{
		{nil, cli.ExitUsage, "--db.dsn: is required"},
		{[]string{"--db.dsn", "host=x", "--listen", "0.0.0.0"}, cli.ExitUsage, "want host:port"},
		{[]string{"--db.dsn", "host=x", "--listen", taken.Addr().String()}, cli.ExitFailed,
			"is used by another program"},
		{[]string{"--db.dsn", "postgres://me:hunter2@127.0.0.1:1/x", "--db.wait", "0s", "--listen", "127.0.0.1:0"},
			cli.ExitUnavailable, "check that PostgreSQL runs there"},
	}
	for _, tt := range tests {
		r := clitest.Program{Commands: newCommands}.Run(t, append([]string{"serve"}, tt.args...)...)
		if r.Code != tt.code || !strings.Contains(r.Stderr, tt.want) || strings.Contains(r.Stderr, "hunter2") {
			t.Errorf("%q: code %d: %s", tt.args, r.Code, r.Stderr)
		}
	}
	empty := storagetest.DSN(t, storagetest.WithoutInvariants())
	database := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": empty}}
	database.OK(t, "migrate", "down", "--yes")
	if r := database.Run(t, "serve", "--listen", "127.0.0.1:0"); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Stderr, "progressor migrate up") {
		t.Errorf("%+v", r)
	}
}
