package admin

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type changesCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	cli.ClientFlags
	Watch   bool     `short:"w" help:"Continue with new changes until Ctrl-C."`
	From    string   `field:"cursor,from_time" placeholder:"CURSOR|TIME|DURATION" help:"Continue after a cursor, or begin at a time such as 2026-11-26T10:00:00Z, -2h or 1970-01-01 (all). Default with --watch: now; otherwise all stored changes."`
	Kind    []string `field:"kinds" placeholder:"KIND" complete:"ChangeKind" help:"Only these kinds: event, lifecycle, job, step, run, fire. Default: all."`
	Process string   `field:"process_id" placeholder:"ID" complete:"process" help:"Only changes of this process, job, run (~flow/ID) or cron (~cron/ID)."`
}

func (changesCmd) Help() string {
	return `Changes prints the recorded changes of a namespace, one per line and oldest first: events, and
what happened to processes, jobs, steps, runs and crons. See docs/changes.md. The changes of a
process are in order.

With -o json, each line is a response with changes and the cursor after them. Process the changes,
store the cursor, and continue from it with --from, without a gap. If the connection breaks,
--watch reconnects and continues. It may print some changes again.

    progressor changes orders --watch
    progressor changes orders --kind lifecycle --from 2026-11-26T10:00:00Z
    progressor changes orders --from -2h
    progressor changes orders --watch -o json --from CURSOR`
}

// Run prints changes until the end of the stored changes, or until Ctrl-C.
func (c *changesCmd) Run(a *cli.App) error {
	req, err := c.request()
	if err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	err = c.RetryingClient().WatchChanges(ctx, req, func(u *progressorv1.WatchChangesResponse) error {
		if c.JSON() {
			return output.PrintLine(a.Stdout, u)
		}
		for _, change := range u.GetChanges() {
			if _, err := fmt.Fprintln(a.Stdout, changeLine(output.StyleOf(a.Stdout), change)); err != nil {
				return err
			}
		}
		return nil
	})
	if d := client.Detail(err); d.GetField() == "cursor" && d.GetReason() == progressorv1.ErrorDetail_REASON_INVALID {
		return cli.UsageError(errFrom)
	}
	return err
}

var errFrom = errors.New("--from: must be the cursor of a previous response, or a time such as " +
	"2026-11-26T10:00:00Z, -2h or 1970-01-01")

func (c *changesCmd) request() (*progressorv1.WatchChangesRequest, error) {
	req := &progressorv1.WatchChangesRequest{Namespace: c.NS, ProcessId: c.Process, Stop: !c.Watch}
	at, err := cli.TimeFrom("--from", c.From)
	switch {
	case c.From == "" && !c.Watch:
		req.FromTime = timestamppb.New(time.Unix(0, 0))
	case c.From == "":
	case err == nil:
		req.FromTime = at
	case strings.ContainsAny(c.From, ":. "):
		return nil, errFrom
	default:
		req.Cursor = c.From
	}
	for _, name := range c.Kind {
		err := cli.SetEnum("--kind", name, func(kind progressorv1.ChangeKind) { req.Kinds = append(req.Kinds, kind) })
		if err != nil {
			return nil, err
		}
	}
	return req, nil
}

// changeLine formats a change as a line for people.
func changeLine(style output.Style, c *progressorv1.Change) string {
	subject := output.OneLine(c.GetProcessId())
	if step := c.GetDetails().GetFields()["step_id"].GetStringValue(); step != "" {
		subject += "/" + output.OneLine(step)
	}
	note := ""
	switch {
	case c.GetEventId() != 0:
		note = fmt.Sprintf("event %d", c.GetEventId())
		if len(c.GetPayload()) > 0 {
			note += fmt.Sprintf(", %d bytes", len(c.GetPayload()))
		}
	case c.GetFromStatus() != "" || c.GetToStatus() != "":
		note = cmp.Or(c.GetFromStatus(), "-") + " → " + cmp.Or(c.GetToStatus(), "-")
	}
	return strings.TrimRight(fmt.Sprintf("%s  %-9s  %-24s  %-20s  %-24s  %s", style.Text(output.Time(c.GetTime())),
		strings.ToLower(output.Enum(c.GetKind())), subject, output.OneLine(c.GetType()), note,
		output.OneLine(c.GetReason())), " ")
}
