package process

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type countCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: the sum of all."`

	cli.ClientFlags
	Internal bool `help:"Also count processes of the engine: jobs, runs, crons and bulks."`
}

func (countCmd) Help() string {
	return `Count counts the processes in each status. Processes whose first task has not finished count as
RUNNING. Internal processes (jobs, runs, crons, bulks) have their own column. --internal adds them to
the others. Count reads counters, so it is fast with any number of processes.

    progressor count
    progressor count demo
    progressor count demo --internal
    progressor count demo -o json`
}

func (c *countCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Insight.CountProcesses,
		&progressorv1.CountProcessesRequest{Namespace: c.NS, UsersOnly: !c.Internal},
		func(resp *progressorv1.CountProcessesResponse) error {
			var rows []table.Row
			for _, name := range statusNames(resp.GetCountByStatus()) {
				row := table.Row{strings.ToUpper(name), resp.GetCountByStatus()[name]}
				if !c.Internal {
					row = append(row, resp.GetInternalByStatus()[name])
				}
				rows = append(rows, row)
			}
			header := table.Row{"status", "processes", "internal"}
			switch {
			case c.Internal:
				header = table.Row{"status", "with internal"}
			case resp.GetAtMost():
				header = table.Row{"status", "at most", "at least internal"}
			}
			return output.PrintRows(a.Stdout, header, rows)
		})
}

// statusNames returns the counted statuses in their usual order.
func statusNames(counts map[string]int64) []string {
	order := []string{"init", "running", "error", "suspended", "completed", "cancelled"}
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return names
}
