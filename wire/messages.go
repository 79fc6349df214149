package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// KindMessage returns the message of a command to a process of an internal kind, such as a job. ok
// is false for all other commands.
type KindMessage func(sender process.Key, c *progressorv1.Command) (m storage.Message, ok bool, err error)

// messages converts the commands of a result to messages. The default of a command's namespace is
// the namespace of the sender. ofKind is nil if there are no internal kinds.
func messages(
	sender process.Key, commands []*progressorv1.Command, ofKind KindMessage,
) ([]storage.Message, error) {
	var list []storage.Message
	for n, command := range commands {
		var m storage.Message
		var ok bool
		var err error
		if ofKind != nil {
			m, ok, err = ofKind(sender, command)
		}
		if !ok {
			m, err = userMessage(command)
		}
		if err != nil {
			return nil, fmt.Errorf("commands[%d].%w", n, err)
		}
		m.Target.Namespace = cmp.Or(m.Target.Namespace, sender.Namespace)
		list = append(list, m)
	}
	return list, nil
}

// userMessage converts a command to a process of a user.
func userMessage(command *progressorv1.Command) (m storage.Message, err error) {
	switch c := command.GetCommand().(type) {
	case *progressorv1.Command_Start:
		m.Kind, m.Target = storage.MessageStart,
			process.Key{Namespace: c.Start.GetNamespace(), ProcessID: c.Start.GetProcessId()}
		m.Args, m.NotifyParentArgs = c.Start.GetArgs(), c.Start.GetNotifyParentArgs()
		if c.Start.NotifyParentArgs != nil && m.NotifyParentArgs == nil {
			m.NotifyParentArgs = []byte{} // an empty value, unlike a missing one, notifies the parent
		}
		if c.Start.GetStartTime() != nil {
			m.StartTime = c.Start.GetStartTime().AsTime()
		}
		if m.Metadata, err = JSON(c.Start.GetMetadata()); err != nil {
			return m, fmt.Errorf("start: %w", err)
		}
	case *progressorv1.Command_Notify:
		m.Kind, m.Target = storage.MessageNotify,
			process.Key{Namespace: c.Notify.GetNamespace(), ProcessID: c.Notify.GetProcessId()}
		m.Args = c.Notify.GetArgs()
	case *progressorv1.Command_Cancel:
		m.Kind, m.Target = storage.MessageCancel,
			process.Key{Namespace: c.Cancel.GetNamespace(), ProcessID: c.Cancel.GetProcessId()}
		m.Reason = c.Cancel.GetReason()
	case *progressorv1.Command_Enqueue:
		return m, errors.New("enqueue: this engine has no jobs")
	case *progressorv1.Command_StartRun:
		return m, errors.New("start_run: this engine has no flows")
	}
	return m, nil
}

// childEnd decodes the column child. It returns nil for NULL.
func childEnd(text json.RawMessage) (*progressorv1.ChildEnd, error) {
	if bytes.HasPrefix(text, []byte(`{"ends"`)) {
		return nil, nil // the ends of several children, which only kinds of the engine read
	}
	return read[progressorv1.ChildEnd]("child", text)
}
