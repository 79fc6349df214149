package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// errorCase is an error of the API, with the exit code and the error message of the command.
type errorCase struct {
	name string
	err  error
	code int
	want string // the whole line
}

const failed = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR

var errorCases = []errorCase{
	{
		"task failed",
		clitest.EngineError(connect.CodeAborted, "call demo/o-1: task failed", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1", TaskId: 7,
			ProcessStatus: failed,
			Failure:       &progressorv1.Failure{Reason: "out_of_stock", Message: "no book left"},
		}),
		cli.ExitTaskFailed,
		"progressor: call demo/o-1: task failed (task_failed, failure out_of_stock: no book left, task 7, " +
			"process is ERROR). Next: progressor repair demo o-1 --simple",
	},
	{
		"an invalid response, with a no-break space",
		clitest.EngineError(connect.CodeAborted,
			"task 7 of demo/o-1 failed: bad_response: proto:\u00a0(line 1:2):\nunknown field",
			&progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1", TaskId: 7,
				ProcessStatus: failed,
				Failure: &progressorv1.Failure{Reason: "bad_response",
					Message: "proto:\u00a0(line 1:2):\nunknown field"},
			}),
		cli.ExitTaskFailed,
		`progressor: task 7 of demo/o-1 failed: bad_response: proto: (line 1:2):\nunknown field (task_failed, ` +
			`failure bad_response, task 7, process is ERROR)` +
			". Next: progressor repair demo o-1 --simple",
	},
	{
		"a cancelled call",
		clitest.EngineError(connect.CodeAborted, "task 7 of demo/o-1 was cancelled", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TASK_CANCELLED, Namespace: "demo", ProcessId: "o-1", TaskId: 7,
		}),
		cli.ExitTaskFailed,
		"progressor: task 7 of demo/o-1 was cancelled (task_cancelled, task 7). Next: progressor get demo o-1",
	},
	{
		"a job in error",
		clitest.EngineError(connect.CodeFailedPrecondition, "mail/mail-3 is ERROR: it is a job: use RetryJob",
			&progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail", ProcessId: "mail-3",
				ProcessStatus: failed,
			}),
		cli.ExitConflict,
		"progressor: mail/mail-3 is ERROR: it is a job: use RetryJob (process_status, process is ERROR). Next: " +
			"progressor job retry mail mail-3",
	},
	{
		"a call of a job",
		clitest.EngineError(connect.CodeFailedPrecondition,
			"mail/mail-3 is RUNNING: it is a job, which accepts no calls", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail", ProcessId: "mail-3",
				ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			}),
		cli.ExitConflict,
		"progressor: mail/mail-3 is RUNNING: it is a job, which accepts no calls (process_status, process is " +
			"RUNNING). Next: progressor job get mail mail-3",
	},
	{
		"suspended",
		clitest.EngineError(connect.CodeFailedPrecondition, "it accepts no calls", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "demo", ProcessId: "o-1",
			ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED,
		}),
		cli.ExitConflict,
		"progressor: it accepts no calls (process_status, process is SUSPENDED). Next: progressor resume demo o-1",
	},
	{
		"rejected",
		clitest.EngineError(connect.CodeFailedPrecondition, "too late: shipped", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TASK_REJECTED, Namespace: "demo", ProcessId: "o-1", TaskId: 8,
			Rejection: &progressorv1.Rejection{Reason: "too_late", Message: "shipped", Details: []byte(`{"a": 1}`)},
		}),
		cli.ExitRejected,
		`progressor: too late: shipped (task_rejected, rejection too_late, details {"a":1}, ` +
			`task 8). Next: send another request: nothing was changed`,
	},
	{
		"not found, with a name that must be quoted",
		clitest.EngineError(connect.CodeNotFound, "process not found", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, Namespace: "my shop", ProcessId: "o-1",
		}),
		cli.ExitNotFound, "progressor: process not found (process_not_found). Next: progressor list 'my shop'",
	},
	{
		"field",
		clitest.EngineError(connect.CodeInvalidArgument, "at most 256 bytes", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TOO_LARGE, Field: "process_id",
		}),
		cli.ExitUsage, "progressor: at most 256 bytes (too_large, <id>)",
	},
	{
		"wait timeout",
		clitest.EngineError(connect.CodeDeadlineExceeded, "the wait timed out; the task continues",
			&progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, Namespace: "demo", ProcessId: "o'1",
				TaskId: 9,
			}),
		cli.ExitTimeout,
		`progressor: the wait timed out; the task continues (wait_timeout, ` +
			`task 9). Next: progressor await demo 'o'\''1' --task 9`,
	},
	{
		"wait timeout of a command without a task",
		clitest.EngineError(connect.CodeDeadlineExceeded, "the wait timed out; the task continues",
			&progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, Namespace: "demo", ProcessId: "o'1",
			}),
		cli.ExitTimeout,
		`progressor: the wait timed out; the task continues (wait_timeout). Next: progressor get demo 'o'\''1'`,
	},
	{
		"exists",
		clitest.EngineError(connect.CodeAlreadyExists, "process already exists", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, Namespace: "demo", ProcessId: "o-1",
		}),
		cli.ExitConflict, "progressor: process already exists (process_exists). Next: progressor get demo o-1",
	},
	{
		"without detail, with control characters",
		connect.NewError(connect.CodeInternal, errors.New("bad\x1b[0m\nluck")),
		cli.ExitFailed, `progressor: bad\u001b[0m\nluck (internal)`,
	},
}

// Each error of the API sets the exit code and is printed as one line. The line has the reason, the
// details and the next command.
func TestErrors(t *testing.T) {
	for _, tt := range errorCases {
		t.Run(tt.name, func(t *testing.T) {
			p := clitest.Serve(t, newCommands, &clitest.Engine{Err: tt.err})
			r := p.Run(t, "call", "demo", "o-1")
			if r.Code != tt.code || r.Stderr != tt.want+"\n" || r.Stdout != "" {
				t.Errorf("code %d, want %d\ngot  %swant %s\n", r.Code, tt.code, r.Stderr, tt.want)
			}
		})
	}
}

// With -o json, an error is printed as one line of JSON.
func TestErrorsForPrograms(t *testing.T) {
	p := clitest.Serve(t, newCommands,
		&clitest.Engine{Err: clitest.EngineError(connect.CodeNotFound, "process not found", &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, Namespace: "demo", ProcessId: "o-1",
		})})
	r := p.Run(t, "get", "demo", "o-1", "-o", "json")
	var got struct {
		Error struct {
			Message, Code string
			Exit          int
			Detail        struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(r.Stderr), &got); err != nil {
		t.Fatalf("%v in %s", err, r.Stderr)
	}
	if got.Error.Code != "not_found" || got.Error.Exit != cli.ExitNotFound || r.Code != cli.ExitNotFound ||
		got.Error.Detail.Reason != "REASON_PROCESS_NOT_FOUND" || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestNoEngine(t *testing.T) {
	r := clitest.Program{Commands: newCommands}.Run(t, "get", "demo", "o-1", "--address", "127.0.0.1:1")
	if r.Code != cli.ExitUnavailable || !strings.Contains(r.Stderr, "check that an engine runs there") {
		t.Errorf("%+v", r)
	}
}

// The error of an awaited task that was cancelled names the command that shows the reason.
func TestAwaitOfACancelledTask(t *testing.T) {
	p := clitest.Serve(t, newCommands, &clitest.Engine{Tasks: []*progressorv1.Task{{
		Namespace: "demo", ProcessId: "o-1", TaskId: 7, Status: progressorv1.TaskStatus_TASK_STATUS_CANCELLED,
	}}})
	r := p.Run(t, "await", "demo", "o-1", "--task", "7")
	if r.Code != cli.ExitTaskFailed || r.Stderr != "progressor: task 7 was cancelled. Next: progressor get demo o-1\n" {
		t.Errorf("%+v", r)
	}
}

// If the INIT of a process failed, the error of start does not suggest a simple repair, because the
// process has never begun.
func TestErrorOfAFailedStart(t *testing.T) {
	p := clitest.Serve(t, newCommands,
		&clitest.Engine{Err: clitest.EngineError(connect.CodeAborted, "task 7 of demo/o-1 failed",
			&progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1",
				ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
			})})
	want := "Next: progressor remove demo o-1, and start it again; or progressor repair demo o-1 --args …, if its " +
		"processor can repair it\n"
	if r := p.Run(t, "start", "demo", "o-1"); r.Code != cli.ExitTaskFailed || !strings.HasSuffix(r.Stderr, want) {
		t.Errorf("%+v, want %s", r, want)
	}
}
