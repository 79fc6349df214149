package wire

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// messages converts the commands of a result to messages. The default of a command's namespace is
// the namespace of the sender.
func messages(sender process.Key, commands []*progressorv1.Command) ([]storage.Message, error) {
	var list []storage.Message
	for _, command := range commands {
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
		}
		m.Target.Namespace = cmp.Or(m.Target.Namespace, sender.Namespace)
		list = append(list, m)
	}
	return list, nil
}

// childEnd decodes the column child. It returns nil for NULL.
func childEnd(text json.RawMessage) (*progressorv1.ChildEnd, error) {
	if bytes.HasPrefix(text, []byte(`{"ends"`)) {
		return nil, nil // the ends of several children, which only kinds of the engine read
	}
	return read[progressorv1.ChildEnd]("child", text)
}
