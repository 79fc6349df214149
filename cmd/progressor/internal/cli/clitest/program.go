package clitest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Result is the outcome of a command line.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Program runs command lines with its own environment and input.
type Program struct {
	Commands    func(name string) any // see Main.Commands
	Env         map[string]string
	Stdin       string
	Terminal    bool // Stderr is a terminal
	Columns     int  // width of Stdout if it is a terminal
	Interactive bool
	Zone        *time.Location // for times on a terminal
}

// Run runs a command line.
func (p Program) Run(t *testing.T, args ...string) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := p.run(t, &stdout, &stderr, args)
	return Result{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
}

// Start starts a command line. wait returns its exit code.
func (p Program) Start(t *testing.T, args ...string) (output *LockedBuffer, wait func() int) {
	t.Helper()
	output = &LockedBuffer{}
	code := make(chan int, 1)
	go func() { code <- p.run(t, output, output, args) }()
	return output, func() int { return <-code }
}

func (p Program) run(t *testing.T, stdout, stderr io.Writer, args []string) int {
	t.Helper()
	size := func() (columns, lines int) { return p.Columns, 24 }
	m := cli.Main{
		Commands:    p.Commands,
		Stdin:       strings.NewReader(p.Stdin),
		Stdout:      stdout,
		Stderr:      stderr,
		Signals:     make(chan os.Signal),
		Terminal:    p.Terminal,
		Interactive: p.Interactive,
		Zone:        p.Zone,
		Getenv: func(name string) (string, bool) {
			v, ok := p.Env[name]
			return v, ok
		},
		Environ: func() (all []string) {
			for name, value := range p.Env {
				all = append(all, name+"="+value)
			}
			return all
		},
	}
	if p.Columns > 0 {
		m.StdoutSize = size
	}
	if p.Terminal {
		m.StderrSize = size
	}
	return m.Run(t.Context(), args)
}

// OK runs a command line that must exit with code 0 and returns its output.
func (p Program) OK(t *testing.T, args ...string) string {
	t.Helper()
	r := p.Run(t, args...)
	if r.Code != cli.ExitOK {
		t.Fatalf("progressor %s: code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// WantLines checks that the output contains texts, with any number of spaces between two columns.
func WantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	narrow := regexp.MustCompile(` {2,}`)
	for _, line := range lines {
		if !strings.Contains(narrow.ReplaceAllString(text, " "), narrow.ReplaceAllString(line, " ")) {
			t.Errorf("missing %q in:\n%s", line, text)
		}
	}
}

// WantRequest compares two requests, except for their idempotency keys.
func WantRequest(t *testing.T, got any, want proto.Message) {
	t.Helper()
	ignoreKey := protocmp.IgnoreFields(&progressorv1.CallRequest{}, "idempotency_key")
	ignoreStartKey := protocmp.IgnoreFields(&progressorv1.StartRequest{}, "idempotency_key")
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignoreKey, ignoreStartKey); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// Eventually calls look until it returns nil. After a while, it calls look less often.
func Eventually(t *testing.T, what string, look func() error) {
	t.Helper()
	begin, end := time.Now(), time.After(DaemonWait)
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-time.After(min(max(time.Since(begin)/8, 5*time.Millisecond), 50*time.Millisecond)):
		case <-end:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// LockedBuffer holds the output of a command so far. It is safe for concurrent use.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// WriteConfig writes a configuration file and returns its path.
func WriteConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "progressor.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TemplateFile writes a file with a template and returns its path.
func TemplateFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
