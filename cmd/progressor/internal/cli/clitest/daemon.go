package clitest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
)

// DaemonWait limits how long a test waits for a daemon to start or to stop.
const DaemonWait = time.Minute

// Daemon is a running progressor dev or progressor serve.
type Daemon struct {
	URL     string
	Client  Program // runs commands that connect to the daemon
	Signals chan os.Signal
	Output  string // output up to the line with its URL
	Log     LockedBuffer
	done    chan int
}

// URLInLine matches the address of a local engine in its output.
var URLInLine = regexp.MustCompile(`https?://[0-9.]+:[0-9]+`)

// Start runs a command, and waits until it prints its address.
func Start(t *testing.T, commands func(string) any, env map[string]string, args ...string) *Daemon {
	t.Helper()
	reader, writer := io.Pipe()
	d := &Daemon{Signals: make(chan os.Signal, 2), done: make(chan int, 1)}
	m := cli.Main{
		Commands: commands,
		Stdin:    strings.NewReader(""), Stdout: writer, Stderr: writer, Signals: d.Signals,
		Getenv: func(name string) (string, bool) {
			v, ok := env[name]
			if !ok && name == "PROGRESSOR_OUTGOING_ALLOW" { // the targets of tests are on this machine
				return "loopback", true
			}
			return v, ok
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		d.done <- m.Run(ctx, args)
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		cancel()
		d.Await(t)
	})
	all := io.TeeReader(reader, &d.Log)
	lines := bufio.NewScanner(all)
	for d.URL == "" && lines.Scan() {
		d.Output += lines.Text() + "\n"
		if line := lines.Text(); strings.Contains(line, "API") || strings.Contains(line, `"msg":"ready"`) {
			d.URL = URLInLine.FindString(line)
		}
	}
	if d.URL == "" {
		t.Fatalf("progressor %s ended:\n%s", strings.Join(args, " "), d.Output)
	}
	go func() { _, _ = io.Copy(io.Discard, all) }()
	d.Client = Program{Commands: commands, Env: map[string]string{"PROGRESSOR_ADDRESS": d.URL}}
	return d
}

// Await returns the exit code of a daemon that was asked to stop.
func (d *Daemon) Await(t *testing.T) int {
	t.Helper()
	select {
	case code := <-d.done:
		d.done <- code // for the next caller
		return code
	case <-time.After(DaemonWait):
		t.Error("the program did not stop")
		return -1
	}
}

// Stop sends SIGTERM and waits for the end.
func (d *Daemon) Stop(t *testing.T) {
	t.Helper()
	d.Signals <- syscall.SIGTERM
	if code := d.Await(t); code != cli.ExitOK {
		t.Errorf("code %d after SIGTERM", code)
	}
}

// Fetch returns the status and the body of a page.
func Fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
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
