package main

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type countCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all together."`

	clientFlags
}

func (countCmd) Help() string {
	return `Count shows how many processes there are in each status. Those whose first task has not finished count as RUNNING.
The engine's own (bulks, crons) are counted too, as list shows them; list --filter 'kind = ""' has the others alone. It
reads counters, so it takes no longer where there are millions.

    progressor count
    progressor count demo
    progressor count demo -o json`
}

func (c *countCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Insight.CountProcesses, &progressorv1.CountProcessesRequest{Namespace: c.NS}, func(resp *progressorv1.CountProcessesResponse) error {
		var rows []table.Row
		for _, name := range statusNames(resp.GetCountByStatus()) {
			rows = append(rows, table.Row{strings.ToUpper(name), resp.GetCountByStatus()[name]})
		}
		return printRows(a.Stdout, table.Row{"status", "processes"}, rows)
	})
}

// statusNames are the statuses that were counted, in the order of a process's life.
func statusNames(counts map[string]int64) []string {
	order := []string{"init", "running", "error", "suspended", "completed", "cancelled"}
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return names
}
