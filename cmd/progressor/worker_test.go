package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func runnerOf(command string) *executor {
	return &executor{command: command, environ: os.Environ(), maxOutput: 1 << 16, grace: 50 * time.Millisecond, groups: map[int]struct{}{}}
}

func jobRequest(args string) *progressorv1.ProcessRequest {
	return &progressorv1.ProcessRequest{
		JobName: "work", Args: []byte(args), Attempt: 2, TaskId: 7, FencingToken: 8, Deadline: timestamppb.New(time.Unix(1e9, 0)),
		Process: &progressorv1.Process{Namespace: "n", ProcessId: "j"},
	}
}

// The output of a command is the result. Any other exit is a failure that says why.
func TestExecuted(t *testing.T) {
	for _, tt := range []struct{ command, args, result, reason, message string }{
		{"cat", `{"a":[1,true]}`, `{"a":[1,true]}`, "", ""},
		{"cat", ``, `null`, "", ""},
		{"true", ``, `null`, "", ""},
		{"echo hello; echo you", ``, `"hello\nyou"`, "", ""},
		{`printf '\377'`, ``, `"` + "\uFFFD" + `"`, "", ""},
		{`echo "\"$PROGRESSOR_NAMESPACE $PROGRESSOR_JOB_ID $PROGRESSOR_JOB_NAME $PROGRESSOR_ATTEMPT $PROGRESSOR_TASK_ID $PROGRESSOR_FENCING_TOKEN $PROGRESSOR_DEADLINE\""`,
			``, `"n j work 2 7 8 2001-09-09T01:46:40Z"`, "", ""},
		{`echo "$PROGRESSOR_DB_DSN-$KEPT"`, ``, `"-kept"`, "", ""},
		{"echo one >&2; echo two >&2; exit 3", ``, ``, "exit_3", "one\ntwo"},
		{"exit 4", ``, ``, "exit_4", "the command exited with exit status 4"},
		{"echo 9007199254740993", ``, ``, "bad_result", "beyond 2^53"},
		{"kill -KILL $$", ``, ``, "signal_kill", "the command exited with signal: killed"},
		{"seq 1000 >&2; exit 1", ``, ``, "exit_1", "981\n"},
		{"no-such-command", ``, ``, "exit_127", "not found"},
		{"head -c 70000 /dev/zero; sleep 600", ``, ``, "output_too_large", "more than 65536 bytes"},
		{"sleep 600 & echo 1", ``, `1`, "", ""},
	} {
		e := runnerOf(tt.command)
		e.environ = append(e.environ, "PROGRESSOR_DB_DSN=secret", "KEPT=kept")
		resp, err := e.Process(t.Context(), jobRequest(tt.args))
		if tt.reason != "" {
			failure, ok := errors.AsType[*processor.FailureError](err)
			if !ok || failure.Failure.GetReason() != tt.reason || !strings.Contains(failure.Failure.GetMessage(), tt.message) || strings.Contains(failure.Failure.GetMessage(), "\n900\n") {
				t.Errorf("%s: %v", tt.command, err)
			}
			continue
		}
		text, _ := resp.GetResult().GetJobResult().MarshalJSON()
		if got := strings.ReplaceAll(string(text), " ", ""); err != nil || got != strings.ReplaceAll(tt.result, " ", "") {
			t.Errorf("%s: %s, %v", tt.command, text, err)
		}
		if len(e.groups) != 0 {
			t.Errorf("%s: groups %v", tt.command, e.groups)
		}
	}
}

func TestExecutedWithinMemory(t *testing.T) {
	e := runnerOf(`x=$(head -c 100000000 /dev/zero | tr '\0' a); echo ${#x}`)
	e.maxMemory = 32 << 20
	if _, err := e.Process(t.Context(), jobRequest("")); err == nil {
		t.Error("100 MB fit into 32")
	}
	e.maxMemory = 1 << 30
	if _, err := e.Process(t.Context(), jobRequest("")); err != nil {
		t.Error(err)
	}
}

// When an attempt is over, every process of its group is killed, even if it ignores SIGTERM.
func TestExecutedUntilTold(t *testing.T) {
	for _, command := range []string{"sleep 600", "trap '' TERM; sleep 600 & sleep 600; sleep 600", "trap 'exit 0' TERM; sleep 600 & wait"} {
		pid := filepath.Join(t.TempDir(), "pid")
		e := runnerOf("echo $$ > " + pid + ".new; mv " + pid + ".new " + pid + "; " + command)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.Process(ctx, jobRequest(""))
			done <- err
		}()
		var text []byte
		eventually(t, command+" runs", func() (err error) {
			text, err = os.ReadFile(pid)
			return err
		})
		cancel(&client.CancelError{Reason: "enough"})
		if _, told := errors.AsType[*client.CancelError](<-done); !told {
			t.Errorf("%s: the cause is not handed on", command)
		}
		group, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, command+": nobody is left", func() error {
			if err := unix.Kill(-group, 0); err == nil {
				return errors.New("somebody is")
			}
			return nil
		})
	}
}

func eventually(t *testing.T, what string, look func() error) {
	t.Helper()
	end := time.After(daemonWait)
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestProgressLines(t *testing.T) {
	for line, want := range map[string]struct {
		percent float64
		summary string
		ok      bool
	}{
		"40 half of it": {40, "half of it", true}, "12.5%": {12.5, "", true}, ` {"percent": 7, "summary": "s"}`: {7, "s", true},
		"half": {}, "{": {}, "": {},
	} {
		if percent, summary, _, ok := parseProgress(line); percent != want.percent && want.ok || ok != want.ok || ok && summary != want.summary {
			t.Errorf("%q: %v %q %v", line, percent, summary, ok)
		}
	}
}

// A command that fails can say when the next attempt may begin.
func TestExecutedRetryAfter(t *testing.T) {
	for command, want := range map[string]time.Duration{
		"echo retry_after 90s >&3; exit 1": 90 * time.Second, "echo retry_after soon >&3; exit 1": 0, "exit 1": 0,
		"setsid sh -c 'sleep 600 3>&3' & echo retry_after 1ms >&3; exit 1": time.Millisecond,
	} {
		_, err := runnerOf(command).Process(t.Context(), jobRequest(""))
		failure, ok := errors.AsType[*processor.FailureError](err)
		if !ok || failure.Failure.GetRetryAfter().AsDuration() != want {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// lockedBuffer is the output of a command so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A command runs jobs from their args to their end, with progress and cancels. On SIGTERM, the
// worker stops and releases its jobs.
func TestWorkerRun(t *testing.T) {
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.client.ok(t, "namespace", "put", "jobs", "--pull")
	c := client.New(d.url)
	enqueue := func(id, name string, args any) {
		t.Helper()
		v, err := structpb.NewValue(args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Job.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "jobs", JobId: id, Name: name, Args: v, Options: &progressorv1.JobOptions{
			KeepResult: true, Timeout: durationpb.New(time.Hour), HeartbeatInterval: durationpb.New(50 * time.Millisecond),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	job := func(id string, wait time.Duration) *progressorv1.Job {
		t.Helper()
		resp, err := c.Job.GetJob(t.Context(), &progressorv1.GetJobRequest{Namespace: "jobs", JobId: id, AwaitEnd: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetJob()
	}
	var stdout, stderr lockedBuffer
	signals, ended := make(chan os.Signal, 1), make(chan int, 1)
	m := Main{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Signals: signals, Environ: os.Environ, Getenv: func(string) (string, bool) { return "", false }}
	command := `case $PROGRESSOR_JOB_NAME in echo) cat;; break) echo no >&2; exit 9;; *) echo 30 a third >&3; exec sleep 600;; esac`
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- m.Run(ctx, []string{"worker", "--address", d.url, "--namespace", "jobs", "--job", "echo", "--job", "break", "--job", "slow",
			"--concurrency", "3", "--worker-id", "w", "--kill-grace", "1s", "--stop-grace", "0s", "--exec", command})
	}()
	t.Cleanup(func() { cancel(); ended <- <-ended })
	enqueue("e", "echo", map[string]any{"to": "ada"})
	enqueue("b", "break", nil)
	for _, id := range []string{"s-1", "s-2"} {
		enqueue(id, "slow", nil)
		eventually(t, "progress of "+id, func() error {
			if p := job(id, 0).GetProgress(); p.GetPercent() != 30 || p.GetSummary() != "a third" {
				return errors.New(p.String())
			}
			return nil
		})
	}
	if j := job("e", daemonWait); j.GetResult().GetStructValue().GetFields()["to"].GetStringValue() != "ada" || j.GetWorkerId() != "w" {
		t.Errorf("%v", j)
	}
	if f := job("b", daemonWait).GetFailures(); len(f) != 1 || f[0].GetReason() != "exit_9" || f[0].GetMessage() != "no" {
		t.Errorf("%v", f)
	}
	if _, err := c.Job.CancelJob(t.Context(), &progressorv1.CancelJobRequest{Namespace: "jobs", JobId: "s-1", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if j := job("s-1", daemonWait); j.GetState() != progressorv1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%v", j)
	}
	signals <- syscall.SIGTERM
	select {
	case code := <-ended:
		ended <- code
		if code != exitOK {
			t.Errorf("code %d", code)
		}
	case <-time.After(daemonWait):
		t.Fatal("it does not stop")
	}
	// A poll that the worker had sent before it stopped may have leased the job again for a moment.
	eventually(t, "the job is available again", func() error {
		if j := job("s-2", 0); j.GetState() != progressorv1.JobState_JOB_STATE_AVAILABLE || len(j.GetFailures()) != 0 {
			return fmt.Errorf("%v", j)
		}
		return nil
	})
	wantLines(t, stdout.String(), "TIME OUTCOME ATTEMPT TOOK JOB", "jobs/e echo", "done", "jobs/b break exit_9: no", "cancelled", "released", "jobs/s-2 slow")
}

func TestWorkerRunRefuses(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
	}{
		{"--exec true", "--namespace"},
		{"--namespace n", "--exec"},
		{"--namespace n --exec true --concurrency 0", "--concurrency: must be 1 to 1000"},
		{"--namespace n --exec true --max-output 2MiB", "--max-output: must be 1 to 1MiB"},
		{"--namespace n --exec true --max-memory 5X", "must be a size"},
		{"--namespace n --exec true --max-memory 5K", "--max-memory: must be at least 1MiB"},
	} {
		if r := (program{}).run(t, append([]string{"worker", "run"}, strings.Fields(tt.args)...)...); r.code != exitUsage || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: %+v", tt.args, r)
		}
	}
}
