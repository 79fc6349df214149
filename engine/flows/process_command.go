package flows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// actorProcess is the actor of a command in the result of a process.
const actorProcess = "process"

// message returns the message for a process command that starts or cancels a run.
func message(sender process.Key, sent *progressorv1.Command) (m storage.Message, ok bool, err error) {
	switch c := sent.GetCommand().(type) {
	case *progressorv1.Command_StartRun:
		if m, err = startMessage(sender, c.StartRun); err != nil {
			err = fmt.Errorf("start_run: %w", err)
		}
		return m, true, err
	case *progressorv1.Command_Cancel:
		if strings.HasPrefix(c.Cancel.GetProcessId(), process.FlowPrefix) {
			key := process.Key{
				Namespace: cmp.Or(c.Cancel.GetNamespace(), sender.Namespace), ProcessID: c.Cancel.GetProcessId(),
			}
			return commandTo(key, &command{
				Method: methodCancel, Actor: actorProcess, Reason: c.Cancel.GetReason(),
			}), true, nil
		}
	}
	return m, false, nil
}

// startMessage returns the message that starts the run of a command.
func startMessage(sender process.Key, c *progressorv1.StartRunCommand) (m storage.Message, err error) {
	o := &command{Method: methodStart, Actor: actorProcess, startFields: startFields{
		Type: c.GetType(), Version: c.GetVersion(), Scope: c.GetScope(), ScopeID: c.GetScopeId(), Unchecked: true,
	}}
	if o.Payload, err = resultJSON("payload", c.GetPayload()); err != nil {
		return m, err
	}
	if wait := c.GetWait(); wait != nil {
		o.Type = waitType
		if _, err = newWaitTemplate(wait); err != nil {
			return m, err
		}
		if o.Wait, err = wire.MessageJSON(wait); err != nil {
			return m, err
		}
	}
	m = storage.Message{
		Kind: storage.MessageStart, Target: keyOf(cmp.Or(c.GetNamespace(), sender.Namespace), c.GetRunId()),
		NotifyParentArgs: c.GetNotifyParentArgs(),
	}
	if m.Metadata, err = metadataJSON(c.GetMetadata()); err != nil {
		return m, err
	}
	m.Args, err = encode(o)
	return m, err
}

// readEnd changes the end of a run to what a process of a user receives: the status and the result
// of the run, or the reason why it failed or did not start.
func (f *Flows) readEnd(ctx context.Context, child *progressorv1.ChildEnd) error {
	runID, ok := strings.CutPrefix(child.GetProcessId(), process.FlowPrefix)
	if !ok {
		return nil
	}
	var a reply
	if json.Unmarshal(child.GetResponse(), &a) != nil {
		a = reply{} // the process was cancelled, is in ERROR, or was not started
	}
	child.Response = nil
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED:
		if a.Message != "" {
			child.Detail = "not started: " + a.Message
		}
		return nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
	default:
		return nil
	}
	if a.InRow {
		row, err := flows.Get(ctx, f.store, child.GetNamespace(), runID)
		if errors.Is(err, process.ErrRunNotFound) {
			child.Status, child.Reason = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, reasonRun
			child.Detail = "the run was removed before its result was read"
			return nil
		} else if err != nil {
			return err
		}
		a.Result, a.Failure = row.Result, row.Failure
	}
	switch flows.Status(a.Status) {
	case flows.Succeeded:
		child.Response = a.Result
	case flows.Cancelled:
		child.Status, child.Detail = progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED, a.Reason
	default:
		failure, _ := wire.Failure(a.Failure) // an unreadable failure is ignored
		child.Status = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR
		child.Reason = cmp.Or(failure.GetReason(), reasonRun)
		child.Detail = shorten(cmp.Or(failure.GetMessage(), failure.GetReason(), "the run is "+a.Status))
	}
	return nil
}
