package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type errorsCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`

	clientFlags
	pageFlags `set:"rows=Groups"`
}

func (errorsCmd) Help() string {
	return `Errors groups the processes in ERROR, and the runs of flows that are FAILED or EXPIRED, by what broke them: the same
reason and message, but for numbers, ids and what stands in quotes. The filter of a group finds its processes, or its runs, which progressor run retry
takes up. A bulk repairs the processes all at once, but for jobs, which progressor job retry runs again. The jobs of steps are
not listed: their run says why they failed.

    progressor errors
    progressor errors demo
    progressor list demo --filter 'status = ERROR AND detail = "order *"'
    progressor bulk start repair demo 'status = ERROR AND detail = "order *"' --dry-run
    progressor run list demo 'status = FAILED AND template_type = "order"'`
}

func (c *errorsCmd) Run(a *app) error {
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListErrorsResponse, error) {
		return c.client().Insight.ListErrors(ctx, &progressorv1.ListErrorsRequest{Namespace: c.NS, PageSize: c.PageSize, PageToken: token})
	}, func(all *progressorv1.ListErrorsResponse) error {
		var rows []table.Row
		for _, g := range all.GetGroups() {
			of := "processes"
			if g.GetRuns() {
				of = "runs"
			}
			rows = append(rows, table.Row{
				g.GetCount(), of, g.GetNamespace(), oneLine(g.GetReason()), showTime(g.GetFirstTime()), showTime(g.GetLastTime()), oneLine(g.GetMessage()), oneLine(g.GetFilter()),
			})
		}
		return printRows(a.Stdout, table.Row{"count", "of", "namespace", "reason", "first", "last", "newest message", "filter"}, rows)
	})
}
