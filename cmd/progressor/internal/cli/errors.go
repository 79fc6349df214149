package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The exit codes. docs/cli.md also lists them.
const (
	ExitOK          = 0
	ExitFailed      = 1   // any other error; doctor found a violation
	ExitUsage       = 2   // the command line, the configuration, or a field of the request is invalid
	ExitNotFound    = 3   // the namespace, process or task does not exist
	ExitConflict    = 4   // the object already exists, or its status does not allow the operation
	ExitTaskFailed  = 5   // the processor failed, or the task was cancelled
	ExitRejected    = 6   // the processor rejected the request
	ExitTimeout     = 7   // the wait timed out; the task continues
	ExitUnavailable = 8   // engine or database cannot be reached, or is overloaded: try again
	ExitInterrupted = 130 // interrupted by a signal
)

// CodedError is an error with an exit code.
type CodedError struct {
	Err  error
	Code int
	Next string // the next step
}

func (e *CodedError) Error() string { return e.Err.Error() }
func (e *CodedError) Unwrap() error { return e.Err }

// UsageError adds the exit code of an invalid command line or request.
func UsageError(err error) error { return &CodedError{Err: err, Code: ExitUsage} }

// errorReport is the text of an error.
type errorReport struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"` // code of the RPC, such as not_found
	Exit    int    `json:"exit"`
	Next    string `json:"next,omitempty"`
	Detail  any    `json:"detail,omitempty"` // ErrorDetail

	engine *progressorv1.ErrorDetail
	named  bool   // the message names the flag instead of the field
	flag   string // flag or argument that sets the field of the error; "" if it is not known
}

// fail prints an error on one line and returns the exit code. line is the command line, which names
// fields of the request.
func (a *App) fail(err error, line commandLine, asJSON bool) int {
	c := reportOf(err, line)
	if asJSON {
		text, marshalErr := json.Marshal(map[string]errorReport{"error": c})
		if marshalErr == nil {
			fmt.Fprintln(a.Stderr, string(text))
			return c.Exit
		}
	}
	fmt.Fprintln(a.Stderr, output.StyleOf(a.Stderr).Paint("progressor:", output.Red)+" "+c.line())
	return c.Exit
}

// reportOf returns the text of an error of a command.
func reportOf(err error, line commandLine) errorReport {
	c := errorReport{Message: output.OneLine(err.Error()), Exit: ExitFailed}
	var coded *CodedError
	var connectErr *connect.Error
	var databaseErr *pgconn.ConnectError
	switch {
	case errors.As(err, &databaseErr):
		c = databaseReport(err, c)
	case errors.As(err, &coded):
		c.Exit, c.Next = coded.Code, coded.Next
	case errors.As(err, &connectErr):
		code := connectErr.Code()
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			code = connect.CodeUnavailable // Connect reports this as a canceled request
		}
		c.Message, c.Code = output.OneLine(connectErr.Message()), code.String()
		c.engine = client.Detail(err)
		c.Exit = exitOf(code, c.engine.GetReason())
		c.Next = cmp.Or(nextOfConnection(err, c.Message), nextOfJob(c.Message, c.engine), nextStep(code, c.engine))
		if text, marshalErr := protojson.Marshal(c.engine); c.engine != nil && marshalErr == nil {
			c.Detail = json.RawMessage(text)
		}
	case errors.Is(err, context.Canceled):
		c.Message, c.Exit = "interrupted", ExitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		c.Exit = ExitTimeout
	default:
		c.Next = nextOfDenial(err)
	}
	field := c.engine.GetField()
	c.flag = line.name(field)
	if rest, ok := strings.CutPrefix(c.Message, field+":"); ok && c.flag != "" {
		c.Message, c.named = c.flag+":"+rest, true
	}
	if to, ok := errors.AsType[*Advised](err); ok {
		c.named = to.Named || c.named && to.Message == ""
		c.Message, c.Next = output.OneLine(cmp.Or(to.Message, c.Message)), to.Next
	}
	return c
}

// line formats the error for people.
func (c errorReport) line() string {
	var b strings.Builder
	b.WriteString(c.Message)
	d := c.engine
	if d != nil {
		facts := []string{strings.ToLower(output.Enum(d.GetReason()))}
		facts[0] = cmp.Or(facts[0], c.Code)
		if d.GetField() != "" && !c.named && !strings.Contains(c.Message, d.GetField()) {
			facts = append(facts, cmp.Or(c.flag, "field "+d.GetField()))
		}
		if f := d.GetFailure(); f != nil {
			facts = append(facts, mention("failure", f.GetReason(), f.GetMessage(), c.Message))
		}
		if r := d.GetRejection(); r != nil {
			facts = append(facts, mention("rejection", r.GetReason(), r.GetMessage(), c.Message))
			if details := output.Payload(r.GetDetails(), output.CellLimit); details != "" {
				facts = append(facts, "details "+details)
			}
		}
		if d.GetTaskId() != 0 {
			facts = append(facts, fmt.Sprintf("task %d", d.GetTaskId()))
		}
		// The message of a job contains its state.
		if d.GetProcessStatus() != 0 && !strings.HasPrefix(c.Message, "job ") {
			facts = append(facts, "process is "+output.Enum(d.GetProcessStatus()))
		}
		b.WriteString(" (" + output.OneLine(strings.Join(facts, ", ")) + ")")
	} else if c.Code != "" {
		b.WriteString(" (" + c.Code + ")")
	}
	if c.Next != "" {
		b.WriteString(". Next: " + output.OneLine(c.Next))
	}
	return b.String()
}

// mention returns the reason of a failure or rejection, and its message unless text already
// contains the message.
func mention(what, reason, message, text string) string {
	if message == "" || strings.Contains(text, output.OneLine(message)) {
		return what + " " + reason
	}
	return what + " " + reason + ": " + message
}

func exitOf(code connect.Code, reason progressorv1.ErrorDetail_Reason) int {
	switch reason {
	case progressorv1.ErrorDetail_REASON_TASK_FAILED, progressorv1.ErrorDetail_REASON_TASK_CANCELLED:
		return ExitTaskFailed
	case progressorv1.ErrorDetail_REASON_TASK_REJECTED:
		return ExitRejected
	default:
	}
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return ExitUsage
	case connect.CodeNotFound:
		return ExitNotFound
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return ExitConflict
	case connect.CodeDeadlineExceeded:
		return ExitTimeout
	case connect.CodeUnavailable, connect.CodeResourceExhausted:
		return ExitUnavailable
	case connect.CodeCanceled:
		return ExitInterrupted
	default:
		return ExitFailed
	}
}

// nextStep returns the recommended next step after an error.
func nextStep(code connect.Code, d *progressorv1.ErrorDetail) string {
	if next := nextOfCron(d); next != "" {
		return next
	}
	args := output.ShellWord(d.GetNamespace()) + " " + output.ShellWord(d.GetProcessId())
	switch d.GetReason() {
	case progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND:
		return "progressor namespace list"
	case progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
		if strings.HasPrefix(d.GetProcessId(), process.BulkPrefix) {
			return "progressor bulk list " + output.ShellWord(d.GetNamespace())
		}
		if strings.HasPrefix(d.GetProcessId(), "~") {
			return "progressor list " + output.ShellWord(d.GetNamespace()) + " --internal"
		}
		return "progressor list " + output.ShellWord(d.GetNamespace())
	case progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND:
		return "progressor trace " + args
	case progressorv1.ErrorDetail_REASON_JOB_NOT_FOUND:
		return "progressor job list " + output.ShellWord(d.GetNamespace())
	case progressorv1.ErrorDetail_REASON_PROCESS_EXISTS:
		return "progressor get " + args
	case progressorv1.ErrorDetail_REASON_IDEMPOTENCY_MISMATCH:
		return "use another --idempotency-key for another request"
	case progressorv1.ErrorDetail_REASON_PROCESS_STATUS, progressorv1.ErrorDetail_REASON_TASK_FAILED:
		if d.GetProcessStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
			return "progressor repair " + args + " --simple"
		}
		if d.GetProcessStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED {
			return "progressor resume " + args
		}
		return "progressor get " + args
	case progressorv1.ErrorDetail_REASON_TASK_CANCELLED:
		return "progressor get " + args // the status and the detail show the reason
	case progressorv1.ErrorDetail_REASON_TASK_REJECTED:
		return "send another request: nothing was changed"
	case progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT:
		if d.GetTaskId() == 0 { // a command that has no task, such as remove
			return "progressor get " + args
		}
		return fmt.Sprintf("progressor await %s --task %d", args, d.GetTaskId())
	case progressorv1.ErrorDetail_REASON_OVERLOADED:
		return "try again after a while"
	case progressorv1.ErrorDetail_REASON_UNAVAILABLE:
		return "try again, with the same --idempotency-key if you used one"
	case progressorv1.ErrorDetail_REASON_UNSPECIFIED:
		if code == connect.CodeUnavailable {
			return "check that an engine runs there: `progressor dev` starts one; --address sets its URL"
		}
	default:
	}
	return ""
}

// nextOfJob returns the next step if the process is a job. Only the message of the engine shows
// that the process is a job.
func nextOfJob(message string, d *progressorv1.ErrorDetail) string {
	if d.GetReason() != progressorv1.ErrorDetail_REASON_PROCESS_STATUS || !strings.Contains(message, "it is a job") {
		return ""
	}
	job := output.ShellWord(d.GetNamespace()) + " " + output.ShellWord(d.GetProcessId())
	if d.GetProcessStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		return "progressor job retry " + job
	}
	return "progressor job get " + job
}

// nextOfCron returns the command to run next after an error about a cron.
func nextOfCron(d *progressorv1.ErrorDetail) string {
	id, ok := strings.CutPrefix(d.GetProcessId(), process.CronPrefix)
	if !ok {
		return ""
	}
	switch d.GetReason() {
	case progressorv1.ErrorDetail_REASON_CRON_NOT_FOUND, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
		return "progressor cron list " + output.ShellWord(d.GetNamespace())
	case progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, progressorv1.ErrorDetail_REASON_STALE_ETAG:
		return "progressor cron get " + output.ShellWord(d.GetNamespace()) + " " + output.ShellWord(id)
	case progressorv1.ErrorDetail_REASON_NAMESPACE_PAUSED:
		return "progressor namespace resume " + output.ShellWord(d.GetNamespace())
	default:
		return ""
	}
}

// Advised is an error with a next step, which replaces the next step for the error of the engine.
type Advised struct {
	Err     error
	Message string // "" for the message of the engine
	Named   bool   // the message names the flag instead of the field
	Next    string
}

func (e *Advised) Error() string { return cmp.Or(e.Message, e.Err.Error()) }

func (e *Advised) Unwrap() error { return e.Err }
