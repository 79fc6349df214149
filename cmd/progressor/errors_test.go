package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestErrors(t *testing.T) {
	failed := progressorv1.ProcessStatus_PROCESS_STATUS_ERROR
	tests := []struct {
		name string
		err  error
		code int
		want string // the whole line
	}{
		{
			"task failed",
			engineError(connect.CodeAborted, "call demo/o-1: task failed", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1", TaskId: 7, ProcessStatus: failed,
				Failure: &progressorv1.Failure{Reason: "out_of_stock", Message: "no book left"},
			}),
			exitTaskFailed,
			"progressor: call demo/o-1: task failed (task_failed, failure out_of_stock: no book left, task 7, process is ERROR)" +
				". Next: progressor repair demo o-1 --simple",
		},
		{
			"an answer that is none, in words with a no-break space",
			engineError(connect.CodeAborted, "task 7 of demo/o-1 failed: bad_response: proto:\u00a0(line 1:2):\nunknown field", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1", TaskId: 7, ProcessStatus: failed,
				Failure: &progressorv1.Failure{Reason: "bad_response", Message: "proto:\u00a0(line 1:2):\nunknown field"},
			}),
			exitTaskFailed,
			`progressor: task 7 of demo/o-1 failed: bad_response: proto: (line 1:2):\nunknown field (task_failed, failure bad_response, task 7, process is ERROR)` +
				". Next: progressor repair demo o-1 --simple",
		},
		{
			"a cancelled call",
			engineError(connect.CodeAborted, "task 7 of demo/o-1 was cancelled", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_CANCELLED, Namespace: "demo", ProcessId: "o-1", TaskId: 7,
			}),
			exitTaskFailed, "progressor: task 7 of demo/o-1 was cancelled (task_cancelled, task 7). Next: progressor get demo o-1",
		},
		{
			"a job in error",
			engineError(connect.CodeFailedPrecondition, "mail/mail-3 is ERROR: it is a job: use RetryJob", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail", ProcessId: "mail-3", ProcessStatus: failed,
			}),
			exitConflict,
			"progressor: mail/mail-3 is ERROR: it is a job: use RetryJob (process_status, process is ERROR). Next: progressor job retry mail mail-3",
		},
		{
			"a call of a job",
			engineError(connect.CodeFailedPrecondition, "mail/mail-3 is RUNNING: it is a job, which accepts no calls", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "mail", ProcessId: "mail-3", ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			}),
			exitConflict,
			"progressor: mail/mail-3 is RUNNING: it is a job, which accepts no calls (process_status, process is RUNNING). Next: progressor job get mail mail-3",
		},
		{
			"suspended",
			engineError(connect.CodeFailedPrecondition, "it accepts no calls", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "demo", ProcessId: "o-1",
				ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED,
			}),
			exitConflict, "progressor: it accepts no calls (process_status, process is SUSPENDED). Next: progressor resume demo o-1",
		},
		{
			"rejected",
			engineError(connect.CodeFailedPrecondition, "too late: shipped", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TASK_REJECTED, Namespace: "demo", ProcessId: "o-1", TaskId: 8,
				Rejection: &progressorv1.Rejection{Reason: "too_late", Message: "shipped", Details: []byte(`{"a": 1}`)},
			}),
			exitRejected,
			`progressor: too late: shipped (task_rejected, rejection too_late, details {"a":1}, task 8). Next: send another request: nothing was changed`,
		},
		{
			"not found, with an id to quote",
			engineError(connect.CodeNotFound, "process not found", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, Namespace: "my shop", ProcessId: "o-1",
			}),
			exitNotFound, "progressor: process not found (process_not_found). Next: progressor list 'my shop'",
		},
		{
			"field",
			engineError(connect.CodeInvalidArgument, "at most 256 bytes", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_TOO_LARGE, Field: "process_id",
			}),
			exitUsage, "progressor: at most 256 bytes (too_large, field process_id)",
		},
		{
			"a field of all lists",
			engineError(connect.CodeInvalidArgument, "page_size: must be less than or equal to 1000", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "page_size",
			}),
			exitUsage, "progressor: --page-size: must be less than or equal to 1000 (invalid)",
		},
		{
			"wait timeout",
			engineError(connect.CodeDeadlineExceeded, "the wait is over; the task continues", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, Namespace: "demo", ProcessId: "o'1", TaskId: 9,
			}),
			exitTimeout,
			`progressor: the wait is over; the task continues (wait_timeout, task 9). Next: progressor await demo 'o'\''1' --task 9`,
		},
		{
			"wait timeout of a command without a task",
			engineError(connect.CodeDeadlineExceeded, "the wait is over; the task continues", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, Namespace: "demo", ProcessId: "o'1",
			}),
			exitTimeout,
			`progressor: the wait is over; the task continues (wait_timeout). Next: progressor get demo 'o'\''1'`,
		},
		{
			"exists",
			engineError(connect.CodeAlreadyExists, "process already exists", &progressorv1.ErrorDetail{
				Reason: progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, Namespace: "demo", ProcessId: "o-1",
			}),
			exitConflict, "progressor: process already exists (process_exists). Next: progressor get demo o-1",
		},
		{
			"without detail, with control characters",
			connect.NewError(connect.CodeInternal, errors.New("bad\x1b[0m\nluck")),
			exitFailed, `progressor: bad\u001b[0m\nluck (internal)`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := serveFake(t, &fakeEngine{err: tt.err})
			r := p.run(t, "call", "demo", "o-1")
			if r.code != tt.code || r.stderr != tt.want+"\n" || r.stdout != "" {
				t.Errorf("code %d, want %d\ngot  %swant %s\n", r.code, tt.code, r.stderr, tt.want)
			}
		})
	}
}

func TestErrorsForPrograms(t *testing.T) {
	p := serveFake(t, &fakeEngine{err: engineError(connect.CodeNotFound, "process not found", &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, Namespace: "demo", ProcessId: "o-1",
	})})
	r := p.run(t, "get", "demo", "o-1", "-o", "json")
	var got struct {
		Error struct {
			Message, Code string
			Exit          int
			Detail        struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(r.stderr), &got); err != nil {
		t.Fatalf("%v in %s", err, r.stderr)
	}
	if got.Error.Code != "not_found" || got.Error.Exit != exitNotFound || r.code != exitNotFound ||
		got.Error.Detail.Reason != "REASON_PROCESS_NOT_FOUND" || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestNoEngine(t *testing.T) {
	r := program{}.run(t, "get", "demo", "o-1", "--address", "127.0.0.1:1")
	if r.code != exitUnavailable || !strings.Contains(r.stderr, "check that an engine runs there") {
		t.Errorf("%+v", r)
	}
}

// The error of an awaited task that was cancelled says where to see why.
func TestAwaitOfACancelledTask(t *testing.T) {
	p := serveFake(t, &fakeEngine{tasks: []*progressorv1.Task{{
		Namespace: "demo", ProcessId: "o-1", TaskId: 7, Status: progressorv1.TaskStatus_TASK_STATUS_CANCELLED,
	}}})
	r := p.run(t, "await", "demo", "o-1", "--task", "7")
	if r.code != exitTaskFailed || r.stderr != "progressor: task 7 was cancelled. Next: progressor get demo o-1\n" {
		t.Errorf("%+v", r)
	}
}

// If the INIT of a process failed, the error of start does not suggest a simple repair, because the
// process has never begun.
func TestErrorOfAFailedStart(t *testing.T) {
	p := serveFake(t, &fakeEngine{err: engineError(connect.CodeAborted, "task 7 of demo/o-1 failed", &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "demo", ProcessId: "o-1", ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
	})})
	want := "Next: progressor remove demo o-1, and start it again; or progressor repair demo o-1 --args …, if its processor can repair it\n"
	if r := p.run(t, "start", "demo", "o-1"); r.code != exitTaskFailed || !strings.HasSuffix(r.stderr, want) {
		t.Errorf("%+v, want %s", r, want)
	}
}
