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
	return `Errors groups the processes in ERROR, and the flow runs that are FAILED or EXPIRED, by reason and
message, ignoring numbers, ids and quoted text. The filter of a group finds its processes or runs. A
bulk repairs processes; progressor job retry runs a job again, and progressor run retry continues a
run. Jobs of steps are not listed, because the failure is shown with their run.

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
