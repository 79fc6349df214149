package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func runnerOf(command string) *executor {
	return &executor{command: command, environ: os.Environ(), maxOutput: 1 << 16, grace: 50 * time.Millisecond,
		groups: map[int]struct{}{}}
}

func jobRequest(args string) *progressorv1.ProcessRequest {
	return &progressorv1.ProcessRequest{
		JobName: "work", Args: []byte(args), Attempt: 2, TaskId: 7, FencingToken: 8,
		Deadline: timestamppb.New(time.Unix(1e9, 0)),
		Process:  &progressorv1.Process{Namespace: "n", ProcessId: "j"},
	}
}

// If a command succeeds, its output is the result of the job. Otherwise, the failure of the job has
// a reason.
func TestExecuted(t *testing.T) {
	for _, tt := range []struct{ command, args, result, reason, message string }{
		{"cat", `{"a":[1,true]}`, `{"a":[1,true]}`, "", ""},
		{"cat", ``, `null`, "", ""},
		{"true", ``, `null`, "", ""},
		{"echo hello; echo you", ``, `"hello\nyou"`, "", ""},
		{`printf '\377'`, ``, `"` + "\uFFFD" + `"`, "", ""},
		{`echo "\"$PROGRESSOR_NAMESPACE $PROGRESSOR_JOB_ID $PROGRESSOR_JOB_NAME $PROGRESSOR_ATTEMPT ` +
			`$PROGRESSOR_TASK_ID $PROGRESSOR_FENCING_TOKEN $PROGRESSOR_DEADLINE\""`,
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
			if !ok || failure.Failure.GetReason() != tt.reason ||
				!strings.Contains(failure.Failure.GetMessage(), tt.message) ||
				strings.Contains(failure.Failure.GetMessage(), "\n900\n") {
				t.Errorf("%s: %v", tt.command, err)
			}
			continue
		}
		text, _ := resp.GetResult().GetJobResult().MarshalJSON()
		if got := strings.ReplaceAll(string(text), " ", ""); err != nil ||
			got != strings.ReplaceAll(tt.result, " ", "") {
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
		t.Error("a command used 100 MB despite the limit")
	}
	e.maxMemory = 1 << 30
	if _, err := e.Process(t.Context(), jobRequest("")); err != nil {
		t.Error(err)
	}
}

// When an attempt is cancelled, all processes of its group are killed, even if they ignore SIGTERM.
func TestCancelKillsTheGroup(t *testing.T) {
	for _, command := range []string{"sleep 600", "trap '' TERM; sleep 600 & sleep 600; sleep 600",
		"trap 'exit 0' TERM; sleep 600 & wait"} {
		pid := filepath.Join(t.TempDir(), "pid")
		e := runnerOf("echo $$ > " + pid + ".new; mv " + pid + ".new " + pid + "; " + command)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.Process(ctx, jobRequest(""))
			done <- err
		}()
		var text []byte
		clitest.Eventually(t, command+" runs", func() (err error) {
			text, err = os.ReadFile(pid)
			return err
		})
		cancel(&client.CancelError{Reason: "enough"})
		if _, cancelled := errors.AsType[*client.CancelError](<-done); !cancelled {
			t.Errorf("%s: the error is not the cause of the cancel", command)
		}
		group, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		clitest.Eventually(t, command+": no process is left", func() error {
			if err := unix.Kill(-group, 0); err == nil {
				return errors.New("a process is left")
			}
			return nil
		})
	}
}

func TestProgressLines(t *testing.T) {
	for line, want := range map[string]struct {
		percent float64
		summary string
		ok      bool
	}{
		"40 half of it": {40, "half of it", true}, "12.5%": {12.5, "", true},
		` {"percent": 7, "summary": "s"}`: {7, "s", true},
		"half":                            {}, "{": {}, "": {},
	} {
		if percent, summary, _, ok := parseProgress(line); percent != want.percent && want.ok || ok != want.ok ||
			ok && summary != want.summary {
			t.Errorf("%q: %v %q %v", line, percent, summary, ok)
		}
	}
}

// A failing command can set the time of the next attempt, even if it leaves behind a process that
// holds the file open.
func TestExecutedRetryAfter(t *testing.T) {
	// This process ends when the test has removed its directory, or after a minute if the test is
	// killed.
	stays := fmt.Sprintf(`setsid sh -c 'n=0; while [ -e %q ] && [ $((n += 1)) -lt 600 ]; do sleep 0.1; done' & `,
		t.TempDir())
	for command, want := range map[string]time.Duration{
		"echo retry_after 90s >&3; exit 1": 90 * time.Second, "echo retry_after soon >&3; exit 1": 0, "exit 1": 0,
		stays + "echo retry_after 1ms >&3; exit 1": time.Millisecond,
	} {
		_, err := runnerOf(command).Process(t.Context(), jobRequest(""))
		failure, ok := errors.AsType[*processor.FailureError](err)
		if !ok || failure.Failure.GetRetryAfter().AsDuration() != want {
			t.Errorf("%s: %v", command, err)
		}
	}
}
