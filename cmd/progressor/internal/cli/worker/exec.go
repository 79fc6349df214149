package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	defaultMaxOutput = 1 << 20
	stderrLines      = 20      // maximum number of lines of standard error in a failure
	stderrBytes      = 4 << 10 // maximum size of these lines
	strayWait        = time.Second
)

// executor runs a command for each job.
type executor struct {
	command   string
	environ   []string
	workerID  string
	maxOutput int
	maxMemory int64 // bytes; 0 means no limit
	grace     time.Duration

	mu     sync.Mutex
	groups map[int]struct{} // groups of running processes
}

// Process runs the command for the job of a task.
func (e *executor) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if req.GetJobName() == "" {
		return nil, processor.Fail(processor.ReasonNotHandled,
			"a command runs jobs only, and this process is not a job").NonRetryable()
	}
	stdout, stderr := &limitedOutput{limit: e.maxOutput, full: make(chan struct{})}, &tail{}
	report := newCommandReport()
	state, err := e.run(ctx, req, stdout, stderr, report)
	switch {
	case stdout.over():
		return nil, processor.Fail("output_too_large", "more than %d bytes on standard output",
			e.maxOutput).NonRetryable()
	case ctx.Err() != nil: // after SIGTERM, exit code 0 does not mean success
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, processor.Fail("exec", "cannot run the command: %w", err)
	case state.Success():
		value, err := resultOf(stdout.b.Bytes())
		if err != nil {
			return nil, processor.Fail("bad_result", "standard output is not a valid result: %w", err).NonRetryable()
		}
		return client.JobDone(value), nil
	}
	failure := processor.Fail(exitReason(state), "%s", stderr.message(state))
	if report.retryAfter > 0 {
		failure = failure.RetryAfter(report.retryAfter)
	}
	return nil, failure
}

// run runs the command until it exits or ctx ends.
func (e *executor) run(
	ctx context.Context, req *progressorv1.ProcessRequest, stdout *limitedOutput, stderr *tail, report *commandReport,
) (*os.ProcessState, error) {
	args := []string{"-c", e.command}
	if e.maxMemory > 0 {
		args = []string{"-c", `ulimit -v "$1" && exec /bin/sh -c "$0"`, e.command,
			strconv.FormatInt(e.maxMemory>>10, 10)}
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.Env = append(e.environment(req), progressVariable(ctx)...)
	text := req.GetArgs()
	if len(text) == 0 {
		text = []byte("null")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = strayWait // background processes of the command may keep its output open
	progress, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer progress.Close()
	cmd.ExtraFiles = []*os.File{writer}
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return nil, err
	}
	group := cmd.Process.Pid
	e.enter(group)
	go report.read(ctx, progress)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { e.watch(ctx, group, stdout.full, ended) })
	err = cmd.Wait()
	close(ended)
	watch.Wait()
	e.leave(group)
	_ = progress.SetReadDeadline(time.Now().Add(strayWait)) // a process outside of the group may keep it open
	<-report.done
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ProcessState, nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return cmd.ProcessState, err
}

// watch waits until the command has ended, its output is too large, or ctx ends. In the last two
// cases, it sends SIGTERM to the process group, and SIGKILL after the grace period.
func (e *executor) watch(ctx context.Context, group int, full, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-full:
	case <-ctx.Done():
	}
	_ = unix.Kill(-group, unix.SIGTERM) // it may have exited
	grace := time.NewTimer(e.grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}

func (e *executor) enter(group int) {
	e.mu.Lock()
	e.groups[group] = struct{}{}
	e.mu.Unlock()
}

// leave kills the background processes of a command. The ID of a process group is not reused while
// the group has members.
func (e *executor) leave(group int) {
	_ = unix.Kill(-group, unix.SIGKILL)
	e.mu.Lock()
	delete(e.groups, group)
	e.mu.Unlock()
}

func (e *executor) killAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for group := range e.groups {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}

// environment returns the environment of a command. It consists of the worker's environment and the
// variables of the job. It omits variables that only the worker needs, such as a DSN.
func (e *executor) environment(req *progressorv1.ProcessRequest) []string {
	env := make([]string, 0, len(e.environ)+8)
	for _, v := range e.environ {
		if !strings.HasPrefix(v, "PROGRESSOR_") || strings.HasPrefix(v, "PROGRESSOR_ADDRESS=") {
			env = append(env, v)
		}
	}
	return append(env,
		"PROGRESSOR_NAMESPACE="+req.GetProcess().GetNamespace(),
		"PROGRESSOR_JOB_ID="+req.GetProcess().GetProcessId(),
		"PROGRESSOR_JOB_NAME="+req.GetJobName(),
		fmt.Sprint("PROGRESSOR_ATTEMPT=", req.GetAttempt()),
		fmt.Sprint("PROGRESSOR_TASK_ID=", req.GetTaskId()),
		fmt.Sprint("PROGRESSOR_FENCING_TOKEN=", req.GetFencingToken()),
		"PROGRESSOR_DEADLINE="+req.GetDeadline().AsTime().UTC().Format(time.RFC3339),
		"PROGRESSOR_WORKER_ID="+e.workerID,
	)
}

// resultOf returns the output of a command: as JSON if it is valid JSON, otherwise as text, or null
// if it is empty.
func resultOf(out []byte) (*structpb.Value, error) {
	text := strings.TrimRight(string(out), "\r\n")
	if text == "" {
		return structpb.NewNullValue(), nil
	}
	if json.Valid([]byte(text)) {
		return client.JobValue([]byte(text))
	}
	return structpb.NewStringValue(plainText(text)), nil
}

// plainText returns valid text for a message.
func plainText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// exitReason returns the reason of the failure when a command exits.
func exitReason(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "signal_" + strings.ToLower(strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG"))
	}
	return fmt.Sprint("exit_", state.ExitCode())
}

// limitedOutput stores output up to a limit.
type limitedOutput struct {
	limit int
	b     bytes.Buffer
	full  chan struct{} // closed when the limit is exceeded
}

func (o *limitedOutput) Write(p []byte) (int, error) {
	if o.b.Len()+len(p) > o.limit && !o.over() {
		close(o.full)
	}
	if !o.over() {
		o.b.Write(p)
	}
	return len(p), nil
}

func (o *limitedOutput) over() bool {
	select {
	case <-o.full:
		return true
	default:
		return false
	}
}

// tail stores the end of the output.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*stderrBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-stderrBytes:]...)
	}
	return len(p), nil
}

// message returns the last lines or, if the command wrote none, a description of its exit.
func (t *tail) message(state *os.ProcessState) string {
	text := strings.TrimSpace(plainText(string(t.b[max(0, len(t.b)-stderrBytes):])))
	if text == "" {
		return "the command exited with " + state.String()
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-stderrLines):], "\n")
}
