package cron

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Commands are the commands that manage crons.
type Commands struct {
	Cron cronCmd `cmd:"" group:"cron" help:"Manage crons and their ledger."`
}

type cronCmd struct {
	Create       cronCreateCmd       `cmd:"" help:"Create a cron."`
	Update       cronUpdateCmd       `cmd:"" help:"Change a cron."`
	Get          cronGetCmd          `cmd:"" help:"Show a cron and its next fire times."`
	List         cronListCmd         `cmd:"" help:"List the crons of a namespace."`
	Next         cronNextCmd         `cmd:"" help:"List the crons that fire next, of one namespace or of all."`
	Delete       cronDeleteCmd       `cmd:"" help:"Delete a cron with its ledger; current runs continue."`
	Pause        cronPauseCmd        `cmd:"" help:"Pause a cron."`
	Resume       cronResumeCmd       `cmd:"" help:"Resume a paused cron."`
	Trigger      cronTriggerCmd      `cmd:"" help:"Start a run now, even if the cron is paused."`
	Cancel       cronCancelCmd       `cmd:"" help:"Cancel the run of a fire, or a fire that waits."`
	Rerun        cronRerunCmd        `cmd:"" help:"Start another run for a fire that was skipped or failed."`
	Backfill     cronBackfillCmd     `cmd:"" help:"Run past fire times that are not in the ledger."`
	StopBackfill cronStopBackfillCmd `cmd:"" help:"Stop the backfills of a cron."`
	Preview      cronPreviewCmd      `cmd:"" help:"Show when a cron, or expressions, will fire in the next month."`
	Fires        cronFiresCmd        `cmd:"" help:"Show the ledger: each fire time, its decision and the reason."`
}

// cronArgs identify a cron.
type cronArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"cron" help:"Cron id."`
}

type cronGetCmd struct {
	cronArgs
	cli.ClientFlags
}

func (cronGetCmd) Help() string {
	return `Get shows a cron: its schedule, policies and target, its next ten fire times, its current runs, and
the number of fires by decision. The output of get -o json can be edited and passed to update -f.

    progressor cron get demo nightly
    progressor cron get demo nightly -o json > nightly.json`
}

func (c *cronGetCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Cron.GetCron,
		&progressorv1.GetCronRequest{Namespace: c.NS, CronId: c.ID}, printCron)
}

type cronListCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only crons that match, such as 'failing = true' or 'cron_id = night*'. See docs/api.md."`

	cli.ClientFlags
	Filter        string `placeholder:"FILTER" help:"The filter as a flag."`
	cli.PageFlags `set:"rows=crons"`
}

func (cronListCmd) Help() string {
	return `List shows the crons of a namespace: the state of each (active, paused or over, and whether
its last runs failed), its last and next fire times, and its schedule in words.

    progressor cron list demo
    progressor cron list demo 'failing = true'
    progressor cron list demo 'metadata.team = "billing"' --all -o json`
}

func (c *cronListCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Cron.ListCrons,
		&progressorv1.ListCronsRequest{Namespace: c.NS, Filter: cli.Both(c.Match, c.Filter)},
		func(all *progressorv1.ListCronsResponse) error {
			var rows []table.Row
			for _, cr := range all.GetCrons() {
				var next output.Moment
				if times := cr.GetNextFireTimes(); len(times) > 0 && !cr.GetPaused() {
					next = output.Time(times[0])
				}
				rows = append(rows, table.Row{
					output.OneLine(cr.GetCronId()), cronState(cr), output.Time(cr.GetLastFireTime()), next,
					len(cr.GetRunningProcessIds()), output.OneLine(cronWords(cr.GetSpec())),
				})
			}
			none := cli.None("crons", c.NS, c.Match+c.Filter != "",
				fmt.Sprintf("create one with progressor cron create %s ID …", output.ShellWord(c.NS)))
			return output.PrintList(a.Stdout, none,
				table.Row{"cron", "state", output.Minor("last fire"), "next fire", output.Minor("running"), "fires"},
				rows)
		})
}

type cronNextCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all that are not paused."`

	cli.ClientFlags
	PageSize int32 `name:"page-size" placeholder:"N" help:"Maximum number of crons, at most 100. Default: 10."`
}

func (cronNextCmd) Help() string {
	return `Next shows the crons that fire next, the soonest first, and what they start. Paused crons are not
listed.

    progressor cron next
    progressor cron next demo --page-size 50`
}

func (c *cronNextCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Cron.ListNextCrons,
		&progressorv1.ListNextCronsRequest{Namespace: c.NS, PageSize: c.PageSize},
		func(resp *progressorv1.ListNextCronsResponse) error {
			var rows []table.Row
			for _, cr := range resp.GetCrons() {
				var next output.Moment
				if times := cr.GetNextFireTimes(); len(times) > 0 {
					next = output.Time(times[0])
				}
				rows = append(rows, table.Row{
					next, output.OneLine(cr.GetNamespace()), output.OneLine(cr.GetCronId()),
					output.OneLine(showTarget(cr.GetTarget())),
				})
			}
			none := cli.None("crons that will fire", c.NS, false, "")
			return output.PrintList(a.Stdout, none,
				table.Row{"next fire", output.MinorIf(c.NS != "", "namespace"), "cron", "target"}, rows)
		})
}

// cronState returns active, paused or over, and the number of consecutive failures. A failing cron
// is not shown as active.
func cronState(c *progressorv1.Cron) string {
	state := "active"
	switch {
	case c.GetPaused():
		state = "paused"
	case len(c.GetNextFireTimes()) == 0:
		state = "over"
	}
	if c.GetFailures() > 0 {
		failing := fmt.Sprintf("failing (%d in a row)", c.GetFailures())
		if state == "active" {
			return failing
		}
		state += ", " + failing
	}
	return state
}

// printCron prints the cron of a response.
func printCron[P interface{ GetCron() *progressorv1.Cron }](a *cli.App, resp P) error {
	c := resp.GetCron()
	var next []string
	for _, t := range c.GetNextFireTimes() {
		next = append(next, output.StyleOf(a.Stdout).Text(output.Time(t)))
	}
	err := output.PrintFields(a.Stdout,
		output.Field{"cron", output.OneLine(c.GetNamespace() + "/" + c.GetCronId())},
		output.Field{"state", cronState(c)},
		output.Field{"note", output.OneLine(c.GetPauseNote())},
		output.Field{"waiting", showWaiting(c.GetWaitingFires())},
		output.Field{"expressions", output.OneLine(strings.Join(c.GetSpec().GetExpressions(), "; "))},
		output.Field{"fires", output.OneLine(cronWords(c.GetSpec()))},
		output.Field{"jitter", output.Duration(c.GetSpec().GetJitter().AsDuration())},
		output.Field{"max fires", output.ID(c.GetSpec().GetMaxFires())},
		output.Field{"policy", output.OneLine(showPolicy(c.GetPolicy()))},
		output.Field{"target", output.OneLine(showTarget(c.GetTarget()))},
		output.Field{"metadata", output.Message(c.GetMetadata(), 0)},
		output.Field{"last fire", output.Time(c.GetLastFireTime())},
		output.Field{"backfills", showBackfills(c.GetBackfills())},
		output.Field{"decisions", showDecisions(c.GetFiresByDecision())},
		output.Field{"created", output.Time(c.GetCreatedTime())},
		output.Field{"updated", output.Time(c.GetUpdatedTime())},
	)
	if err != nil {
		return err
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{nextTitle(c.GetSpec()), next}, {"running", c.GetRunningProcessIds()}} {
		if len(list.lines) == 0 {
			continue
		}
		fmt.Fprintln(a.Stdout, "\n"+list.title)
		for _, line := range list.lines {
			fmt.Fprintln(a.Stdout, output.OneLine(line))
		}
	}
	return nil
}

// nextTitle returns the title of the list of next fire times. If the schedule has a jitter, the
// title says that the times do not include it.
func nextTitle(s *progressorv1.CronSpec) string {
	if j := s.GetJitter().AsDuration(); j > 0 {
		return "next fires, each up to " + output.Duration(j) + " later (jitter)"
	}
	return "next fires"
}

func fireTimes(n int64) string {
	if n == 1 {
		return "1 fire time"
	}
	return output.Thousands(n) + " fire times"
}

// showPolicy shows the settings of a policy that are set.
func showPolicy(p *progressorv1.CronPolicy) string {
	var parts []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			parts = append(parts, name+" "+value)
		}
	}
	number := func(name string, n int32) { add(name, fmt.Sprint(n)) }
	add("overlap", output.Enum(p.GetOverlapAction()))
	number("max_overlap", p.GetMaxOverlap())
	add("failure", output.Enum(p.GetFailureAction()))
	number("max_attempts", p.GetMaxAttempts())
	add("retry_backoff", output.Duration(p.GetRetryBackoff().GetInitial().AsDuration()))
	number("pause_after_failures", p.GetPauseAfterFailures())
	add("concurrency", output.Enum(p.GetConcurrencyPolicy()))
	number("max_concurrency", p.GetMaxConcurrency())
	number("queue_limit", p.GetQueueLimit())
	add("misfire", output.Enum(p.GetMisfirePolicy()))
	number("catchup_limit", p.GetCatchupLimit())
	add("catchup_window", output.Duration(p.GetCatchupWindow().AsDuration()))
	add("misfire_threshold", output.Duration(p.GetMisfireThreshold().AsDuration()))
	add("timeout", output.Duration(p.GetTimeout().AsDuration()))
	return strings.Join(parts, ", ")
}

// showTarget describes a target. It omits headers, because they may be secret.
func showTarget(t *progressorv1.CronTarget) string {
	in := func(namespace string) string {
		if namespace == "" {
			return ""
		}
		return " in " + namespace
	}
	with := func(args []byte) string {
		if len(args) == 0 {
			return ""
		}
		return " with " + output.Payload(args, output.CellLimit)
	}
	switch t := t.GetTarget().(type) {
	case *progressorv1.CronTarget_StartProcess:
		text := "start a process" + in(t.StartProcess.GetNamespace()) + with(t.StartProcess.GetArgs())
		if t.StartProcess.GetRunEnd() == progressorv1.StartProcessTarget_RUN_END_INIT {
			text += ", until its INIT task ends"
		}
		return text
	case *progressorv1.CronTarget_EnqueueJob:
		text := "enqueue the job " + t.EnqueueJob.GetName() + in(t.EnqueueJob.GetNamespace())
		if t.EnqueueJob.GetArgs() != nil {
			text += " with " + output.Message(t.EnqueueJob.GetArgs(), output.CellLimit)
		}
		return text
	case *progressorv1.CronTarget_NotifyProcess:
		return "notify the process " + t.NotifyProcess.GetProcessId() + in(t.NotifyProcess.GetNamespace()) +
			with(t.NotifyProcess.GetArgs())
	case *progressorv1.CronTarget_Http:
		method := cmp.Or(t.Http.GetMethod(), "POST")
		return method + " " + t.Http.GetUrl() + with(t.Http.GetBody())
	case *progressorv1.CronTarget_StartRun:
		return showStartRun(t.StartRun)
	}
	return ""
}

func showDecisions(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			parts = append(parts, output.OneLine(name)+" "+output.Thousands(counts[name]))
		}
	}
	return strings.Join(parts, ", ")
}

type cronDeleteCmd struct {
	cronArgs
	cli.ClientFlags
}

func (cronDeleteCmd) Help() string {
	return `Delete deletes a cron with its ledger. It no longer fires; current runs continue.

    progressor cron delete demo nightly`
}

func (c *cronDeleteCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Cron.DeleteCron,
		&progressorv1.DeleteCronRequest{Namespace: c.NS, CronId: c.ID},
		func(resp *progressorv1.DeleteCronResponse) error {
			return output.PrintFields(a.Stdout, output.Field{"cron", output.OneLine(c.NS + "/" + c.ID)},
				output.Field{"state", "deleted"})
		})
}

type cronTriggerCmd struct {
	cronArgs
	cli.ClientFlags
	Overlap string `field:"overlap_action" placeholder:"ACTION" complete:"OverlapAction" help:"Replaces the overlap action of the cron: allow, skip, cancel_prev, parallel or buffer_one."`
}

func (cronTriggerCmd) Help() string {
	return `Trigger starts a run now, even if the cron is paused, and shows its row of the ledger. The overlap
action and the concurrency policy apply, but the run is not skipped because of a failure.

    progressor cron trigger demo nightly
    progressor cron trigger demo nightly --overlap parallel`
}

func (c *cronTriggerCmd) Run(a *cli.App) error {
	req := &progressorv1.TriggerCronRequest{Namespace: c.NS, CronId: c.ID}
	if err := cli.SetEnum("--overlap", c.Overlap,
		func(v progressorv1.OverlapAction) { req.OverlapAction = v }); err != nil {
		return err
	}
	return cli.Show(a, c, c.Client().Cron.TriggerCron, req, showFire)
}

// fireArgs identify a fire.
type fireArgs struct {
	cronArgs
	cli.ClientFlags
	Fire   string `arg:"" placeholder:"FIRE_TIME" help:"The fire time, as cron fires shows it."`
	Reason string `placeholder:"TEXT" help:"Reason, stored in the audit log."`
}

type cronCancelCmd struct{ fireArgs }

func (cronCancelCmd) Help() string {
	return `Cancel asks the run of a fire to end, as the cancel command of its process, job or flow run does. A
queued fire is removed from the queue and never starts. The output is its row of the ledger.

    progressor cron cancel demo nightly 2026-11-21T02:00:00Z --reason 'wrong data'`
}

func (c *cronCancelCmd) Run(a *cli.App) error {
	at, err := cli.TimeFrom("<fire>", c.Fire)
	if err != nil {
		return err
	}
	req := &progressorv1.CancelFireRequest{Namespace: c.NS, CronId: c.ID, FireTime: at, Reason: c.Reason}
	return c.advised(cli.Show(a, c, c.Client().Cron.CancelFire, req, showFire))
}

// advised adds advice to an error about a fire: the message names the argument, and the next step
// is the command that shows the fires.
func (f *fireArgs) advised(err error) error {
	d := client.Detail(err)
	connected, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	message := connected.Message()
	switch {
	case d.GetField() == "fire_time":
		message = strings.TrimSuffix("<fire>"+strings.TrimPrefix(message, "fire_time"), ": see ListFires")
	case d.GetReason() == progressorv1.ErrorDetail_REASON_PROCESS_STATUS:
		_, message, _ = strings.Cut(message, ": ") // omits the process of the cron and its status
	default:
		return err
	}
	next := "progressor cron fires " + output.ShellWord(f.NS) + " " + output.ShellWord(f.ID)
	return &cli.Advised{Err: err, Message: message, Named: true, Next: next}
}

type cronRerunCmd struct{ fireArgs }

func (cronRerunCmd) Help() string {
	return `Rerun starts another run for a fire that was skipped or missed, or whose run failed,
timed out or was cancelled. The run has the original fire time and the next attempt number. It starts
at once, and the policies of the cron ignore it. The output is its row of the ledger.

    progressor cron rerun demo nightly 2026-11-21T02:00:00Z --reason 'disk is free again'`
}

func (c *cronRerunCmd) Run(a *cli.App) error {
	at, err := cli.TimeFrom("<fire>", c.Fire)
	if err != nil {
		return err
	}
	req := &progressorv1.RerunFireRequest{Namespace: c.NS, CronId: c.ID, FireTime: at, Reason: c.Reason}
	return c.advised(cli.Show(a, c, c.Client().Cron.RerunFire, req, showFire))
}
