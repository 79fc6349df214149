package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type jobEventsCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only events that match, such as 'job_id = \"mail-1\"'. See docs/jobs.md."`

	clientFlags
	Watch     bool   `short:"w" help:"Print new events, one per line, until Ctrl-C."`
	Cursor    string `placeholder:"CURSOR" help:"With --watch: continue after the event with this cursor (see -o json). Default: from now on."`
	pageFlags `set:"rows=Events"`
}

func (jobEventsCmd) Help() string {
	return `Events lists events of jobs, runs and steps, newest first: status changes and other changes that an
audit needs, such as lost workers and cancels. A filter compares job_id, run_id, step_id, type, from,
to, actor and worker_id (= and !=; a * at the end matches any suffix) and created_time (= != < <= >
>=). run_id finds the events of a run and of the jobs of its steps.

With --watch, it prints new events, oldest first, each once, also if the engine stops. With -o json,
each line is a JSON document with the cursor after the event; --cursor continues from there without
a gap.

    progressor job events echo 'job_id = "mail-1"'
    progressor job events echo 'run_id = "A-7"'
    progressor job events echo 'to = failed AND created_time > "2026-11-01T00:00:00Z"' --all
    progressor job events echo 'type = lease_lost' --watch`
}

func (c *jobEventsCmd) Run(a *app) error {
	if c.Watch {
		return c.watch(a)
	}
	if c.Cursor != "" {
		return usageError(errors.New("--cursor requires --watch"))
	}
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListJobEventsResponse, error) {
		return c.client().JobEvent.ListJobEvents(ctx, &progressorv1.ListJobEventsRequest{
			Namespace: c.NS, Filter: c.Match, PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.ListJobEventsResponse) error {
		var rows []table.Row
		for _, e := range all.GetEvents() {
			rows = append(rows, table.Row{
				showTime(e.GetCreatedTime()), eventSubject(e), e.GetType(), e.GetFrom(), e.GetTo(), showID(int64(e.GetAttempt())), oneLine(e.GetWorkerId()), oneLine(e.GetActor()),
				eventNote(e),
			})
		}
		return printRows(a.Stdout, table.Row{"time", "job", "type", "from", "to", "attempt", "worker", "actor", "note"}, rows)
	})
}

func (c *jobEventsCmd) watch(a *app) error {
	if c.All || c.PageSize != 0 || c.PageToken != "" {
		return usageError(errors.New("--watch cannot be used with --all, --page-size or --page-token"))
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	req := &progressorv1.WatchJobEventsRequest{Namespace: c.NS, Filter: c.Match, Cursor: c.Cursor}
	return c.retryingClient().WatchJobEvents(ctx, req, func(u *progressorv1.WatchJobEventsResponse) error {
		if c.json() {
			return printLine(a.Stdout, u)
		}
		_, err := fmt.Fprintln(a.Stdout, eventLine(u.GetEvent()))
		return err
	})
}

// eventSubject returns the job, run or step of an event.
func eventSubject(e *progressorv1.JobEvent) string {
	text := e.GetJobId()
	if e.GetStepId() != "" && !strings.HasPrefix(text, process.StepPrefix) {
		text += "/" + e.GetStepId()
	}
	return oneLine(stepName(text, e.Index))
}

// eventNote returns further details of an event.
func eventNote(e *progressorv1.JobEvent) string {
	metadata := ""
	if e.GetMetadata() != nil {
		metadata = showMessage(e.GetMetadata(), cellLimit)
	}
	return strings.TrimSpace(oneLine(e.GetMessage()) + " " + metadata)
}

// eventLine formats an event as a line for people.
func eventLine(e *progressorv1.JobEvent) string {
	change := ""
	if e.GetFrom() != "" || e.GetTo() != "" {
		change = cmp.Or(e.GetFrom(), "-") + " → " + cmp.Or(e.GetTo(), "-")
	}
	return strings.TrimRight(fmt.Sprintf("%s  %-20s  %-20s  %-28s  %s", showTime(e.GetCreatedTime()), eventSubject(e), e.GetType(), change,
		strings.TrimSpace(strings.Join([]string{oneLine(e.GetWorkerId()), oneLine(e.GetActor()), eventNote(e)}, " "))), " ")
}
