package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/cron"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cronPauseCmd struct {
	cronArgs
	clientFlags
	Note string `placeholder:"TEXT" help:"Why: shown with the cron."`
}

func (cronPauseCmd) Help() string {
	return `Pause lets nothing fire until the cron is resumed. What runs goes on; fire times that come meanwhile wait for the resume.

    progressor cron pause demo nightly --note 'the bank is closed'`
}

func (c *cronPauseCmd) Run(a *app) error {
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Cron.PauseCron(ctx, &progressorv1.PauseCronRequest{Namespace: c.NS, CronId: c.ID, Note: c.Note})
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return printCron(a, resp.GetCron())
}

type cronResumeCmd struct {
	cronArgs
	clientFlags
	Note    string `placeholder:"TEXT" help:"Why."`
	CatchUp bool   `help:"Make up the pause: the misfire policy decides its fire times. By default none of them runs: they are MISSED."`
	Yes     bool   `short:"y" help:"With --catch-up: do not ask before fire times are made up, on a terminal either."`
}

func (cronResumeCmd) Help() string {
	return `Resume lets a paused cron fire again. The fire times of the pause do not run, unless --catch-up has the misfire policy decide them.
How many there are is said before, on standard error. With --catch-up it asks on a terminal whether to go on.

    progressor cron resume demo nightly
    progressor cron resume demo nightly --catch-up`
}

func (c *cronResumeCmd) Run(a *app) error {
	if err := c.tell(a); err != nil {
		return err
	}
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Cron.ResumeCron(ctx, &progressorv1.ResumeCronRequest{
		Namespace: c.NS, CronId: c.ID, Note: c.Note, CatchUp: c.CatchUp,
	})
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return printCron(a, resp.GetCron())
}

// maxWaiting is where the engine stops counting.
const maxWaiting = 1000

// tell says how many fire times wait and what becomes of them. On a terminal it asks before it makes them up.
func (c *cronResumeCmd) tell(a *app) error {
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Cron.GetCron(ctx, &progressorv1.GetCronRequest{Namespace: c.NS, CronId: c.ID})
	if err != nil {
		return err
	}
	waiting := resp.GetCron().GetWaitingFires()
	if waiting == 0 {
		return nil
	}
	fmt.Fprintf(a.Stderr, "%s: %s\n", showWaiting(waiting), becomes(resp.GetCron().GetPolicy(), c.CatchUp))
	if c.Yes || !c.CatchUp || !a.Asks {
		return nil
	}
	fmt.Fprint(a.Stderr, "resume? [y/N] ")
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &codedError{code: exitInterrupted, err: errors.New("not resumed"), next: "without --catch-up none of what waits runs"}
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
		return "at least " + thousands(n) + " fire times wait"
	}
	return thousands(n) + " fire times wait"
}

// becomes says what a resume does with what waits.
func becomes(p *progressorv1.CronPolicy, catchUp bool) string {
	switch {
	case !catchUp:
		return "none of them runs (--catch-up makes them up)"
	case p.GetMisfirePolicy() == progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP:
		threshold := p.GetMisfireThreshold().AsDuration()
		if threshold == 0 {
			threshold = cron.DefaultMisfireThreshold
		}
		return fmt.Sprintf("only the newest is decided, and only if it is not later than %s (misfire policy SKIP)", showDuration(threshold))
	case p.GetMisfirePolicy() == progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED:
		return fmt.Sprintf("the newest %d are decided, in turn (misfire policy CATCH_UP_LIMITED)", p.GetCatchupLimit())
	}
	return "all of them are decided, in turn (misfire policy FIRE_NOW)"
}
