package job

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type jobStatsCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (jobStatsCmd) Help() string {
	return `Stats counts the jobs of a namespace by name and state, and shows the age of the oldest job that
could run. It reads counters, so it is fast with any number of jobs.

    progressor job stats demo
    progressor job stats demo -o json`
}

func (c *jobStatsCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Job.GetQueueStats(ctx, &progressorv1.GetQueueStatsRequest{Namespace: c.NS})
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	head := table.Row{"name"}
	for _, state := range jobs.States {
		head = append(head, strings.ReplaceAll(state, "_", " "))
	}
	row := func(name string, counts map[string]int64) table.Row {
		r := table.Row{name}
		for _, state := range jobs.States {
			r = append(r, counts[state])
		}
		return r
	}
	var rows []table.Row
	for _, n := range resp.GetNames() {
		rows = append(rows, row(output.OneLine(n.GetName()), n.GetCountByState()))
	}
	rows = append(rows, row("(all)", resp.GetCountByState()))
	if err := output.PrintRows(a.Stdout, head, rows); err != nil {
		return err
	}
	if age := resp.GetOldestAvailableAge(); age != nil {
		_, err = fmt.Fprintf(a.Stdout, "\noldest available: %s\n", durations.Rounded(age.AsDuration()))
	}
	return err
}
