package cron

import (
	"cmp"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cronBackfillCmd struct {
	cronArgs
	cli.ClientFlags
	From           string `field:"from_time" required:"" placeholder:"TIME|DURATION" help:"First fire time, such as -24h."`
	To             string `field:"to_time" placeholder:"TIME|DURATION" help:"End, exclusive. Default: now."`
	MaxConcurrency int32  `placeholder:"N" help:"Maximum number of runs of the backfill at the same time. Default: 1."`
	Overlap        string `field:"overlap_action" placeholder:"ACTION" complete:"OverlapAction" help:"Decide all fire times at once with this overlap action: allow, skip, cancel_prev, parallel or buffer_one."`
}

func (cronBackfillCmd) Help() string {
	return `Backfill runs the fire times from --from to --to (exclusive) that are not in the ledger, including
those before the cron was created. They run in order, at most --max-concurrency at the same time.
The policies of the cron ignore these runs. With --overlap, all fire times are decided at once
instead, as with trigger. Backfill prints the number of fire times.

    progressor cron backfill demo nightly --from -24h
    progressor cron backfill demo nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --max-concurrency 3`
}

func (c *cronBackfillCmd) Run(a *cli.App) error {
	req := &progressorv1.BackfillCronRequest{Namespace: c.NS, CronId: c.ID, MaxConcurrency: c.MaxConcurrency}
	var err error
	if req.FromTime, err = cli.TimeFrom("--from", c.From); err != nil {
		return err
	}
	to := cmp.Or(c.To, "0s")
	if req.ToTime, err = cli.TimeFrom("--to", to); err != nil {
		return err
	}
	if from, to := req.GetFromTime().AsTime(), req.GetToTime().AsTime(); to.Before(from) {
		return cli.UsageError(
			fmt.Errorf("--to: must not be before --from %s, but is %s", from.Format(time.RFC3339),
				to.Format(time.RFC3339)))
	}
	if err := cli.SetEnum("--overlap", c.Overlap,
		func(v progressorv1.OverlapAction) { req.OverlapAction = v }); err != nil {
		return err
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	resp, err := c.Client().Cron.BackfillCron(ctx, req)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	return output.PrintFields(a.Stdout,
		output.Field{"cron", output.OneLine(c.NS + "/" + c.ID)},
		output.Field{"backfills", fireTimes(int64(resp.GetFires()))},
	)
}

type cronStopBackfillCmd struct {
	cronArgs
	cli.ClientFlags
	Reason string `placeholder:"TEXT" help:"Reason, stored in the audit log."`
}

func (cronStopBackfillCmd) Help() string {
	return `Stop-backfill stops all backfills of a cron. It drops the fire times that they have not started or
decided yet. Runs that have started continue. It prints the number of stopped backfills.

    progressor cron stop-backfill demo nightly`
}

func (c *cronStopBackfillCmd) Run(a *cli.App) error {
	req := &progressorv1.StopBackfillsRequest{Namespace: c.NS, CronId: c.ID, Reason: c.Reason}
	return cli.Ask(a, c.OutputFlag, c.Client().Cron.StopBackfills, req,
		func(resp *progressorv1.StopBackfillsResponse) error {
			return output.PrintFields(a.Stdout,
				output.Field{"cron", output.OneLine(c.NS + "/" + c.ID)},
				output.Field{"stopped", output.Counted(int(resp.GetBackfills()), "backfill")},
			)
		})
}

// showBackfills returns the incomplete backfills, each with its remaining time range.
func showBackfills(list []*progressorv1.Backfill) output.Phrase {
	var texts output.Phrase
	for n, b := range list {
		if n > 0 {
			texts = append(texts, "; ")
		}
		texts = append(texts, output.Time(b.GetFromTime()), " to ", output.Time(b.GetToTime()))
		if b.GetMaxConcurrency() > 0 {
			texts = append(texts, fmt.Sprintf(", %d at a time", b.GetMaxConcurrency()))
		}
	}
	return texts
}
