package admin

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type namespaceHealthCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`
	cli.ClientFlags
}

func (namespaceHealthCmd) Help() string {
	return `Health shows whether the tasks of namespaces run, and if not, why and what to do. A namespace
is OK if its tasks run. It is DEGRADED if they run, but wait for a long time, fail, or do not run on
every node. It is DOWN if no task starts. The exit code is 1 if a namespace is DOWN. For a single
namespace, the engine also opens a connection to its processor.

    progressor namespace health
    progressor namespace health demo
    progressor namespace health demo -o json`
}

func (c *namespaceHealthCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Namespace.GetNamespaceHealth(ctx, &progressorv1.GetNamespaceHealthRequest{Namespace: c.NS})
	if err != nil {
		return err
	}
	if c.JSON() {
		err = output.PrintMessage(a.Stdout, resp)
	} else {
		err = printHealth(a, resp.GetNamespaces())
	}
	if err != nil {
		return err
	}
	down := 0
	for _, h := range resp.GetNamespaces() {
		if h.GetStatus() == progressorv1.HealthStatus_HEALTH_STATUS_DOWN {
			down++
		}
	}
	if down > 0 {
		return fmt.Errorf("no task starts in %s", output.Counted(down, "namespace"))
	}
	return nil
}

func printHealth(a *cli.App, namespaces []*progressorv1.NamespaceHealth) error {
	var rows []table.Row
	for _, h := range namespaces {
		rows = append(rows, table.Row{
			output.OneLine(h.GetNamespace()), output.Enum(h.GetStatus()), output.Thousands(h.GetRunnable()),
			output.Duration(h.GetOldestRunnableAge().AsDuration()), output.Thousands(h.GetWorkers()),
			output.Thousands(h.GetProcessesInError()),
		})
	}
	if err := output.PrintRows(a.Stdout, table.Row{"namespace", "status", "runnable", "oldest", "workers", "in error"},
		rows, "runnable", "workers", "in error"); err != nil {
		return err
	}
	rows = nil
	for _, h := range namespaces {
		for _, p := range h.GetProblems() {
			rows = append(rows,
				table.Row{output.OneLine(h.GetNamespace()), output.Enum(p.GetKind()), output.OneLine(p.GetDetail()),
					output.OneLine(p.GetNext())})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return output.PrintRows(a.Stdout, table.Row{"namespace", "problem", "why", "next"}, rows)
}
