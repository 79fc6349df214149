package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// maxErrorText is the maximum size of an error text in bytes. gRPC sends it as a header, whose size
// clients limit. The detail contains the full message of a processor.
const maxErrorText = 1024

// internalText is the text that clients get for unexpected errors.
const internalText = "internal error: see the log of the engine"

// clientError contains the parts of an error that a client gets.
type clientError struct {
	code   connect.Code
	detail *progressorv1.ErrorDetail
	text   string
	scoped bool // the name of the subject is appended to the text
}

// sentinels are the errors that are mapped to a code and a reason.
var sentinels = []struct {
	err    error
	code   connect.Code
	reason progressorv1.ErrorDetail_Reason
}{
	// Errors of a cron come first, because they may wrap errors of its process.
	{process.ErrNamespacePaused, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_NAMESPACE_PAUSED},
	{process.ErrCronNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_CRON_NOT_FOUND},
	{process.ErrCronExists, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS},
	{process.ErrStaleEtag, connect.CodeAborted, progressorv1.ErrorDetail_REASON_STALE_ETAG},
	{process.ErrTemplateNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND},
	{process.ErrRunNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND},
	{process.ErrRunExists, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS},
	{process.ErrSinkNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrStepNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND},
	{process.ErrStaleVersion, connect.CodeAborted, progressorv1.ErrorDetail_REASON_STALE_ETAG},
	{process.ErrNamespaceNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND},
	{process.ErrNamespaceDeleting, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_NAMESPACE_DELETING},
	{process.ErrProcessNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND},
	{process.ErrTaskNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND},
	{process.ErrNodeNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrProcessExists, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS},
	{process.ErrJobNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_JOB_NOT_FOUND},
	{process.ErrWorkerNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrConstraintNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrKeyNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrGrantNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrLoginNotFound, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_UNSPECIFIED},
	{process.ErrIdempotencyMismatch, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_IDEMPOTENCY_MISMATCH},
	{process.ErrOverloaded, connect.CodeResourceExhausted, progressorv1.ErrorDetail_REASON_OVERLOADED},
	{process.ErrDraining, connect.CodeUnavailable, progressorv1.ErrorDetail_REASON_UNAVAILABLE},
	{process.ErrLocked, connect.CodeUnavailable, progressorv1.ErrorDetail_REASON_UNAVAILABLE},
	{process.ErrUnavailable, connect.CodeUnavailable, progressorv1.ErrorDetail_REASON_UNAVAILABLE},
	{process.ErrFenced, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_LEASE_LOST},
	{process.ErrWaitTimeout, connect.CodeDeadlineExceeded, progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT},
}

// toConnect converts an error of the engine to an error for the client, with a code and an
// ErrorDetail. If internal is true, the client does not get the text, so the caller should log it.
func toConnect(err error, request any) (connectErr *connect.Error, internal bool) {
	namespace, processID := scopeOf(request)
	if own, ok := errors.AsType[*connect.Error](err); ok {
		if len(own.Details()) == 0 {
			addDetail(own, &progressorv1.ErrorDetail{Namespace: namespace, ProcessId: processID})
		}
		return own, false
	}
	a, known := clientErrorOf(err)
	if item, ok := errors.AsType[*process.ItemError](err); ok && known {
		a.detail.Field, namespace, processID = item.Field, item.Key.Namespace, item.Key.ProcessID
		a.text = item.Field + ": " + a.text
	}
	a.detail.Namespace = cmp.Or(a.detail.Namespace, namespace)
	a.detail.ProcessId = cmp.Or(a.detail.ProcessId, processID)
	if a.scoped {
		a.text = missingText(a, request) + scopeText(a.detail, isOfCron(err))
	}
	a.text = jobText(a.text, request)
	connectErr = connect.NewError(a.code, errors.New(shorten(a.text)))
	addDetail(connectErr, a.detail)
	return connectErr, !known
}

// jobText replaces "process" in the text if the request is about a job or a bulk. Lower layers
// handle them as processes.
func jobText(text string, request any) string {
	switch request.(type) {
	case *progressorv1.EnqueueRequest, *progressorv1.EnqueueBatchRequest:
		return strings.Replace(text, process.ErrProcessExists.Error(), "job already exists", 1)
	case *progressorv1.GetBulkRequest, *progressorv1.CancelBulkRequest:
		if rest, ok := strings.CutPrefix(text, "process "); ok {
			return "bulk " + strings.Replace(rest, bulk.ProcessID(""), "", 1)
		}
	case *progressorv1.CancelJobRequest, *progressorv1.RetryJobRequest, *progressorv1.UpdateJobRequest:
		if rest, ok := strings.CutPrefix(text, "process "); ok {
			return "job " + rest
		}
	}
	return text
}

// isOfCron reports whether an error is about a cron.
func isOfCron(err error) bool {
	return errors.Is(err, process.ErrCronNotFound) || errors.Is(err, process.ErrCronExists) ||
		errors.Is(err, process.ErrStaleEtag) || errors.Is(err, process.ErrNamespacePaused)
}

// clientErrorOf maps the errors of package process and of the engine. An unknown error becomes
// INTERNAL, and its text is not returned, because it may contain SQL.
func clientErrorOf(err error) (a clientError, known bool) {
	if task, ok := errors.AsType[*engine.TaskError](err); ok {
		return taskErrorOf(task), true
	}
	if a, ok := flowErrorOf(err); ok {
		return a, true
	}
	if wrong, ok := errors.AsType[*process.WrongStatusError](err); ok {
		return clientError{code: connect.CodeFailedPrecondition, detail: &progressorv1.ErrorDetail{
			Reason:        progressorv1.ErrorDetail_REASON_PROCESS_STATUS,
			Namespace:     wrong.Key.Namespace,
			ProcessId:     wrong.Key.ProcessID,
			ProcessStatus: wire.Status(wrong.Status),
		}, text: wrong.Error()}, true
	}
	if used, ok := errors.AsType[*process.NamespaceInUseError](err); ok {
		detail := &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_NAMESPACE_IN_USE, Namespace: used.Namespace,
		}
		return clientError{code: connect.CodeFailedPrecondition, detail: detail, text: used.Error()}, true
	}
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		reason := progressorv1.ErrorDetail_REASON_INVALID
		switch {
		case invalid.TooLarge:
			reason = progressorv1.ErrorDetail_REASON_TOO_LARGE
		case invalid.Schema:
			reason = progressorv1.ErrorDetail_REASON_PAYLOAD_SCHEMA
		}
		detail := &progressorv1.ErrorDetail{Reason: reason, Field: invalid.Field}
		return clientError{code: connect.CodeInvalidArgument, detail: detail, text: invalid.Error()}, true
	}
	if denied, ok := errors.AsType[*process.DeniedError](err); ok {
		return clientError{code: connect.CodePermissionDenied, detail: &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_PERMISSION, Namespace: denied.Namespace, Field: denied.Field,
		}, text: denied.Error()}, true
	}
	if replaced, ok := errors.AsType[*process.KeyReplacedError](err); ok {
		return clientError{
			code: connect.CodeFailedPrecondition, detail: &progressorv1.ErrorDetail{}, text: replaced.Error(),
		}, true
	}
	if cursor, ok := errors.AsType[*process.CursorError](err); ok {
		return clientError{code: connect.CodeOutOfRange, detail: &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_CURSOR_LOST, Field: cursor.Field, OldestCursor: cursor.Oldest,
		}, text: cursor.Error()}, true
	}
	if overload, ok := errors.AsType[*process.OverloadError](err); ok {
		return clientError{connect.CodeResourceExhausted,
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_OVERLOADED}, overload.Error(), true}, true
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			// The text of the sentinel, without the context that lower layers added.
			return clientError{s.code, &progressorv1.ErrorDetail{Reason: s.reason}, s.err.Error(), true}, true
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return clientError{code: connect.CodeCanceled, detail: &progressorv1.ErrorDetail{},
			text: "the client closed the request: if it was stored, it continues"}, true
	case errors.Is(err, context.DeadlineExceeded):
		detail := &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT}
		return clientError{code: connect.CodeDeadlineExceeded, detail: detail,
			text: "the deadline of the request has passed: if it was stored, it continues"}, true
	}
	return clientError{code: connect.CodeInternal, detail: &progressorv1.ErrorDetail{}, text: internalText}, false
}

// taskErrorOf converts a TaskError.
func taskErrorOf(e *engine.TaskError) clientError {
	a := clientError{detail: &progressorv1.ErrorDetail{
		Namespace:     e.Key.Namespace,
		ProcessId:     e.Key.ProcessID,
		TaskId:        e.TaskID,
		ProcessStatus: wire.Status(e.ProcessStatus),
		Failure:       e.Failure,
		Rejection:     e.Rejection,
	}}
	task := fmt.Sprintf("task %d of %s ", e.TaskID, e.Key)
	switch {
	case e.Failure != nil:
		a.code, a.detail.Reason = connect.CodeAborted, progressorv1.ErrorDetail_REASON_TASK_FAILED
		a.text = task + "failed: " + reasonText(e.Failure.GetReason(), e.Failure.GetMessage())
	case e.Rejection != nil:
		a.code, a.detail.Reason = connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_TASK_REJECTED
		a.text = task + "was rejected: " + reasonText(e.Rejection.GetReason(), e.Rejection.GetMessage())
	case e.WaitTimeout:
		a.code, a.detail.Reason = connect.CodeDeadlineExceeded, progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT
		a.text = task + "did not end in time: it continues, and AwaitTask can wait for it"
	case e.LostByFailover:
		a.code, a.detail.Reason = connect.CodeUnavailable, progressorv1.ErrorDetail_REASON_UNAVAILABLE
		a.text = task + "was lost by a failover of the database: nothing was stored, so the request can be " +
			"repeated"
	case e.Draining:
		a.code, a.detail.Reason = connect.CodeUnavailable, progressorv1.ErrorDetail_REASON_UNAVAILABLE
		a.text = task + "continues, but this node is stopping: wait for it on another node"
	default:
		a.code, a.detail.Reason = connect.CodeAborted, progressorv1.ErrorDetail_REASON_TASK_CANCELLED
		a.text = task + "was cancelled"
	}
	return a
}

func reasonText(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}

// missingText returns the text of an error. If an object other than a namespace or a process is
// missing, the text contains its name.
func missingText(a clientError, request any) string {
	switch a.detail.GetReason() {
	case progressorv1.ErrorDetail_REASON_TEMPLATE_NOT_FOUND:
		if r, ok := request.(interface{ GetType() string }); ok {
			return fmt.Sprintf("template %q not found", r.GetType())
		}
	case progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND:
		if r, ok := request.(interface{ GetStepId() string }); ok {
			return fmt.Sprintf("step %q not found", r.GetStepId())
		}
	default:
	}
	switch r := request.(type) {
	case *progressorv1.AwaitTaskRequest:
		if a.detail.GetReason() != progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND {
			break
		}
		if r.GetTaskId() != 0 {
			return fmt.Sprintf("task %d not found", r.GetTaskId())
		}
		return fmt.Sprintf("task of idempotency key %q not found", r.GetIdempotencyKey())
	case *progressorv1.DrainNodeRequest:
		if a.code == connect.CodeNotFound {
			return a.text + ": " + r.GetNodeId()
		}
	case *progressorv1.DeleteConstraintRequest:
		if a.code == connect.CodeNotFound && a.detail.GetReason() == progressorv1.ErrorDetail_REASON_UNSPECIFIED {
			return fmt.Sprintf("constraint %q not found", r.GetName())
		}
	case interface{ GetSinkId() string }:
		if a.text == process.ErrSinkNotFound.Error() {
			return fmt.Sprintf("sink %q not found", r.GetSinkId())
		}
	case interface{ GetKeyId() string }:
		if a.text == process.ErrKeyNotFound.Error() {
			return fmt.Sprintf("there is no valid key %q", r.GetKeyId())
		}
	case interface{ GetGrant() *progressorv1.Grant }:
		return grantText(a.text, r.GetGrant())
	case interface{ GetLoginId() string }:
		if a.text == process.ErrLoginNotFound.Error() {
			return fmt.Sprintf("login %q not found: it has ended", r.GetLoginId())
		}
	case *progressorv1.StopWorkerRequest:
		if a.code == connect.CodeNotFound && a.detail.GetReason() == progressorv1.ErrorDetail_REASON_UNSPECIFIED {
			return fmt.Sprintf("worker %q not found: it was not seen in the last 24 hours", r.GetWorkerId())
		}
	}
	return a.text
}

// grantText returns the text of an error about a grant. It contains the missing grant, or its key
// if the key does not exist.
func grantText(text string, g *progressorv1.Grant) string {
	switch text {
	case process.ErrKeyNotFound.Error():
		return fmt.Sprintf("there is no valid key %q", strings.TrimPrefix(g.GetPrincipal(), auth.KeyPrincipal("")))
	case process.ErrGrantNotFound.Error():
		return fmt.Sprintf("%s does not have the role %q in %s", g.GetPrincipal(), g.GetRole().GetRole(),
			g.GetRole().GetPattern())
	}
	return text
}

// scopeText returns the subject of an error. A cron is named by its own ID, not by its process ID.
func scopeText(d *progressorv1.ErrorDetail, aboutCron bool) string {
	switch {
	case d.GetNamespace() == "":
		return ""
	case d.GetReason() == progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND,
		d.GetReason() == progressorv1.ErrorDetail_REASON_NAMESPACE_DELETING, d.GetProcessId() == "":
		return ": " + d.GetNamespace()
	}
	id := d.GetProcessId()
	if aboutCron {
		id = strings.TrimPrefix(id, crons.ProcessID(""))
	}
	return ": " + process.Key{Namespace: d.GetNamespace(), ProcessID: id}.String()
}

// scopeOf returns the subject of a request.
func scopeOf(request any) (namespace, processID string) {
	switch r := request.(type) {
	case interface{ GetNamespace() string }:
		namespace = r.GetNamespace()
	case interface {
		GetNamespace() *progressorv1.Namespace
	}:
		namespace = r.GetNamespace().GetNamespace()
	case interface{ GetCron() *progressorv1.Cron }:
		namespace = r.GetCron().GetNamespace()
	case interface {
		GetTemplate() *progressorv1.Template
	}:
		namespace = r.GetTemplate().GetNamespace()
	case interface {
		GetConstraint() *progressorv1.Constraint
	}:
		namespace = r.GetConstraint().GetNamespace()
	case interface{ GetCron() *progressorv1.CronRef }:
		namespace = r.GetCron().GetNamespace()
	case interface{ GetSink() *progressorv1.Sink }:
		namespace = r.GetSink().GetNamespace()
	}
	switch r := request.(type) {
	case interface{ GetProcessId() string }:
		processID = r.GetProcessId()
	case interface{ GetJobId() string }:
		processID = r.GetJobId()
	case interface{ GetRunId() string }:
		processID = r.GetRunId()
	case interface{ GetBulkId() string }:
		processID = bulk.ProcessID(r.GetBulkId())
	case interface{ GetCronId() string }:
		processID = crons.ProcessID(r.GetCronId())
	case interface{ GetCron() *progressorv1.Cron }:
		processID = crons.ProcessID(r.GetCron().GetCronId())
	case interface{ GetCron() *progressorv1.CronRef }:
		if r.GetCron() != nil {
			processID = crons.ProcessID(r.GetCron().GetCronId())
		}
	}
	return namespace, processID
}

// maxDetailName is the maximum size of a name in an ErrorDetail in bytes. Valid names are shorter.
const maxDetailName = 512

// addDetail adds a detail to an error. It cuts names that are too long.
func addDetail(e *connect.Error, d *progressorv1.ErrorDetail) {
	d.Field, d.Namespace, d.ProcessId = clip(d.Field, maxErrorText), clip(d.Namespace, maxDetailName),
		clip(d.ProcessId, maxDetailName)
	// NewErrorDetail fails only for invalid messages. The error then has no detail.
	if detail, err := connect.NewErrorDetail(d); err == nil {
		e.AddDetail(detail)
	}
}

// shorten cuts a text to maxErrorText.
func shorten(text string) string { return clip(text, maxErrorText) }

// clip cuts a text after at most limit bytes, at a character boundary, and appends an ellipsis.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
