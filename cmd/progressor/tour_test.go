package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

var update = flag.Bool("update", false, "update the output of the commands in README.md and docs/")

// touredPages are the pages whose commands TestTour runs. Each page has its own engine and its own
// shell, and its commands run in order.
var touredPages = []string{
	"README.md", "docs/tour.md", "docs/constraints.md", "docs/crons.md", "docs/flows.md", "docs/jobs.md", "docs/sql.md",
	"docs/operations.md", "docs/troubleshooting.md", "docs/workers.md",
	"docs/quickstart/curl.md", "docs/quickstart/functions.md", "docs/quickstart/go.md", "docs/quickstart/node.md",
	"docs/quickstart/python.md",
}

const (
	// tourWait limits the time for one page.
	tourWait = 4 * time.Minute
	// tourTimeout is how long a block that waits for an event is repeated.
	tourTimeout = 45 * time.Second
)

// TestTour runs the blocks of sh and sql between <!-- tour --> and <!-- /tour -->. Their output is
// in the following block of text; -update writes it there.
func TestTour(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts its own PostgreSQL")
	}
	program := filepath.Join(t.TempDir(), "progressor")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, page := range touredPages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			tour(t, program, filepath.Join("../..", page))
		})
	}
}

func tour(t *testing.T, program, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := tourBlocks(string(text))
	if len(blocks) == 0 {
		t.Fatal("the page has no commands")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(program, filepath.Join(dir, "bin", "progressor")); err != nil {
		t.Fatal(err)
	}
	workspace(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), tourWait)
	defer cancel()
	address := runDev(ctx, t, dir)
	// The addresses on the page, and the free ones that replace them.
	here := map[string]string{"8080": address[strings.LastIndex(address, ":")+1:]}
	for _, m := range tourPort.FindAllStringSubmatch(string(text), -1) {
		if here[m[1]] == "" {
			here[m[1]] = freePort(t)
		}
	}
	shell := openShell(ctx, t, dir, "http://"+address)
	for n := range blocks {
		b := &blocks[n]
		t.Run(b.name(), func(t *testing.T) { b.check(ctx, t, shell, here) })
	}
	if *update {
		if err := os.WriteFile(page, []byte(written(string(text), blocks)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tourBlock is one block of commands, with its output.
type tourBlock struct {
	language, commands string
	needs              []string // programs that are not installed everywhere
	// Only the first line is compared: the rest comes from PostgreSQL and differs from run to run.
	varies   bool
	shown    bool // a block of text follows
	output   string
	from, to int // position of the output in the page
	printed  string
}

var (
	// tourPort matches the addresses at which the programs of a page listen, and the ports in calls
	// of functions named listen.
	tourPort  = regexp.MustCompile(`(?:\b127\.0\.0\.1[:", ]+|listen\()(9\d{3})\b`)
	tourPart  = regexp.MustCompile(`(?s)<!-- tour -->\n(.*?)<!-- /tour -->`)
	tourNote  = regexp.MustCompile(`<!-- (.*) -->`)
	tourFence = regexp.MustCompile(
		"(?s)((?:<!-- (?:needs [a-z0-9 ]+|varies) -->\n)*)```(sh|sql)\n(.*?)```\n(?:\n?```text\n(.*?)```\n)?")
)

func tourBlocks(page string) []tourBlock {
	var blocks []tourBlock
	for _, part := range tourPart.FindAllStringSubmatchIndex(page, -1) {
		inside := page[part[2]:part[3]]
		for _, m := range tourFence.FindAllStringSubmatchIndex(inside, -1) {
			b := tourBlock{language: inside[m[4]:m[5]], commands: inside[m[6]:m[7]]}
			if b.language == "sql" {
				b.needs = []string{"psql"}
			}
			for _, note := range tourNote.FindAllStringSubmatch(inside[m[2]:m[3]], -1) {
				needs, ok := strings.CutPrefix(note[1], "needs ")
				if b.varies = b.varies || !ok; ok {
					b.needs = strings.Fields(needs)
				}
			}
			if m[8] >= 0 {
				b.shown, b.output, b.from, b.to = true, inside[m[8]:m[9]], part[2]+m[8], part[2]+m[9]
			}
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func (b *tourBlock) name() string {
	first, _, _ := strings.Cut(b.commands, "\n")
	return strings.ReplaceAll(first[:min(len(first), 60)], "/", "|")
}

// check runs a block and compares the shape of its output. A block that begins with sleep waits for
// an event. On a busy machine this may take longer, so the block is repeated for a while.
func (b *tourBlock) check(ctx context.Context, t *testing.T, shell *shell, here map[string]string) {
	for _, program := range b.needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	commands, back := b.commands, b.output
	if b.language == "sql" {
		commands = "psql -X \"$(cat .progressor/dsn)\" <<'SQL'\n" + commands + "SQL\n"
	}
	for written, real := range here {
		commands = regexp.MustCompile(`\b`+written+`\b`).ReplaceAllString(commands, real)
	}
	repeats := strings.HasPrefix(commands, "sleep ")
	for began := time.Now(); ; {
		output, code := shell.run(ctx, t, commands)
		for written, real := range here {
			output = regexp.MustCompile(`\b`+real+`\b`).ReplaceAllString(output, written)
		}
		b.printed = output
		same := !b.shown || b.shape(output) == b.shape(back)
		if *update {
			return
		}
		if same && b.codeFits(code) {
			return
		}
		if !repeats || time.Since(began) > tourTimeout {
			t.Errorf("code %d, printed:\n%s\nthe page shows:\n%s\n"+
				"(go test ./cmd/progressor -run TestTour -update writes it there)", code, output, back)
			return
		}
	}
}

// codeFits reports whether the exit code of a block matches the page: 0, or another code if the
// last line on the page is an error of the program.
func (b *tourBlock) codeFits(code int) bool {
	lines := strings.Split(strings.TrimSpace(b.output), "\n")
	return (code != 0) == strings.HasPrefix(lines[len(lines)-1], "progressor: ")
}

// shapes match the text that differs from run to run.
var shapes = []struct {
	pattern *regexp.Regexp
	shape   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d)?`), "TIME"},
	{regexp.MustCompile(`-?\d\d:\d\d:\d\d(\.\d+)?`), "INTERVAL"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\(in \d+m\d+(\.\d+)?s\)`), "(in DURATION)"}, // until a timer fires
	{regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+ (bytes|kB|MB)`), "SIZE"},
	{regexp.MustCompile(`"taskId": ?"\d+"`), "TASK"},
	// A rejected request uses up a number and is sent again.
	{regexp.MustCompile(`\b([Tt]ask) \d+`), "$1 N"},
	{regexp.MustCompile(`(schema version|this program needs) \d+`), "$1 N"},
	{regexp.MustCompile(`[-+]{3,}`), "---"},
	// protobuf adds spaces to its JSON, depending on the build.
	{regexp.MustCompile(`([,:{]) +`), "$1"},
	{regexp.MustCompile(`[ \t]+`), " "},
	// A timeline: task numbers are shared by all processes, and the bars are to scale.
	{regexp.MustCompile(`(TIME DURATION…? [a-z ]+) \d+ `), "$1 TASK "},
	{regexp.MustCompile(`[█▒░·]+`), "BAR"},
	{regexp.MustCompile(` *\n`), "\n"},
}

func (b *tourBlock) shape(output string) string {
	if b.varies {
		output, _, _ = strings.Cut(output, "\n")
	}
	for _, s := range shapes {
		output = s.pattern.ReplaceAllString(output, s.shape)
	}
	return strings.TrimSpace(output)
}

// written returns the page with the actual output of each block whose output differs in more than
// the times.
func written(page string, blocks []tourBlock) string {
	for n := len(blocks) - 1; n >= 0; n-- {
		b := blocks[n]
		if b.shown && b.printed != "" && b.shape(b.printed) != b.shape(b.output) {
			lines := strings.Split(strings.TrimRight(b.printed, "\n"), "\n")
			for i := range lines {
				lines[i] = strings.TrimRight(lines[i], " ")
			}
			page = page[:b.from] + strings.Join(lines, "\n") + "\n" + page[b.to:]
		}
	}
	return page
}

// workspace lets Go programs in dir import this module, as they do in the repository. The link sdk
// in dir leads to the SDKs of the repository.
func workspace(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go \S+$`).FindString(readPage(t, "go.mod"))
	if err := os.WriteFile(filepath.Join(dir, "go.work"), []byte(version+"\n\nuse "+root+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "sdk"), filepath.Join(dir, "sdk")); err != nil {
		t.Fatal(err)
	}
}

// runDev runs progressor dev in dir as a separate program until the test ends, and returns its
// address.
func runDev(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	// The context of the test ends before its cleanup, which stops the program as a user does.
	dev := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(dir, "bin", "progressor"), "dev", "--listen",
		"127.0.0.1:0", "--engine.drain-timeout", "1s")
	dev.Dir = dir
	dev.Stderr = os.Stderr
	dev.Env = append(os.Environ(), "PROGRESSOR_LOG_LEVEL=error")
	stdout, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url := clitest.URLInLine.FindString(lines.Text()); url != "" {
			drained := make(chan struct{})
			go func() { _, _ = io.Copy(io.Discard, stdout); close(drained) }()
			t.Cleanup(func() {
				_ = dev.Process.Signal(syscall.SIGTERM)
				<-drained
				if err := dev.Wait(); err != nil {
					t.Errorf("progressor dev after SIGTERM: %v", err)
				}
			})
			return strings.TrimPrefix(url, "http://")
		}
	}
	t.Fatalf("progressor dev ended: %v", dev.Wait())
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}

// shell runs all blocks of a page, so variables of one block are also set in the next one.
type shell struct {
	in   io.Writer
	out  *bufio.Reader
	mark string
}

func openShell(ctx context.Context, t *testing.T, dir, address string) *shell {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	bash := exec.CommandContext(ctx, path, "--norc", "--noprofile")
	bash.Dir = dir
	bash.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C.UTF-8", "PROGRESSOR_ADDRESS="+address,
		"PYTHONDONTWRITEBYTECODE=1") // the symbolic link sdk leads to the working tree
	for _, name := range []string{"GOMODCACHE", "GOCACHE"} { // the filled caches are in the real HOME of the user
		value, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			t.Fatalf("go env %s: %v", name, err)
		}
		bash.Env = append(bash.Env, name+"="+strings.TrimSpace(string(value)))
	}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	bash.WaitDelay = clitest.DaemonWait
	in, err := bash.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := bash.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bash.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) // including what it runs in the background
		_ = bash.Wait()
	})
	return &shell{in: in, out: bufio.NewReader(out), mark: uuid.NewString()}
}

// run runs one block in the shell and returns its output, including errors, and its exit code.
func (s *shell) run(ctx context.Context, t *testing.T, commands string) (string, int) {
	t.Helper()
	fmt.Fprintf(s.in, "{\n%s\n} </dev/null 2>&1\nprintf '\\n%s %%d\\n' $?\n", commands, s.mark)
	var output strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the shell ended (%v, %v) after:\n%s", err, context.Cause(ctx), output.String())
		}
		var code int
		if n, _ := fmt.Sscanf(line, s.mark+" %d", &code); n == 1 {
			return strings.TrimSuffix(output.String(), "\n"), code
		}
		output.WriteString(line)
	}
}
