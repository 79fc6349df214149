package admin

import (
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type auditCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all namespaces, and commands to nodes."`

	Match string `arg:"" optional:"" name:"filter" help:"Only commands that match, such as 'method = RemoveProcess'. See docs/api.md."`

	cli.ClientFlags
	Filter        string `placeholder:"FILTER" help:"The filter as a flag, for use without a namespace."`
	cli.PageFlags `set:"rows=commands"`
}

func (auditCmd) Help() string {
	return `Audit lists commands of operators, newest first: repairs without the processor, suspensions,
cancels, removals, imports, changes of namespaces, constraints, templates and crons, drains,
stops of workers, and bulks. Entries are kept for 90 days.

A filter can use actor, method and subject (= and !=) and time (= != < <= > >=).

    progressor audit
    progressor audit demo --filter 'method = "RemoveProcess" AND time > "2026-11-01T00:00:00Z"'
    progressor audit demo --filter 'subject = "order-1*"' --all -o json`
}

func (c *auditCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Insight.ListAudit,
		&progressorv1.ListAuditRequest{Namespace: c.NS, Filter: cli.Both(c.Match, c.Filter)},
		func(all *progressorv1.ListAuditResponse) error {
			var rows []table.Row
			for _, e := range all.GetEntries() {
				rows = append(rows, table.Row{
					output.Time(e.GetTime()), e.GetMethod(), e.GetNamespace(), output.OneLine(e.GetSubject()),
					output.OneLine(e.GetActor()), output.OneLine(e.GetSource()),
					output.Message(e.GetDetails(), output.CellLimit),
				})
			}
			return output.PrintList(a.Stdout, cli.None("commands of operators", c.NS, c.Match+c.Filter != "", ""),
				table.Row{"time", "method", output.MinorIf(c.NS != "", "namespace"), "subject", "actor",
					output.Minor("source"), "details"}, rows)
		})
}
