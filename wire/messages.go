package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// messages converts the commands of a result to messages. The default of a command's namespace is
// the namespace of the sender.
func messages(
	sender process.Key, commands []*progressorv1.Command, enqueue EnqueueMessage,
) ([]storage.Message, error) {
	var list []storage.Message
	for n, command := range commands {
		m := storage.Message{}
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
			var err error
			if m.Metadata, err = JSON(c.Start.GetMetadata()); err != nil {
				return nil, err
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
			var err error
			if m, err = jobMessage(sender, c.Enqueue, enqueue); err != nil {
				return nil, fmt.Errorf("commands[%d].enqueue: %w", n, err)
			}
		}
		m.Target.Namespace = cmp.Or(m.Target.Namespace, sender.Namespace)
		list = append(list, m)
	}
	return list, nil
}

// EnqueueMessage returns the message that enqueues a job of a command.
type EnqueueMessage func(*progressorv1.EnqueueRequest) (storage.Message, error)

// jobMessage returns the message of a command that enqueues a job.
func jobMessage(
	sender process.Key, c *progressorv1.EnqueueCommand, enqueue EnqueueMessage,
) (storage.Message, error) {
	m, err := enqueue(&progressorv1.EnqueueRequest{
		Namespace: cmp.Or(c.GetNamespace(), sender.Namespace), JobId: c.GetJobId(), Name: c.GetName(),
		Args: c.GetArgs(), Options: c.GetOptions(),
	})
	m.Plain = false // StartSteps requires that no other command of the flush has this ID
	m.NotifyParentArgs = c.GetNotifyParentArgs()
	return m, err
}

// childEnd decodes the column child. It returns nil for NULL.
func childEnd(text json.RawMessage) (*progressorv1.ChildEnd, error) {
	if bytes.HasPrefix(text, []byte(`{"ends"`)) {
		return nil, nil // the ends of several children, which only kinds of the engine read
	}
	return read[progressorv1.ChildEnd]("child", text)
}
