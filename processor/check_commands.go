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
		return invalid("result.commands", "%d commands, at most %d", n, process.MaxCommands)
	}
	for i, command := range commands {
		field := fmt.Sprintf("result.commands[%d]", i)
		var err *process.InvalidError
		switch c := command.GetCommand().(type) {
		case *progressorv1.Command_Start:
			err = checkStart(field, c.Start)
		case *progressorv1.Command_Notify:
			if err = checkTarget(field, c.Notify.GetNamespace(), c.Notify.GetProcessId()); err == nil {
				err = checkBytes(field+".args", c.Notify.GetArgs())
			}
		case *progressorv1.Command_Cancel:
			if err = checkTarget(field, c.Cancel.GetNamespace(), c.Cancel.GetProcessId()); err == nil {
				err = checkReason(field+".reason", c.Cancel.GetReason())
			}
		default:
			err = invalid(field, "a command is a start, a notify or a cancel")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkStart(field string, c *progressorv1.StartCommand) *process.InvalidError {
	if err := checkTarget(field, c.GetNamespace(), c.GetProcessId()); err != nil {
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

// checkTarget takes what clients may name, too: not the engine's own processes.
func checkTarget(field, namespace, processID string) *process.InvalidError {
	switch {
	case processID == "":
		return invalid(field+".process_id", "a command needs a process id")
	case len(processID) > process.MaxProcessIDBytes:
		return tooLarge(field+".process_id", len(processID), process.MaxProcessIDBytes)
	case process.Own(processID):
		return invalid(field+".process_id", `it begins with "~": such processes are the engine's own`)
	case !storable(processID):
		return invalid(field+".process_id", "it is not UTF-8, or has a NUL in it")
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
		return invalid(field, "it is not UTF-8, or has a NUL in it")
	}
	return nil
}

// storable tells whether PostgreSQL takes a text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
