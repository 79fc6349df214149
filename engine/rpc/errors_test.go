package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var (
	errorKey = process.Key{Namespace: "n", ProcessID: "p"}
	failure  = &progressorv1.Failure{Reason: "no_stock", Message: "none left", NonRetryable: true}
	refusal  = &progressorv1.Rejection{Reason: "too_late", Message: "it is shipped", Details: []byte{1}}
)

// errorTable contains errors with their codes and details. Each reason occurs here or in notYet.
var errorTable = []struct {
	err    error
	code   connect.Code
	detail *progressorv1.ErrorDetail
	text   string
}{
	{process.ErrNamespaceNotFound, connect.CodeNotFound, reason(progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND),
		"namespace not found: n"},
	{process.ErrProcessNotFound, connect.CodeNotFound, reason(progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND),
		"process not found: n/p"},
	{process.ErrTaskNotFound, connect.CodeNotFound, reason(progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND),
		"task not found: n/p"},
	{process.ErrProcessExists, connect.CodeAlreadyExists, reason(progressorv1.ErrorDetail_REASON_PROCESS_EXISTS),
		"process already exists: n/p"},
	{process.ErrIdempotencyMismatch, connect.CodeAlreadyExists,
		reason(progressorv1.ErrorDetail_REASON_IDEMPOTENCY_MISMATCH), "another request: n/p"},
	{process.ErrOverloaded, connect.CodeResourceExhausted, reason(progressorv1.ErrorDetail_REASON_OVERLOADED),
		"overloaded"},
	{&process.OverloadError{Bound: "max_waiting"}, connect.CodeResourceExhausted,
		reason(progressorv1.ErrorDetail_REASON_OVERLOADED), "overloaded (max_waiting)"},
	{fmt.Errorf("%w: %w", process.ErrCronNotFound, process.ErrProcessNotFound), connect.CodeNotFound,
		reason(progressorv1.ErrorDetail_REASON_CRON_NOT_FOUND), "cron not found: n/p"},
	{fmt.Errorf("%w: %w", process.ErrCronExists, process.ErrProcessExists), connect.CodeAlreadyExists,
		reason(progressorv1.ErrorDetail_REASON_PROCESS_EXISTS), "cron already exists: n/p"},
	{process.ErrStaleEtag, connect.CodeAborted, reason(progressorv1.ErrorDetail_REASON_STALE_ETAG),
		"the etag is out of date"},
	{process.ErrNamespaceDeleting, connect.CodeFailedPrecondition,
		reason(progressorv1.ErrorDetail_REASON_NAMESPACE_DELETING), "the namespace is being deleted: n"},
	{&process.NamespaceInUseError{Namespace: "n", Reason: "it has 1 templates"}, connect.CodeFailedPrecondition,
		reason(progressorv1.ErrorDetail_REASON_NAMESPACE_IN_USE),
		`namespace "n" was not deleted: it has 1 templates`},
	{process.ErrNamespacePaused, connect.CodeFailedPrecondition,
		reason(progressorv1.ErrorDetail_REASON_NAMESPACE_PAUSED), "resume it first: n/p"},
	{process.ErrUnavailable, connect.CodeUnavailable, reason(progressorv1.ErrorDetail_REASON_UNAVAILABLE),
		"idempotency key"},
	{process.ErrFenced, connect.CodeFailedPrecondition, reason(progressorv1.ErrorDetail_REASON_LEASE_LOST),
		"the attempt is over"},
	{process.ErrWaitTimeout, connect.CodeDeadlineExceeded, reason(progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT),
		"the wait timed out"},
	{&process.WrongStatusError{Key: errorKey, Status: process.StatusError, Reason: "repair it first"},
		connect.CodeFailedPrecondition, &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PROCESS_STATUS, Namespace: "n", ProcessId: "p",
			ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR,
		}, "process n/p is ERROR: repair it first"},
	{&process.InvalidError{Field: "page_token", Message: "is not a token of this list"}, connect.CodeInvalidArgument,
		&progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_INVALID, Namespace: "n", ProcessId: "p", Field: "page_token",
		}, "page_token: is not a token of this list"},
	{&process.InvalidError{Field: "args", Message: "is too large", TooLarge: true}, connect.CodeInvalidArgument,
		&progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TOO_LARGE, Namespace: "n", ProcessId: "p", Field: "args",
		}, "args: is too large"},
	{&process.InvalidError{Field: "payload.n", Message: "is not a number", Schema: true}, connect.CodeInvalidArgument,
		&progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PAYLOAD_SCHEMA, Namespace: "n", ProcessId: "p", Field: "payload.n",
		}, "payload.n: is not a number"},
	{&process.CursorError{Field: "cursor", Message: "the changes after it were deleted", Oldest: "o"},
		connect.CodeOutOfRange, &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_CURSOR_LOST, Namespace: "n", ProcessId: "p", Field: "cursor",
			OldestCursor: "o",
		}, "cursor: the changes after it were deleted"},
	{
		&engine.TaskError{Key: errorKey, TaskID: 7, Failure: failure, ProcessStatus: process.StatusError},
		connect.CodeAborted,
		&progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, Namespace: "n", ProcessId: "p", TaskId: 7,
			ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, Failure: failure,
		}, "task 7 of n/p failed: no_stock: none left",
	},
	{
		&engine.TaskError{Key: errorKey, TaskID: 8, Rejection: refusal, ProcessStatus: process.StatusRunning},
		connect.CodeFailedPrecondition,
		&progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_TASK_REJECTED, Namespace: "n", ProcessId: "p", TaskId: 8,
			ProcessStatus: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING, Rejection: refusal,
		}, "task 8 of n/p was rejected: too_late: it is shipped",
	},
	{
		&engine.TaskError{Key: errorKey, TaskID: 9, Cancelled: true}, connect.CodeAborted,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_TASK_CANCELLED, Namespace: "n",
			ProcessId: "p", TaskId: 9},
		"task 9 of n/p was cancelled",
	},
	{
		&engine.TaskError{Key: process.Key{Namespace: "n", ProcessID: "chosen"}, TaskID: 10, WaitTimeout: true},
		connect.CodeDeadlineExceeded,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, Namespace: "n",
			ProcessId: "chosen", TaskId: 10},
		"AwaitTask",
	},
	{
		&engine.TaskError{Key: errorKey, TaskID: 11, Draining: true}, connect.CodeUnavailable,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_UNAVAILABLE, Namespace: "n", ProcessId: "p",
			TaskId: 11},
		"task 11 of n/p continues",
	},
	{context.Canceled, connect.CodeCanceled, reason(progressorv1.ErrorDetail_REASON_UNSPECIFIED), "closed the request"},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, reason(progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT),
		"deadline"},
	{errors.New("ERROR: syntax error at SELECT secret"), connect.CodeInternal,
		reason(progressorv1.ErrorDetail_REASON_UNSPECIFIED), "internal error"},
}

func reason(r progressorv1.ErrorDetail_Reason) *progressorv1.ErrorDetail {
	return &progressorv1.ErrorDetail{Reason: r, Namespace: "n", ProcessId: "p"}
}

// notYet contains the reasons that errorTable lacks.
var notYet = map[progressorv1.ErrorDetail_Reason]bool{
	progressorv1.ErrorDetail_REASON_SAME_SCOPE:         true,
	progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND: true, progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED: true,
	progressorv1.ErrorDetail_REASON_NOT_CANCELLABLE: true,
	progressorv1.ErrorDetail_REASON_UNAUTHENTICATED: true, progressorv1.ErrorDetail_REASON_PERMISSION: true,
	progressorv1.ErrorDetail_REASON_JOB_NOT_FOUND: true,
}

func TestEveryErrorHasItsCodeAndDetail(t *testing.T) {
	t.Parallel()
	seen := map[progressorv1.ErrorDetail_Reason]bool{}
	for _, c := range errorTable {
		// Lower layers wrap errors with the operation and the key. The client gets neither, and the
		// mapping does not depend on them.
		wrapped := fmt.Errorf("prepare call n/p: insert into tasks: %w", c.err)
		got, internal := toConnect(wrapped, &progressorv1.CallRequest{Namespace: "n", ProcessId: "p"})
		detail := detailOf(got)
		if got.Code() != c.code || !proto.Equal(detail, c.detail) {
			t.Errorf("%v: got %v %s, want %v %s", c.err, got.Code(), text(detail), c.code, text(c.detail))
		}
		if !strings.Contains(got.Message(), c.text) || strings.Contains(got.Message(), "insert into") ||
			strings.Contains(got.Message(), "SELECT") {
			t.Errorf("%v: got the text %q, want %q in it", c.err, got.Message(), c.text)
		}
		if internal != (c.code == connect.CodeInternal) {
			t.Errorf("%v: internal is %v", c.err, internal)
		}
		seen[c.detail.GetReason()] = true
	}
	for number, name := range progressorv1.ErrorDetail_Reason_name {
		r := progressorv1.ErrorDetail_Reason(number)
		if seen[r] == notYet[r] {
			t.Errorf("%s: tested %v, of a later release %v", name, seen[r], notYet[r])
		}
	}
}

func TestAnErrorNamesWhatWasNotFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		request any
		want    string
	}{
		{process.ErrTaskNotFound,
			&progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: "p",
				Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: 9}}, "task 9 not found: n/p"},
		{process.ErrTaskNotFound,
			&progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: "p",
				Key: &progressorv1.AwaitTaskRequest_IdempotencyKey{IdempotencyKey: "k"}},
			`task of idempotency key "k" not found: n/p`},
		{process.ErrNamespaceNotFound, &progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: "p"},
			"namespace not found: n"},
		{process.ErrNodeNotFound, &progressorv1.DrainNodeRequest{NodeId: "9"}, "node not found: 9"},
		{process.ErrCronNotFound, &progressorv1.GetCronRequest{Namespace: "n", CronId: "c"}, "cron not found: n/c"},
	} {
		if got, _ := toConnect(c.err, c.request); got.Message() != c.want {
			t.Errorf("got %q, want %q", got.Message(), c.want)
		}
	}
}

func TestAnErrorKnowsItsRequest(t *testing.T) {
	t.Parallel()
	got, _ := toConnect(process.ErrNamespaceNotFound,
		&progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{Namespace: "m"}})
	if d := detailOf(got); d.GetNamespace() != "m" || got.Message() != "namespace not found: m" {
		t.Errorf("got %s %s", got.Message(), text(d))
	}
	got, _ = toConnect(connect.NewError(connect.CodeUnimplemented, errors.New("later")),
		&progressorv1.WatchProcessRequest{Namespace: "n"})
	if d := detailOf(got); got.Code() != connect.CodeUnimplemented || d.GetNamespace() != "n" {
		t.Errorf("got %v %s", got, text(d))
	}
}

func TestLongTextsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for n := range 5 {
		got := shorten(strings.Repeat("a", n) + strings.Repeat("€", 1000))
		if len(got) > maxErrorText+len("…") || !utf8.ValidString(got) {
			t.Errorf("%d: %d bytes, valid %v", n, len(got), utf8.ValidString(got))
		}
	}
	whole := &progressorv1.Failure{Reason: "r", Message: strings.Repeat("m", 5000)}
	got, _ := toConnect(&engine.TaskError{Key: errorKey, TaskID: 1, Failure: whole}, nil)
	if len(got.Message()) > 1100 || !proto.Equal(detailOf(got).GetFailure(), whole) {
		t.Errorf("text of %d bytes, detail whole %v", len(got.Message()),
			proto.Equal(detailOf(got).GetFailure(), whole))
	}
}
