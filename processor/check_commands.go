package processor

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var namespacePattern = regexp.MustCompile(`^[a-zA-Z0-9._/-]*$`)

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
			if err = checkTarget(field, "process_id", c.Cancel.GetNamespace(), c.Cancel.GetProcessId()); err == nil {
				err = checkReason(field+".reason", c.Cancel.GetReason())
			}
		case *progressorv1.Command_Enqueue:
			err = checkEnqueue(field, c.Enqueue)
		default:
			err = invalid(field, "must be a start, a notify, a cancel or an enqueue")
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
