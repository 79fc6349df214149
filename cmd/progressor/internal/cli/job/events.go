package job

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type jobEventsCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only events that match, such as 'job_id = \"mail-1\"'. See docs/jobs.md."`

	cli.ClientFlags
	Watch         bool   `short:"w" help:"Print new events, one per line, until Ctrl-C."`
	From          string `field:"cursor" placeholder:"CURSOR" help:"With --watch: continue after the event with this cursor (see -o json). Default: from now on."`
	cli.PageFlags `set:"rows=events"`
}

func (jobEventsCmd) Help() string {
	return `Events lists events of jobs, runs and steps, newest first: status changes and other changes that an
audit needs, such as lost workers and cancels. A filter compares job_id, run_id, step_id, type, from,
to, actor and worker_id (= and !=; a * at the end matches any suffix) and created_time (= != < <= >
>=). run_id finds the events of a run and of the jobs of its steps.

With --watch, it prints each new event once, oldest first, even if the engine restarts. With -o json,
each line is a JSON document with the cursor after the event; --from continues from there without
a gap.

    progressor job events echo 'job_id = "mail-1"'
    progressor job events echo 'run_id = "A-7"'
    progressor job events echo 'to = failed AND created_time > "2026-11-01T00:00:00Z"' --all
    progressor job events echo 'type = lease_lost' --watch`
}

func (c *jobEventsCmd) Run(a *cli.App) error {
	if c.Watch {
		return c.watch(a)
	}
	if c.From != "" {
		return cli.UsageError(errors.New("--from requires --watch"))
	}
	return cli.PrintPages(a, c, c.Client().JobEvent.ListJobEvents,
		&progressorv1.ListJobEventsRequest{Namespace: c.NS, Filter: c.Match},
		func(all *progressorv1.ListJobEventsResponse) error {
			var rows []table.Row
			for _, e := range all.GetEvents() {
				rows = append(rows, table.Row{
					output.Time(e.GetCreatedTime()), eventSubject(e), e.GetType(), e.GetFrom(), e.GetTo(),
					output.ID(int64(e.GetAttempt())), output.OneLine(e.GetWorkerId()), output.OneLine(e.GetActor()),
					eventNote(e),
				})
			}
			return output.PrintList(a.Stdout, cli.None("events of jobs", c.NS, c.Match != "", ""),
				table.Row{"time", "job", "type", "from", "to", "attempt", "worker", "actor", "note"}, rows)
		})
}

func (c *jobEventsCmd) watch(a *cli.App) error {
	if c.All || c.PageSize != 0 || c.PageToken != "" {
		return cli.UsageError(errors.New("--watch cannot be used with --all, --page-size or --page-token"))
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	req := &progressorv1.WatchJobEventsRequest{Namespace: c.NS, Filter: c.Match, Cursor: c.From}
	return c.RetryingClient().WatchJobEvents(ctx, req, func(u *progressorv1.WatchJobEventsResponse) error {
		if c.JSON() {
			return output.PrintLine(a.Stdout, u)
		}
		_, err := fmt.Fprintln(a.Stdout, eventLine(output.StyleOf(a.Stdout), u.GetEvent()))
		return err
	})
}

// eventSubject returns the job, run or step of an event.
func eventSubject(e *progressorv1.JobEvent) string {
	text := e.GetJobId()
	if e.GetStepId() != "" && !strings.HasPrefix(text, process.StepPrefix) {
		text += "/" + e.GetStepId()
	}
	return output.OneLine(output.StepName(text, e.Index))
}

// eventNote returns further details of an event.
func eventNote(e *progressorv1.JobEvent) string {
	metadata := ""
	if e.GetMetadata() != nil {
		metadata = output.Message(e.GetMetadata(), output.CellLimit)
	}
	return strings.TrimSpace(output.OneLine(e.GetMessage()) + " " + metadata)
}

// eventLine formats an event as a line for people.
func eventLine(style output.Style, e *progressorv1.JobEvent) string {
	change := ""
	if e.GetFrom() != "" || e.GetTo() != "" {
		change = cmp.Or(e.GetFrom(), "-") + " → " + cmp.Or(e.GetTo(), "-")
	}
	return strings.TrimRight(
		fmt.Sprintf("%s  %-20s  %-20s  %-28s  %s", style.Text(output.Time(e.GetCreatedTime())), eventSubject(e),
			e.GetType(), change,
			strings.TrimSpace(strings.Join(
				[]string{output.OneLine(e.GetWorkerId()), output.OneLine(e.GetActor()), eventNote(e)}, " "))), " ")
}
