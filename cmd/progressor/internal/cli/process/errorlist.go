package process

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type errorsCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`

	cli.ClientFlags
	cli.PageFlags `set:"rows=groups"`
}

func (errorsCmd) Help() string {
	return `Errors groups the processes in ERROR, the FAILED jobs, and the flow runs that are FAILED or
EXPIRED, by reason and message, ignoring numbers, IDs and quoted text. The filter of a group finds
exactly its processes, jobs or runs, and works in a bulk. A bulk repairs processes, runs jobs again
(--kind job), or continues runs (--kind run). Each cron whose last run failed is listed, with the
number of consecutive failures. Jobs of steps are not listed, because the failure is shown with their
run.

    progressor errors
    progressor errors demo
    progressor list demo --filter 'status = ERROR AND fingerprint = "753641173a8a4a31"'
    progressor bulk start repair demo 'status = ERROR AND fingerprint = "753641173a8a4a31"' --dry-run
    progressor bulk start retry demo 'fingerprint = "5d1c9ea2b7f04433"' --kind job --dry-run
    progressor run list demo 'fingerprint = "90f3a1d2c4b5e687"'`
}

func (c *errorsCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Insight.ListErrors,
		&progressorv1.ListErrorsRequest{Namespace: c.NS},
		func(all *progressorv1.ListErrorsResponse) error {
			var rows []table.Row
			for _, g := range all.GetGroups() {
				of := "processes"
				switch {
				case g.GetCronId() != "":
					of = "cron " + output.OneLine(g.GetCronId())
				case g.GetJobs():
					of = "jobs"
				case g.GetRuns():
					of = "runs"
				}
				rows = append(rows, table.Row{
					g.GetCount(), of, g.GetNamespace(), output.OneLine(g.GetReason()), output.Time(g.GetFirstTime()),
					output.Time(g.GetLastTime()), output.OneLine(g.GetMessage()), output.OneLine(g.GetFilter()),
				})
			}
			header := table.Row{"count", "of", output.MinorIf(c.NS != "", "namespace"), "reason", output.Minor("first"),
				output.Minor("last"), "newest message", "filter"}
			none := cli.None("processes in ERROR", c.NS, false, "")
			if output.StyleOf(a.Stdout).Fits(header, rows) {
				return output.PrintList(a.Stdout, none, header, rows)
			}
			return printWithFilters(a, header, rows)
		})
}

// printWithFilters prints a table whose last column is the filter of each row. The filters follow
// the table, so that they are not cut.
func printWithFilters(a *cli.App, header table.Row, rows []table.Row) error {
	last := len(header) - 1
	short := make([]table.Row, len(rows))
	filters := make([]output.Field, len(rows))
	for n, row := range rows {
		short[n] = row[:last]
		filters[n] = output.Field{fmt.Sprint(row[0], " ", row[1]), row[last]}
	}
	if err := output.PrintRows(a.Stdout, header[:last], short); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nfilter of each row")
	return output.PrintFields(a.Stdout, filters...)
}
