package remote

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const docs = "../../docs/processors.md"

// blocks returns the code blocks of one language in the page.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		found = append(found, match[1])
	}
	return found
}

// TestDocsExamples runs the processors in other languages as described in the page, with a process
// that calls them.
func TestDocsExamples(t *testing.T) {
	for _, run := range []struct{ language, command, file, way string }{
		{"python", "python3", "counter.py", "json"},
		{"python", "python3", "packed.py", "msgpack"},
		{"js", "node", "counter.mjs", "json"},
	} {
		t.Run(run.file, func(t *testing.T) {
			path, err := exec.LookPath(run.command)
			if err != nil {
				t.Skipf("%s is not installed here", run.command)
			}
			code := blocks(t, run.language)
			code = slices.DeleteFunc(code,
				func(block string) bool { return !strings.Contains(block, "application/"+run.way) })
			if len(code) != 1 {
				t.Fatalf("%d blocks of %s in %s", len(code), run.language, run.way)
			}
			file := filepath.Join(t.TempDir(), run.file)
			if err := os.WriteFile(file, []byte(code[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			url := listening(ctx, t, path, file)
			p := dialed(t, proto.CloneOf(ways[run.way]), url)
			checkCounter(ctx, t, processortest.New(p))
		})
	}
}

// listening starts the program and waits for the address that it prints.
func listening(ctx context.Context, t *testing.T, program, file string) string {
	t.Helper()
	command := exec.CommandContext(ctx, program, file, "0")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// checkCounter checks what the page says about its counter.
func checkCounter(ctx context.Context, t *testing.T, p *processortest.Process) {
	t.Helper()
	if _, err := p.Start(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for range 50 { // over reused connections
		if _, err := p.Call(ctx, []byte(`{"add":2}`)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.Call(ctx, []byte(`{"add":1}`))
	rejection, _ := errors.AsType[*processor.RejectionError](err)
	if rejection == nil || rejection.Rejection.GetReason() != "too_many" ||
		rejection.Rejection.GetMessage() != "there is room for 0" {
		t.Errorf("one too many: %v", err)
	}
	if err := p.Advance(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	response, err := p.Call(ctx, []byte(`{"add":3}`))
	if got := strings.ReplaceAll(string(response), " ", ""); err != nil || got != `{"count":3}` ||
		len(p.Events()) != 52 {
		t.Errorf("after the reset: %s, %v, %d events", got, err, len(p.Events()))
	}
	_, err = p.Call(ctx, []byte(`{"add":"x"}`))
	if rejection, _ = errors.AsType[*processor.RejectionError](err); rejection == nil ||
		rejection.Rejection.GetReason() != "bad_args" {
		t.Errorf("bad args: %v", err)
	}
	if err := p.Notify(ctx, []byte(`{"add":4}`)); err != nil || p.Status() != process.StatusRunning ||
		len(p.Events()) != 53 {
		t.Error(err, p.Status())
	}
	if err := p.Cancel(ctx, "enough"); err != nil || p.Status() != process.StatusCancelled {
		t.Error(err, p.Status())
	}
}

// TestDocsPushedJob parses the request and the responses of a pushed job in docs/workers.md.
func TestDocsPushedJob(t *testing.T) {
	page, err := os.ReadFile("../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Pushed jobs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```(http|json)\n(.*?)```").FindAllStringSubmatch(section, -1) {
		text, m := block[2], proto.Message(&progressorv1.ProcessResponse{})
		if block[1] == "http" {
			_, text, _ = strings.Cut(text, "\n\n")
			m = &progressorv1.ProcessRequest{}
		}
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		found[block[1]]++
	}
	if found["http"] != 1 || found["json"] != 2 {
		t.Errorf("%v", found)
	}
}

// TestDocsGo checks that the Go code of the page is part of a test that compiles and runs.
func TestDocsGo(t *testing.T) {
	example, err := os.ReadFile("../example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	unindented := strings.ReplaceAll(string(example), "\n\t", "\n")
	for _, start := range []string{"type Counter struct", "p := processortest.New("} {
		for _, block := range blocks(t, "go") {
			if strings.HasPrefix(block, start) && !strings.Contains(string(example), block) &&
				!strings.Contains(unindented, block) {
				t.Errorf("the block that begins with %q is not in example_test.go", start)
			}
		}
	}
}
