package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type workerListCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	cli.ClientFlags
	cli.PageFlags `set:"rows=workers"`
}

func (workerListCmd) Help() string {
	return `List shows the workers that polled for tasks of a namespace, or ran some, in the last 24 hours:
their leases, when they were last seen (stored every five seconds), their directive, and the owner
of the worker's ID. The owner is a client, or keys: and the name of its API keys.

    progressor worker list demo
    progressor worker list demo --all -o json`
}

func (c *workerListCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Worker.ListWorkers,
		&progressorv1.ListWorkersRequest{Namespace: c.NS},
		func(all *progressorv1.ListWorkersResponse) error {
			return printWorkers(a, c.NS, all.GetWorkers())
		})
}

// printWorkers prints workers, with their owners if the engine authenticates clients.
func printWorkers(a *cli.App, namespace string, workers []*progressorv1.Worker) error {
	heads := table.Row{"worker", "leases", "last seen", "directive", "namespaces"}
	owned := slices.ContainsFunc(workers, func(w *progressorv1.Worker) bool { return w.GetOwner() != "" })
	if owned {
		heads = append(heads, "owner")
	}
	var rows []table.Row
	for _, w := range workers {
		row := table.Row{
			output.OneLine(w.GetWorkerId()), w.GetLeases(), output.Time(w.GetLastSeenTime()),
			output.Enum(w.GetDirective()), strings.Join(w.GetNamespaces(), ", "),
		}
		if owned {
			row = append(row, output.OneLine(w.GetOwner()))
		}
		rows = append(rows, row)
	}
	none := cli.None("workers that polled in the last 24 hours", namespace, false,
		fmt.Sprintf("start one with progressor worker run --namespace %s --job NAME --exec COMMAND",
			output.ShellWord(namespace)))
	return output.PrintList(a.Stdout, none, heads, rows)
}

type workerStopCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"worker" complete:"worker" help:"Id of the worker; worker list shows it."`

	cli.ClientFlags
	Quiet    bool           `xor:"directive" help:"Accept no new jobs and finish the current ones, but do not exit."`
	Continue bool           `xor:"directive" help:"Revoke the command."`
	Grace    *time.Duration `placeholder:"DURATION" help:"After this time, its remaining jobs go to other workers. Default: 30s."`
	Reason   string         `placeholder:"TEXT" help:"Reason, stored in the audit log."`
}

func (workerStopCmd) Help() string {
	return `Stop tells a worker, in the response to its next poll or heartbeat, to accept no new jobs, finish
its current ones, and exit. This applies to all its namespaces. After the grace period, its
remaining jobs go to other workers, without a failed attempt. The command applies to the worker's
ID, even after a restart of the worker, until --continue revokes it.

    progressor worker stop demo host-7 --reason 'new version'
    progressor worker stop demo host-7 --grace 10m
    progressor worker stop demo host-7 --quiet
    progressor worker stop demo host-7 --continue`
}

func (c *workerStopCmd) Run(a *cli.App) error {
	req := &progressorv1.StopWorkerRequest{Namespace: c.NS, WorkerId: c.ID, Reason: c.Reason,
		Directive: progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP}
	switch {
	case c.Quiet:
		req.Directive = progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	case c.Continue:
		req.Directive = progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE
	}
	if c.Grace != nil {
		req.Grace = durationpb.New(*c.Grace)
	}
	err := cli.Ask(a, c.OutputFlag, c.Client().Worker.StopWorker, req,
		func(resp *progressorv1.StopWorkerResponse) error {
			return printWorkers(a, c.NS, []*progressorv1.Worker{resp.GetWorker()})
		})
	return notFound(err, c.NS)
}
