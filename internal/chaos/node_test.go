//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// node is one engine: a process of the real program.
type node struct {
	t    testing.TB
	name string // its address in table nodes
	url  string
	log  *logBook
	cmd  *exec.Cmd
	done chan struct{}
}

// startNode starts an engine with a lease of one second and waits until it accepts requests. The
// engine ends with the test.
func startNode(t testing.TB, name, dsn string, args ...string) *node {
	t.Helper()
	return startProgram(t, program.path(t), name, dsn, args...)
}

// startProgram starts an engine from another build of the program.
func startProgram(t testing.TB, path, name, dsn string, args ...string) *node {
	t.Helper()
	n := &node{t: t, name: name, log: newLogBook(), done: make(chan struct{})}
	n.cmd = exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn,
		"--engine.address", name, "--engine.zombie-after", "1s", "--log.format", "json"}, args...)...)
	n.cmd.Env = append(os.Environ(), "PROGRESSOR_OUTGOING_ALLOW=loopback") // older builds do not have the flag
	n.cmd.Stderr = n.log
	// The kernel kills the engine when the thread that started it ends. This thread ends with the
	// engine or with the test binary.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := n.cmd.Start()
		started <- err
		if err == nil {
			_ = n.cmd.Wait() // the state has more details
			close(n.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the log of engine %s ends:\n%s", name, n.log.tail(40))
		}
	})
	select {
	case n.url = <-n.log.ready:
	case <-n.done:
		t.Fatalf("engine %s ended while it started:\n%s", name, n.log.tail(40))
	case <-time.After(testTimeout):
		t.Fatalf("engine %s does not become ready:\n%s", name, n.log.tail(40))
	}
	return n
}

func (n *node) signal(s syscall.Signal) { _ = n.cmd.Process.Signal(s) } // fails if the engine has ended

// kill ends the engine at once, even if it is stopped, and waits for its end.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	<-n.done
}

// terminate asks the engine to end and returns its exit code.
func (n *node) terminate() int {
	n.signal(syscall.SIGTERM)
	return n.exit()
}

// exit waits for the end and returns the exit code.
func (n *node) exit() int {
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode()
	case <-time.After(testTimeout):
		n.t.Errorf("engine %s does not end", n.name)
		return -1
	}
}

// get requests a page of the engine. It returns 0 and "" if there is no response.
func (n *node) get(path string) (int, string) {
	asker := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := asker.Get(n.url + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

func (n *node) isReady() bool {
	code, _ := n.get("/readyz")
	return code == http.StatusOK
}

// metric returns the sum of a metric over its labels.
func (n *node) metric(name string) float64 {
	_, scrape := n.get("/metrics")
	return sumOf(scrape, name)
}

// sumOf returns the sum of a metric over its labels in a scrape.
func sumOf(scrape, name string) float64 {
	sum := 0.0
	for line := range strings.SplitSeq(scrape, "\n") {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			sum += value
		}
	}
	return sum
}

// logBook keeps the log of an engine and finds the line with its listen address.
type logBook struct {
	ready chan string

	mutex    sync.Mutex
	text     bytes.Buffer
	reported bool
}

func newLogBook() *logBook { return &logBook{ready: make(chan string, 1)} }

var readyLine = regexp.MustCompile(`"msg":"ready".*"url":"(http://[^"]+)"`)

// Write implements io.Writer.
func (l *logBook) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.text.Write(p)
	if !l.reported {
		if m := readyLine.FindSubmatch(l.text.Bytes()); m != nil {
			l.reported = true
			l.ready <- string(m[1])
		}
	}
	return len(p), nil
}

func (l *logBook) tail(n int) string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(l.text.Bytes()))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// has reports whether a logged line contains the text.
func (l *logBook) has(text string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return bytes.Contains(l.text.Bytes(), []byte(text))
}
