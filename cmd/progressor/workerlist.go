package main

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type workerListCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	clientFlags
	pageFlags `set:"rows=Workers"`
}

func (workerListCmd) Help() string {
	return `List shows the workers that have taken tasks of a namespace, or asked for some, within a day: what each holds, when it was heard
of last (it is noted every five seconds), and what it was told.

    progressor worker list demo
    progressor worker list demo --all -o json`
}

func (c *workerListCmd) Run(a *app) error {
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListWorkersResponse, error) {
		return c.client().Worker.ListWorkers(ctx, &progressorv1.ListWorkersRequest{Namespace: c.NS, PageSize: c.PageSize, PageToken: token})
	}, func(all *progressorv1.ListWorkersResponse) error {
		return printWorkers(a, all.GetWorkers())
	})
}

func printWorkers(a *app, workers []*progressorv1.Worker) error {
	var rows []table.Row
	for _, w := range workers {
		rows = append(rows, table.Row{
			oneLine(w.GetWorkerId()), w.GetLeases(), showTime(w.GetLastSeenTime()), shortEnum(w.GetDirective()), strings.Join(w.GetNamespaces(), ", "),
		})
	}
	return printRows(a.Stdout, table.Row{"worker", "leases", "last seen", "told", "namespaces"}, rows)
}

type workerStopCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"worker" help:"Worker id, as worker list shows it."`

	clientFlags
	Quiet    bool           `xor:"directive" help:"It takes nothing new, finishes what it holds, and goes on running."`
	Continue bool           `xor:"directive" help:"Take the order back."`
	Grace    *time.Duration `placeholder:"DURATION" help:"How long it keeps what it holds: after that others take it. Default: 30s."`
	Reason   string         `placeholder:"TEXT" help:"Why: noted in the audit."`
}

func (workerStopCmd) Help() string {
	return `Stop tells a worker to take nothing new, finish what it holds, and end: by the answer to its next poll or heartbeat, in all its
namespaces. What it still holds when the grace is over goes to other workers, without a failed attempt. The order holds for
the worker's id until --continue takes it back, also when a worker is started again with that id.

    progressor worker stop demo host-7 --reason 'new version'
    progressor worker stop demo host-7 --grace 10m
    progressor worker stop demo host-7 --quiet
    progressor worker stop demo host-7 --continue`
}

func (c *workerStopCmd) Run(a *app) error {
	req := &progressorv1.StopWorkerRequest{Namespace: c.NS, WorkerId: c.ID, Reason: c.Reason, Directive: progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP}
	switch {
	case c.Quiet:
		req.Directive = progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	case c.Continue:
		req.Directive = progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE
	}
	if c.Grace != nil {
		req.Grace = durationpb.New(*c.Grace)
	}
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Worker.StopWorker(ctx, req)
	if connect.CodeOf(err) == connect.CodeNotFound && client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_UNSPECIFIED {
		return &advised{error: err, next: "progressor worker list " + shellWord(c.NS)}
	}
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return printWorkers(a, []*progressorv1.Worker{resp.GetWorker()})
}
