package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type auditCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all, and commands to nodes."`

	Match string `arg:"" optional:"" name:"filter" help:"Only commands that match, such as 'method = RemoveProcess'. See docs/api.md."`

	clientFlags
	Filter    string `placeholder:"FILTER" help:"The filter as a flag, for use without a namespace."`
	pageFlags `set:"rows=Orders"`
}

func (auditCmd) Help() string {
	return `Audit lists commands of operators, newest first: repairs without the processor, suspensions,
cancels, removals, imports, changes of namespaces, drains and bulks. Entries are kept for 90 days.

A filter can use actor, method and subject (= and !=) and time (= != < <= > >=).

    progressor audit
    progressor audit demo --filter 'method = "RemoveProcess" AND time > "2026-11-01T00:00:00Z"'
    progressor audit demo --filter 'subject = "order-1*"' --all -o json`
}

func (c *auditCmd) Run(a *app) error {
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListAuditResponse, error) {
		return c.client().Insight.ListAudit(ctx, &progressorv1.ListAuditRequest{
			Namespace: c.NS, Filter: both(c.Match, c.Filter), PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.ListAuditResponse) error {
		var rows []table.Row
		for _, e := range all.GetEntries() {
			rows = append(rows, table.Row{
				showTime(e.GetTime()), e.GetMethod(), e.GetNamespace(), oneLine(e.GetSubject()), oneLine(e.GetActor()), oneLine(e.GetSource()), showMessage(e.GetDetails(), cellLimit),
			})
		}
		return printRows(a.Stdout, table.Row{"time", "method", "namespace", "subject", "actor", "source", "details"}, rows)
	})
}
