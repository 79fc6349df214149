package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

	"github.com/progressor-engine/progressor/storage/storagetest"
)

const daemonWait = time.Minute // for a start, and for a stop

// daemon is a running dev or serve.
type daemon struct {
	url     string
	client  program // runs commands against it
	signals chan os.Signal
	done    chan int
	output  string // up to the line with its URL
}

var urlInLine = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// background starts a command line and waits until it is ready and prints its address.
func background(t *testing.T, env map[string]string, args ...string) *daemon {
	t.Helper()
	reader, writer := io.Pipe()
	d := &daemon{signals: make(chan os.Signal, 2), done: make(chan int, 1)}
	m := Main{
		Stdin: strings.NewReader(""), Stdout: writer, Stderr: writer, Signals: d.signals,
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		d.done <- m.Run(ctx, args)
		writer.Close()
	}()
	t.Cleanup(func() {
		cancel()
		d.await(t)
	})
	lines := bufio.NewScanner(reader)
	for d.url == "" && lines.Scan() {
		d.output += lines.Text() + "\n"
		if line := lines.Text(); strings.Contains(line, "API") || strings.Contains(line, `"msg":"ready"`) {
			d.url = urlInLine.FindString(line)
		}
	}
	if d.url == "" {
		t.Fatalf("progressor %s ended:\n%s", strings.Join(args, " "), d.output)
	}
	go io.Copy(io.Discard, reader)
	d.client = program{env: map[string]string{"PROGRESSOR_ADDRESS": d.url}}
	return d
}

// await returns the exit code of a daemon that was told to stop.
func (d *daemon) await(t *testing.T) int {
	t.Helper()
	select {
	case code := <-d.done:
		d.done <- code // for the next caller
		return code
	case <-time.After(daemonWait):
		t.Error("it does not stop")
		return -1
	}
}

func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signals <- syscall.SIGTERM
	if code := d.await(t); code != exitOK {
		t.Errorf("code %d after SIGTERM", code)
	}
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestDev(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL of its own")
	}
	dir := t.TempDir()
	d := background(t, nil, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir, "--demo-flow")
	p := d.client
	p.ok(t, "start", "demo", "order-1", "--args", `{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}]}`)
	wantLines(t, p.ok(t, "call", "demo", "order-1", "--args", `{"pay":200}`), "paid")
	wantLines(t, p.ok(t, "start", "echo", "e-1", "--args", "hello"), "response hello")
	wantLines(t, p.ok(t, "get", "demo", "order-1"), "status RUNNING", "(default)", "paid")
	wantLines(t, p.ok(t, "list", "demo"), "order-1")
	wantLines(t, p.ok(t, "trace", "demo", "order-1"), "INIT FINISHED", "CALL FINISHED")
	for run, status := range map[string]string{"A-1": "SUCCEEDED", "A-2": "WAITING_WORKER", "A-3": "FAILED"} {
		eventually(t, run+" is "+status, func() error {
			if out := p.ok(t, "run", "get", "demo", run); !strings.Contains(out, status) {
				return errors.New(out)
			}
			return nil
		})
	}
	if code, body := fetch(t, d.url+"/metrics"); code != http.StatusOK || !strings.Contains(body, "progressor_task_processing_duration_ms") ||
		!strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d", code)
	}
	dsn, err := os.ReadFile(filepath.Join(dir, "dsn"))
	if err != nil {
		t.Fatal(err)
	}
	database := program{env: map[string]string{"PROGRESSOR_DB_DSN": strings.TrimSpace(string(dsn))}}
	wantLines(t, database.ok(t, "doctor"), "violations: 0", buildVersion())

	taken := program{}.run(t, "dev", "--listen", strings.TrimPrefix(d.url, "http://"), "--data-dir", t.TempDir())
	if taken.code != exitFailed || !strings.Contains(taken.stderr, "is used by another program. Next: use another address, such as --listen 127.0.0.1:0") {
		t.Errorf("%+v", taken)
	}
	d.stop(t)
	if _, err := pgx.Connect(t.Context(), strings.TrimSpace(string(dsn))); err == nil {
		t.Error("PostgreSQL is still there")
	}

	again := background(t, nil, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir)
	wantLines(t, again.client.ok(t, "get", "demo", "order-1"), "demo/order-1", "reserved")
	again.stop(t)
}

func TestErrorsOfTheEngine(t *testing.T) {
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t),
		"-c", writeConfig(t, "namespaces: [{namespace: demo, processor: {builtin: {name: orders}}}, {namespace: echo, processor: {builtin: {name: echo}}}]"))
	p := d.client
	p.ok(t, "start", "demo", "broken", "--args", `{"order":"A-8","items":[{"sku":"broken","quantity":1}]}`)
	tests := []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"get", "demo", "nobody"}, exitNotFound, []string{"process_not_found", "Next: progressor list demo"}},
		{[]string{"get", "nowhere", "nobody"}, exitNotFound, []string{"namespace_not_found"}},
		{[]string{"start", "demo", "broken", "--args", "{}"}, exitConflict, []string{"process_exists"}},
		{[]string{"call", "demo", "broken", "--args", `{"pay":1}`}, exitRejected, []string{"task_rejected"}},
		{[]string{"call", "demo", "broken", "--args", `{"pay":100}`}, exitTaskFailed, []string{"task_failed", "process is ERROR", "progressor repair demo broken --simple"}},
		{[]string{"call", "demo", "broken", "--args", `{"status":true}`}, exitConflict, []string{"process_status", "process is ERROR"}},
		{[]string{"call", "echo", strings.Repeat("x", 300)}, exitUsage, []string{"process_id"}},
	}
	for _, tt := range tests {
		r := p.run(t, tt.args...)
		if r.code != tt.code || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%q: code %d, want %d: %s", tt.args, r.code, tt.code, r.stderr)
		}
		wantLines(t, r.stderr, tt.want...)
	}
	wantLines(t, p.ok(t, "repair", "demo", "broken", "--args", `{"refund":true}`), "task")
	p.ok(t, "remove", "demo", "broken")
	if r := p.run(t, "get", "demo", "broken"); r.code != exitNotFound {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}

// Every command for processes and namespaces works with the real engine.
func TestCommandsOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.client
	p.ok(t, "namespace", "put", "echo", "--builtin", "echo", "--history-mode", "none")
	wantLines(t, p.ok(t, "namespace", "get", "echo"), "builtin echo", "NONE")
	wantLines(t, p.ok(t, "namespace", "list"), "echo")

	out := p.ok(t, "start", "echo", "e-1", "--args", "one", "--metadata", `{"tenant":"acme"}`, "-k", "key-1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &map[string]any{}); err != nil {
		t.Errorf("%v in %s", err, out)
	}
	if again := p.ok(t, "start", "echo", "e-1", "--args", "one", "--metadata", `{"tenant":"acme"}`, "-k", "key-1", "-o", "json"); again != out {
		t.Errorf("the same key got another answer: %s, then %s", out, again)
	}
	p.ok(t, "call", "echo", "e-1", "--args", "two", "--accepted", "-k", "key-2")
	wantLines(t, p.ok(t, "await", "echo", "e-1", "-k", "key-2"), "NOTIFY", "FINISHED")
	wantLines(t, p.ok(t, "get", "echo", "e-1", "--backward", "--limit", "1"), "state two", "acme", "2 ")
	p.stdin = p.ok(t, "get", "echo", "e-1", "-o", "json")
	p.ok(t, "put", "echo", "e-2", "-f", "-")
	wantLines(t, p.ok(t, "get", "echo", "e-2"), "status RUNNING", "state two", "one")
	wantLines(t, p.ok(t, "put", "echo", "e-3", "--status", "error", "--detail", "moved", "--event", "x"), "status ERROR", "detail moved")
	wantLines(t, p.ok(t, "list", "echo", "--status", "error"), "e-3")
	p.ok(t, "repair", "echo", "e-3", "--simple")
	wantLines(t, p.ok(t, "get", "echo", "e-3"), "status RUNNING")
	out = p.ok(t, "list", "echo", "--page-size", "2")
	wantLines(t, out, "more: --page-token ")
	wantLines(t, p.ok(t, "list", "echo", "--page-size", "2", "--all"), "e-1", "e-2", "e-3")

	p.ok(t, "namespace", "pause", "echo")
	r := p.run(t, "call", "echo", "e-1", "--args", "three", "--timeout", "100ms", "-k", "key-3")
	if r.code != exitTimeout {
		t.Errorf("a call in a paused namespace: %+v", r)
	}
	p.ok(t, "namespace", "resume", "echo")
	wantLines(t, p.ok(t, "await", "echo", "e-1", "-k", "key-3"), "outcome three")
	d.stop(t)
}

func TestTwoNodesAndTheSecondSignal(t *testing.T) {
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}
	reached, release := make(chan struct{}), make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(reached)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"result":{}}`)
	}))
	defer stuck.Close()
	defer close(release)
	one := background(t, env, "serve", "--listen", "127.0.0.1:0")
	two := background(t, env, "serve", "--listen", "127.0.0.1:0", "--debug.listen", "127.0.0.1:0")
	one.client.ok(t, "namespace", "put", "stuck", "--connect-url", stuck.URL, "--encoding", "json")
	wantLines(t, two.client.ok(t, "namespace", "list"), "stuck")
	one.client.ok(t, "start", "stuck", "s-1", "--accepted")
	select {
	case <-reached:
	case <-time.After(daemonWait):
		t.Fatal("the processor is not called")
	}
	for _, d := range []*daemon{one, two} {
		d.signals <- syscall.SIGINT
		d.signals <- syscall.SIGINT
	}
	codes := []int{one.await(t), two.await(t)}
	if codes[0] != exitInterrupted && codes[1] != exitInterrupted {
		t.Errorf("codes %d: the node that runs a task does not stop at once by the second signal", codes)
	}
}

func TestServeRefuses(t *testing.T) {
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
		{nil, exitUsage, "--db.dsn: missing"},
		{[]string{"--db.dsn", "host=x", "--listen", "0.0.0.0:0"}, exitUsage, "--insecure"},
		{[]string{"--db.dsn", "host=x", "--listen", taken.Addr().String()}, exitFailed, "is used by another program"},
		{[]string{"--db.dsn", "postgres://me:hunter2@127.0.0.1:1/x", "--listen", "127.0.0.1:0"}, exitUnavailable, "check that PostgreSQL runs there"},
	}
	for _, tt := range tests {
		r := program{}.run(t, append([]string{"serve"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) || strings.Contains(r.stderr, "hunter2") {
			t.Errorf("%q: code %d: %s", tt.args, r.code, r.stderr)
		}
	}
	empty := storagetest.DSN(t, storagetest.WithoutInvariants())
	database := program{env: map[string]string{"PROGRESSOR_DB_DSN": empty}}
	database.ok(t, "migrate", "down", "--yes")
	if r := database.run(t, "serve", "--listen", "127.0.0.1:0"); r.code != exitFailed || !strings.Contains(r.stderr, "progressor migrate up") {
		t.Errorf("%+v", r)
	}
}
