package cron

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cronFiresCmd struct {
	cronArgs
	cli.ClientFlags
	cli.PageFlags `set:"rows=fires"`
}

func (cronFiresCmd) Help() string {
	return `Fires shows the ledger of a cron, newest fire time first: the decision and its reason,
how long after the fire time it was made, and how the run ended. MANUAL fires were triggered,
backfilled or run again. A row of old missed fire times may represent several fire times.

    progressor cron fires demo nightly
    progressor cron fires demo nightly --all -o json`
}

func (c *cronFiresCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Cron.ListFires,
		&progressorv1.ListFiresRequest{Namespace: c.NS, CronId: c.ID},
		func(all *progressorv1.ListFiresResponse) error {
			return printFires(a, all.GetFires())
		})
}

// showFire prints the fire of a response.
func showFire[P interface{ GetFire() *progressorv1.Fire }](a *cli.App, resp P) error {
	return printFires(a, []*progressorv1.Fire{resp.GetFire()})
}

func printFires(a *cli.App, fires []*progressorv1.Fire) error {
	var rows []table.Row
	for _, f := range fires {
		manual, count, attempt, took := "", "", output.ID(int64(f.GetAttempt())), ""
		if f.GetManual() {
			manual = "yes"
		}
		if f.GetCount() > 1 {
			count = output.Thousands(f.GetCount())
		}
		if f.GetStartedTime() != nil && f.GetEndedTime() != nil {
			took = between(f.GetStartedTime().AsTime(), f.GetEndedTime().AsTime())
		}
		after := ""
		if f.GetDecidedTime() != nil {
			after = between(f.GetFireTime().AsTime(), f.GetDecidedTime().AsTime())
		}
		rows = append(rows, table.Row{
			output.Time(f.GetFireTime()), after, output.Enum(f.GetDecision()), count, manual, attempt,
			output.Enum(f.GetStatus()), took, output.OneLine(why(f)),
		})
	}
	header := table.Row{
		"fire time", "decided after", "decision", "times", "manual", "attempt", "status", "took", "reason",
	}
	return output.PrintRows(a.Stdout, header, rows, "times", "attempt")
}

func between(from, to time.Time) string { return durations.Rounded(to.Sub(from)) }

// why returns the reason for the decision, and how the run ended.
func why(f *progressorv1.Fire) string {
	if f.GetReason() != "" && f.GetDetail() != "" {
		return f.GetReason() + "; " + f.GetDetail()
	}
	return f.GetReason() + f.GetDetail()
}
