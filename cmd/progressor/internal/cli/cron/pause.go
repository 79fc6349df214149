package cron

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cron"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cronPauseCmd struct {
	cronArgs
	cli.ClientFlags
	Reason string `field:"note" placeholder:"TEXT" help:"Reason, shown with the cron."`
}

func (cronPauseCmd) Help() string {
	return `Pause stops a cron from firing until it is resumed. Current runs continue. When the cron is resumed,
the fire times of the pause are MISSED, unless the resume has --catch-up.

    progressor cron pause demo nightly --reason 'the bank is closed'`
}

func (c *cronPauseCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Cron.PauseCron,
		&progressorv1.PauseCronRequest{Namespace: c.NS, CronId: c.ID, Note: c.Reason}, printCron)
}

type cronResumeCmd struct {
	cronArgs
	cli.ClientFlags
	Reason  string `field:"note" placeholder:"TEXT" help:"Reason, stored in the audit log."`
	CatchUp bool   `help:"Apply the misfire policy to the fire times of the pause. By default, they are MISSED."`
	Yes     bool   `short:"y" help:"With --catch-up: do not ask for confirmation on a terminal."`
}

func (cronResumeCmd) Help() string {
	return `Resume lets a paused cron fire again. The fire times of the pause are MISSED; with --catch-up, the
misfire policy decides which of them fire. First, the command prints their number on standard error.
With --catch-up, it asks for confirmation on a terminal.

    progressor cron resume demo nightly
    progressor cron resume demo nightly --catch-up`
}

func (c *cronResumeCmd) Run(a *cli.App) error {
	if err := c.printWaiting(a); err != nil {
		return err
	}
	return cli.Show(a, c, c.Client().Cron.ResumeCron, &progressorv1.ResumeCronRequest{
		Namespace: c.NS, CronId: c.ID, Note: c.Reason, CatchUp: c.CatchUp,
	}, printCron)
}

// maxWaiting is the number at which the engine stops counting waiting fire times.
const maxWaiting = 1000

// printWaiting prints the number of waiting fire times and what will happen to them. On a terminal,
// it asks for confirmation before a catch-up.
func (c *cronResumeCmd) printWaiting(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.Client().Cron.GetCron(ctx, &progressorv1.GetCronRequest{Namespace: c.NS, CronId: c.ID})
	if err != nil {
		return err
	}
	waiting := resp.GetCron().GetWaitingFires()
	if waiting == 0 {
		return nil
	}
	fmt.Fprintf(a.Stderr, "%s: %s\n", showWaiting(waiting), waitingOutcome(resp.GetCron().GetPolicy(), c.CatchUp))
	if c.Yes || !c.CatchUp || !a.Interactive {
		return nil
	}
	fmt.Fprint(a.Stderr, "resume? [y/N] ")
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &cli.CodedError{Code: cli.ExitInterrupted, Err: errors.New("not resumed"),
			Next: "to resume without running the fire times that wait, omit --catch-up"}
	}
	return nil
}

func showWaiting(n int64) string {
	switch {
	case n == 0:
		return ""
	case n == 1:
		return "1 fire time waits"
	case n >= maxWaiting:
		return "at least " + output.Thousands(n) + " fire times wait"
	}
	return output.Thousands(n) + " fire times wait"
}

// waitingOutcome describes what a resume will do with the waiting fire times.
func waitingOutcome(p *progressorv1.CronPolicy, catchUp bool) string {
	switch {
	case !catchUp:
		return "none of them will run (use --catch-up to run them)"
	case p.GetMisfirePolicy() == progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP:
		threshold := cmp.Or(p.GetMisfireThreshold().AsDuration(), cron.DefaultMisfireThreshold)
		return fmt.Sprintf("only the newest is decided, unless it is more than %s late (misfire policy SKIP)",
			output.Duration(threshold))
	case p.GetMisfirePolicy() == progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED:
		if p.GetCatchupLimit() == 1 {
			return "only the newest is decided (misfire policy CATCH_UP_LIMITED)"
		}
		return fmt.Sprintf("the newest %d are decided, in order (misfire policy CATCH_UP_LIMITED)", p.GetCatchupLimit())
	}
	return "all of them are decided, in order (misfire policy FIRE_NOW)"
}
