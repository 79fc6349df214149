package engine

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// process calls the processor of the namespace. It returns an error if the response has a command
// to a namespace that the configuration does not allow. Workers are clients, so their permissions
// are checked instead.
func (ns *namespace) process(
	ctx context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	response, err := ns.processor.Process(ctx, r)
	if err != nil || ns.commandsTo == nil {
		return response, err
	}
	for n, c := range response.GetResult().GetCommands() {
		if to := targetOf(c); to != "" && !ns.commandsTo.Match(to) {
			return nil, processor.Fail(process.ReasonBadResponse,
				"commands[%d]: the namespace %q is not one of command_namespaces of the namespace %q", n,
				to[:min(len(to), process.MaxNamespaceBytes)], ns.name)
		}
	}
	return response, nil
}

// targetOf returns the target namespace of a command, or "" if it is the namespace of the process.
func targetOf(c *progressorv1.Command) string {
	switch c := c.GetCommand().(type) {
	case *progressorv1.Command_Start:
		return c.Start.GetNamespace()
	case *progressorv1.Command_Notify:
		return c.Notify.GetNamespace()
	case *progressorv1.Command_Cancel:
		return c.Cancel.GetNamespace()
	case *progressorv1.Command_Enqueue:
		return c.Enqueue.GetNamespace()
	case *progressorv1.Command_StartRun:
		return c.StartRun.GetNamespace()
	}
	return ""
}
