package worker

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

type workerGetCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"worker" complete:"worker" help:"Id of the worker; worker list shows it."`

	cli.ClientFlags
	Leases int32 `field:"max_leases" placeholder:"N" help:"Maximum number of leases to show. Default: 100."`
}

// shownResults is the maximum number of results of a worker that are shown.
const shownResults = 10

func (workerGetCmd) Help() string {
	return `Get shows what a worker does in a namespace: its leases, the oldest first, with the progress that it
reported and when each is lost without a heartbeat. Then it shows the last 10 results of its jobs,
if the namespace keeps events of jobs. For older ones, use job events.

    progressor worker get demo host-7
    progressor worker get demo host-7 -o json
    progressor job events demo 'worker_id = host-7'`
}

func (c *workerGetCmd) Run(a *cli.App) error {
	err := cli.Show(a, c, c.Client().Worker.GetWorker,
		&progressorv1.GetWorkerRequest{Namespace: c.NS, WorkerId: c.ID, MaxLeases: c.Leases}, c.print)
	return notFound(err, c.NS)
}

func (c *workerGetCmd) print(a *cli.App, resp *progressorv1.GetWorkerResponse) error {
	ctx, cancel := a.Request()
	defer cancel()
	results, err := c.results(ctx)
	if err != nil {
		return err
	}
	w := resp.GetWorker()
	if err := output.PrintFields(a.Stdout,
		output.Field{"worker", output.OneLine(w.GetWorkerId())},
		output.Field{"directive", output.Enum(w.GetDirective())},
		output.Field{"last seen", output.Time(w.GetLastSeenTime())},
		output.Field{"address", output.OneLine(w.GetAddress())},
		output.Field{"program", output.OneLine(w.GetUserAgent())},
		output.Field{"namespaces", strings.Join(w.GetNamespaces(), ", ")},
		output.Field{"owner", output.OneLine(w.GetOwner())},
		output.Field{"leases", fmt.Sprint(w.GetLeases())},
	); err != nil {
		return err
	}
	if err := printLeases(a, resp); err != nil || len(results) == 0 {
		return err
	}
	return printResults(a, results)
}

// results returns the last events with which the worker ended attempts of jobs.
func (c *workerGetCmd) results(ctx context.Context) ([]*progressorv1.JobEvent, error) {
	resp, err := c.Client().JobEvent.ListJobEvents(ctx, &progressorv1.ListJobEventsRequest{
		Namespace: c.NS, PageSize: shownResults,
		Filter: "worker_id = " + search.Quote(c.ID, false) + " AND type != started",
	})
	return resp.GetEvents(), err
}

func printLeases(a *cli.App, resp *progressorv1.GetWorkerResponse) error {
	if len(resp.GetLeases()) == 0 {
		return nil
	}
	var rows []table.Row
	for _, l := range resp.GetLeases() {
		what := output.OneLine(l.GetJobName())
		if what == "" {
			what = output.Enum(l.GetTaskType())
		}
		rows = append(rows, table.Row{
			output.OneLine(l.GetProcessId()), what, l.GetAttempt(), output.Time(l.GetLeasedTime()),
			output.Time(l.GetExpiresTime()), output.OneLine(output.ShowProgress(l.GetProgress())),
		})
	}
	fmt.Fprintln(a.Stdout)
	err := output.PrintRows(a.Stdout,
		table.Row{"process", "job or task", "attempt", "since", "lease until", "progress"}, rows)
	if err == nil && resp.GetMoreLeases() {
		_, err = fmt.Fprintln(a.Stdout, "and more; to show them, use --leases")
	}
	return err
}

func printResults(a *cli.App, results []*progressorv1.JobEvent) error {
	var rows []table.Row
	for _, e := range results {
		rows = append(rows, table.Row{
			output.Time(e.GetCreatedTime()), output.OneLine(e.GetJobId()), output.OneLine(e.GetType()),
			output.ID(int64(e.GetAttempt())), output.OneLine(e.GetMessage()),
		})
	}
	fmt.Fprintln(a.Stdout)
	return output.PrintRows(a.Stdout, table.Row{"time", "job", "result", "attempt", "message"}, rows)
}

// notFound adds the command that lists the workers to the error for an unknown worker.
func notFound(err error, ns string) error {
	if connect.CodeOf(err) == connect.CodeNotFound &&
		client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_UNSPECIFIED {
		return &cli.Advised{Err: err, Next: "progressor worker list " + output.ShellWord(ns)}
	}
	return err
}
