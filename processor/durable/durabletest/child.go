package durabletest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// EndChild completes a child of durable.Child with this response, or a job of durable.Job or a run
// of durable.Flow with this result. It also answers a question of durable.Human or durable.Ask.
// name is the name of the child in the journal, as in "parcel[1]/label". The action fails if the
// function has not started it.
func EndChild(name string, response any) Action {
	return func(ctx context.Context, p *processortest.Process) error {
		text, err := json.Marshal(response)
		if err != nil {
			return err
		}
		return endChild(ctx, p, name, &progressorv1.ChildEnd{
			Status: progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED, Response: text,
		})
	}
}

// FailChild is like EndChild, but the child or job goes to ERROR with this detail.
func FailChild(name, detail string) Action { return FailRun(name, "", detail) }

// FailRun is like EndChild, but the run fails with this reason and message. With
// durable.ReasonTimeout, it ends a question that no one answers in time.
func FailRun(name, reason, message string) Action {
	return func(ctx context.Context, p *processortest.Process) error {
		return endChild(ctx, p, name, &progressorv1.ChildEnd{
			Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, Detail: message, Reason: reason,
		})
	}
}

// endChild reports an end of the newest child with this name.
func endChild(ctx context.Context, p *processortest.Process, name string, end *progressorv1.ChildEnd) error {
	for _, command := range slices.Backward(p.Commands()) {
		namespace, id, args := startedBy(command)
		var started string
		if json.Unmarshal(args, &started) != nil || started != name {
			continue
		}
		end.Namespace, end.ProcessId = cmp.Or(namespace, p.Snapshot().GetNamespace()), id
		return p.ChildEnded(ctx, end, args)
	}
	return fmt.Errorf("the function has not started the child %s", name)
}

// startedBy returns the process that a command starts. args are those with which its end is
// reported, or nil if its end is not reported.
func startedBy(command *progressorv1.Command) (namespace, id string, args []byte) {
	if job := command.GetEnqueue(); job != nil {
		return job.GetNamespace(), job.GetJobId(), job.GetNotifyParentArgs()
	}
	if run := command.GetStartRun(); run != nil {
		return run.GetNamespace(), process.FlowPrefix + run.GetRunId(), run.GetNotifyParentArgs()
	}
	start := command.GetStart()
	return start.GetNamespace(), start.GetProcessId(), start.GetNotifyParentArgs()
}

// sent describes the commands of a function. It sorts them, because the commands of concurrent
// branches have no fixed order.
func sent(p *processortest.Process) []string {
	var list []string
	for _, command := range p.Commands() {
		switch c := command.GetCommand().(type) {
		case *progressorv1.Command_Start:
			list = append(list, fmt.Sprintf("start %s %s %s", c.Start.GetNamespace(), c.Start.GetProcessId(),
				c.Start.GetArgs()))
		case *progressorv1.Command_Enqueue:
			list = append(list, fmt.Sprintf("enqueue %s %s %s %v %v", c.Enqueue.GetNamespace(), c.Enqueue.GetJobId(),
				c.Enqueue.GetName(), c.Enqueue.GetArgs().AsInterface(), c.Enqueue.GetOptions()))
		case *progressorv1.Command_StartRun:
			list = append(list, fmt.Sprintf("start_run %v", c.StartRun))
		case *progressorv1.Command_Notify:
			list = append(list, fmt.Sprintf("notify %s %s", c.Notify.GetNamespace(), c.Notify.GetProcessId()))
		case *progressorv1.Command_Cancel:
			list = append(list, fmt.Sprintf("cancel %s %s", c.Cancel.GetNamespace(), c.Cancel.GetProcessId()))
		}
	}
	slices.Sort(list)
	return list
}
