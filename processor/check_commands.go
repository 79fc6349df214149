package processor

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var (
	namespacePattern = regexp.MustCompile(`^[a-zA-Z0-9._/-]*$`)
	templatePattern  = regexp.MustCompile(`^[a-z0-9_.-]{1,128}$`)
)

// maxRunIDBytes limits the ID of a run. The IDs of its steps begin with it.
const maxRunIDBytes = 160

func checkCommands(commands []*progressorv1.Command) *process.InvalidError {
	if n := len(commands); n > process.MaxCommands {
		return invalid("result.commands", "must have at most %d commands (got %d)", process.MaxCommands, n)
	}
	for i, command := range commands {
		field := fmt.Sprintf("result.commands[%d]", i)
		var err *process.InvalidError
		switch c := command.GetCommand().(type) {
		case *progressorv1.Command_Start:
			err = checkStart(field, c.Start)
		case *progressorv1.Command_Notify:
			if err = checkTarget(field, "process_id", c.Notify.GetNamespace(), c.Notify.GetProcessId()); err == nil {
				err = checkBytes(field+".args", c.Notify.GetArgs())
			}
		case *progressorv1.Command_Cancel:
			if err = checkCancelled(field, c.Cancel); err == nil {
				err = checkReason(field+".reason", c.Cancel.GetReason())
			}
		case *progressorv1.Command_Enqueue:
			err = checkEnqueue(field, c.Enqueue)
		case *progressorv1.Command_StartRun:
			err = checkStartRun(field, c.StartRun)
		default:
			err = invalid(field, "must be a start, a notify, a cancel, an enqueue or a start_run")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkStart(field string, c *progressorv1.StartCommand) *process.InvalidError {
	if err := checkTarget(field, "process_id", c.GetNamespace(), c.GetProcessId()); err != nil {
		return err
	}
	if err := checkMetadata(field+".metadata", c.GetMetadata()); err != nil {
		return err
	}
	if err := checkTime(field+".start_time", c.GetStartTime()); err != nil {
		return err
	}
	if err := checkBytes(field+".args", c.GetArgs()); err != nil {
		return err
	}
	return checkBytes(field+".notify_parent_args", c.GetNotifyParentArgs())
}

// checkStartRun accepts the same runs as the method StartRun, and those that have a wait instead of
// a template. The payload is checked against the template when the run starts.
func checkStartRun(field string, c *progressorv1.StartRunCommand) *process.InvalidError {
	if err := checkTarget(field, "run_id", c.GetNamespace(), c.GetRunId()); err != nil {
		return err
	}
	switch {
	case len(c.GetRunId()) > maxRunIDBytes:
		return tooLarge(field+".run_id", len(c.GetRunId()), maxRunIDBytes)
	case c.GetWait() != nil && (c.GetType() != "" || c.GetVersion() != 0):
		return invalid(field+".wait", "must not be set together with type or version")
	case c.GetWait() == nil && !templatePattern.MatchString(c.GetType()):
		return invalid(field+".type", "must be 1 to 128 characters of a-z, 0-9, _, . and -")
	case c.GetVersion() < 0:
		return invalid(field+".version", "must be at least 0 (got %d)", c.GetVersion())
	}
	if err := checkWait(field+".wait", c.GetWait()); err != nil {
		return err
	}
	for _, scope := range []struct{ name, text string }{{"scope", c.GetScope()}, {"scope_id", c.GetScopeId()}} {
		if len(scope.text) > maxNameBytes {
			return tooLarge(field+"."+scope.name, len(scope.text), maxNameBytes)
		} else if !storable(scope.text) {
			return invalid(field+"."+scope.name, "must be valid UTF-8 without NUL")
		}
	}
	if c.GetPayload() != nil {
		if err := checkJSON(field+".payload", c.GetPayload(), 0); err != nil {
			return err
		}
	}
	if err := checkMetadata(field+".metadata", c.GetMetadata()); err != nil {
		return err
	}
	return checkBytes(field+".notify_parent_args", c.GetNotifyParentArgs())
}

// checkCancelled checks the target of a cancel, which may also be a run (~flow/ and its ID).
func checkCancelled(field string, c *progressorv1.CancelCommand) *process.InvalidError {
	id := c.GetProcessId()
	if runID, ok := strings.CutPrefix(id, process.FlowPrefix); ok {
		id = runID
	}
	return checkTarget(field, "process_id", c.GetNamespace(), id)
}

// checkTarget accepts the same names as the client API, which excludes the engine's own processes.
// idField is the name of the field with the ID.
func checkTarget(field, idField, namespace, id string) *process.InvalidError {
	switch {
	case id == "":
		return invalid(field+"."+idField, "must not be empty")
	case len(id) > process.MaxProcessIDBytes:
		return tooLarge(field+"."+idField, len(id), process.MaxProcessIDBytes)
	case process.Own(id):
		return invalid(field+"."+idField, `must not begin with "~": such IDs are reserved for the engine`)
	case !storable(id):
		return invalid(field+"."+idField, "must be valid UTF-8 without NUL")
	case len(namespace) > process.MaxNamespaceBytes:
		return tooLarge(field+".namespace", len(namespace), process.MaxNamespaceBytes)
	case !namespacePattern.MatchString(namespace):
		return invalid(field+".namespace", "only letters, digits and ._/- are allowed")
	}
	return nil
}

func checkReason(field, reason string) *process.InvalidError {
	if len(reason) > process.MaxReasonBytes {
		return tooLarge(field, len(reason), process.MaxReasonBytes)
	}
	if !storable(reason) {
		return invalid(field, "must be valid UTF-8 without NUL")
	}
	return nil
}

// storable reports whether PostgreSQL accepts s as text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
