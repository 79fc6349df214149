package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// openTerminal returns both ends of a pseudo terminal.
func openTerminal(t *testing.T, columns, lines uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals are available: ", err)
	}
	t.Cleanup(func() { user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := &unix.Winsize{Col: columns, Row: lines}
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	return user, program
}

// program returns the command that runs progressor, with variables as NAME=value.
func program(t *testing.T, variables []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(variables, programVariable+"=1", "TERM=xterm", "HOME="+t.TempDir(), "PATH="+os.Getenv("PATH"))
	return c
}

// onTerminal runs progressor on a terminal and returns its output.
func onTerminal(t *testing.T, columns uint16, variables []string, args ...string) string {
	t.Helper()
	user, end := openTerminal(t, columns, 24)
	c := program(t, variables, args...)
	c.Stdin, c.Stdout, c.Stderr = end, end, end
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	var text strings.Builder
	_, _ = io.Copy(&text, user) // ends with EIO when the program has ended
	_ = c.Wait()
	return strings.ReplaceAll(text.String(), "\r\n", "\n")
}

var escapeSequence = regexp.MustCompile("\x1b\\[[0-9;]*m")

// On a terminal, tables fit, statuses and errors have colors, and times are short and local. In a
// pipe, and with --color never or NO_COLOR, there are no colors.
func TestTerminal(t *testing.T) {
	t.Parallel()
	at := time.Date(2020, 1, 2, 22, 4, 5, 6e6, time.UTC)
	p := clitest.Serve(t, newCommands, &clitest.Engine{
		Pages: []*progressorv1.ListProcessesResponse{{Processes: []*progressorv1.Process{{
			Namespace: "demo", ProcessId: "order-1", Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
			CreatedTime: timestamppb.New(at), StatusChangedTime: timestamppb.New(at),
			Detail: strings.Repeat("the goods broke while they were packed ", 4),
		}}}},
	})
	variables := []string{"PROGRESSOR_ADDRESS=" + p.Env["PROGRESSOR_ADDRESS"], "TZ=Asia/Tokyo"}
	text := onTerminal(t, 100, variables, "list", "demo")
	for _, part := range []string{"\x1b[31mERROR\x1b[0m", "2020-01-03 07:04:05", "…"} {
		if !strings.Contains(text, part) {
			t.Errorf("missing %q in %q", part, text)
		}
	}
	for line := range strings.Lines(escapeSequence.ReplaceAllString(text, "")) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if text := onTerminal(t, 100, variables, "list"); !strings.HasPrefix(text, "\x1b[31mprogressor:\x1b[0m expected") {
		t.Errorf("an error: %q", text)
	}
	for _, text := range []string{
		onTerminal(t, 100, variables, "list", "demo", "--color", "never"),
		onTerminal(t, 100, append(variables, "NO_COLOR=1"), "list", "demo"),
		onTerminal(t, 100, append(variables, "NO_COLOR=1"), "list"),
		onTerminal(t, 100, append(variables, "PROGRESSOR_COLOR=never"), "list"),
	} {
		if strings.Contains(text, "\x1b") || text == "" {
			t.Errorf("colors in %q", text)
		}
	}
	pipe, err := program(t, variables, "list", "demo").Output()
	if err != nil || !strings.Contains(string(pipe), "2020-01-02T22:04:05.006Z") ||
		strings.Contains(string(pipe), "…") || strings.Contains(string(pipe), "\x1b") {
		t.Errorf("%q, %v", pipe, err)
	}
	if pipe, err = program(t, variables, "list", "demo", "--color=always").Output(); err != nil ||
		!strings.Contains(string(pipe), "\x1b[31mERROR") {
		t.Errorf("%q, %v", pipe, err)
	}
}

// TAB completes commands, flags and values in real shells.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	p := clitest.Serve(t, newCommands, completeEngine())
	for shell, args := range map[string][]string{"bash": {"--norc", "--noprofile", "-i"}, "zsh": {"-f", "-i"}} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip("not installed")
			}
			s := startShell(t, path, p.Env["PROGRESSOR_ADDRESS"], args...)
			s.load(t, shell)
			s.want(t, "progressor compl\t", "progressor completion ")
			s.want(t, "progressor job list --sta\t", "progressor job list --state ")
			s.want(t, "progressor list demo --status=susp\t", "progressor list demo --status=suspended ")
			s.want(t, "progressor cron pause demo ni\t", "progressor cron pause demo nightly ")
			s.want(t, "progressor get demo order:1\t", "progressor get demo order:1 ")
			s.want(t, "progressor put demo x -f no-su\t", "progressor put demo x -f no-such-file.yaml ")
		})
	}
}

// fish also completes words. The test calls it without a terminal, because fish redraws its line.
func TestFishCompletes(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("not installed")
	}
	p := clitest.Serve(t, newCommands, completeEngine())
	for line, want := range map[string]string{
		"progressor compl":                   "completion\tPrint a completion script for a shell\n",
		"progressor list demo --status=susp": "--status=suspended\n",
		"progressor get demo ":               "order:1\norder:2\n",
		"progressor put demo x -f no-su":     "no-such-file.yaml\n",
	} {
		c := exec.CommandContext(t.Context(), path, "--no-config", "-c",
			"progressor completion fish | source; complete -C \""+line+"\"")
		c.Dir, c.Env = shellEnvironment(t, p.Env["PROGRESSOR_ADDRESS"])
		if out, err := c.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", line, out, err)
		}
	}
}

// shellEnvironment returns a directory with a file, and variables with which a shell finds
// progressor.
func shellEnvironment(t *testing.T, address string) (work string, variables []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, work := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "progressor")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "no-such-file.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return work, []string{programVariable + "=1", "PROGRESSOR_ADDRESS=" + address, "TERM=xterm", "PS1=ready> ",
		"HOME=" + work, "PATH=" + dir + ":" + os.Getenv("PATH")}
}

// typedShell is an interactive shell on a terminal.
type typedShell struct {
	user *os.File
	read chan byte
	text strings.Builder
}

func startShell(t *testing.T, path, address string, args ...string) *typedShell {
	t.Helper()
	user, end := openTerminal(t, 200, 50)
	c := exec.CommandContext(t.Context(), path, args...)
	c.Dir, c.Env = shellEnvironment(t, address)
	c.Stdin, c.Stdout, c.Stderr = end, end, end
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	s := &typedShell{user: user, read: make(chan byte, 1<<16)}
	go func() {
		defer close(s.read)
		buffer := make([]byte, 4096)
		for {
			n, err := user.Read(buffer)
			for _, b := range buffer[:n] {
				s.read <- b
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// load loads the completion script as --help describes.
func (s *typedShell) load(t *testing.T, shell string) {
	t.Helper()
	s.send(t, map[string]string{
		"bash": "source <(progressor completion bash); echo load''ed\r",
		"zsh":  "autoload -Uz compinit && compinit -u && source <(progressor completion zsh); echo load''ed\r",
	}[shell])
	s.await(t, "loaded")
}

func (s *typedShell) send(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(s.user, keys); err != nil {
		t.Fatal(err)
	}
}

// await waits until the shell has written a text.
func (s *typedShell) await(t *testing.T, text string) {
	t.Helper()
	end := time.After(clitest.DaemonWait)
	for !strings.Contains(visible(s.text.String()), text) {
		select {
		case b, ok := <-s.read:
			if !ok {
				t.Fatalf("the shell ended: %q", s.text.String())
			}
			s.text.WriteByte(b)
		case <-end:
			t.Fatalf("missing %q in %q", text, s.text.String())
		}
	}
	s.text.Reset()
}

// want types keys, waits until the terminal shows line, and discards the line.
func (s *typedShell) want(t *testing.T, keys, line string) {
	t.Helper()
	s.send(t, keys)
	s.await(t, line)
	s.send(t, "\x15") // Ctrl-U discards the line; Ctrl-C would also discard the next keys
}

var controlSequence = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|[>=(].?)|\r|\x07")

// visible returns the text that a terminal shows, without control sequences and deleted characters.
func visible(text string) string {
	var line []rune
	for _, r := range controlSequence.ReplaceAllString(text, "") {
		if r == '\b' && len(line) > 0 {
			line = line[:len(line)-1]
			continue
		}
		line = append(line, r)
	}
	return string(line)
}
