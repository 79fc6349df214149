package process

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type watchCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	Offset int64 `field:"after_event_id" placeholder:"EVENT" help:"Only events after this event. Default: all."`
}

func (watchCmd) Help() string {
	return `Watch prints events and status changes of a process, one per line, until the process ends or Ctrl-C.
With -o json, each line is a JSON document. If the engine stops, the command continues with another
one.

    progressor watch demo order-1
    progressor watch demo order-1 --offset 12 -o json`
}

func (c *watchCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	req := &progressorv1.WatchProcessRequest{Namespace: c.NS, ProcessId: c.ID, AfterEventId: c.Offset}
	return c.RetryingClient().Watch(ctx, req, func(u *progressorv1.WatchProcessResponse) error {
		if c.JSON() {
			return output.PrintLine(a.Stdout, u)
		}
		_, err := fmt.Fprintln(a.Stdout, updateLine(output.StyleOf(a.Stdout), u))
		return err
	})
}

// updateLine formats an update for people.
func updateLine(style output.Style, u *progressorv1.WatchProcessResponse) string {
	line := func(at *timestamppb.Timestamp, what, by, rest string) string {
		if by == "" && rest == "" {
			return style.Text(output.Time(at)) + "  " + what
		}
		return fmt.Sprintf("%s  %-10s  %-9s  %s", style.Text(output.Time(at)), what, by, rest)
	}
	if e := u.GetEvent(); e != nil {
		return line(e.GetTimestamp(), fmt.Sprint("event ", e.GetEventId()), taskName(e.GetTaskId()),
			output.Payload(e.GetPayload(), 0))
	}
	p := u.GetProcess()
	return line(p.GetStatusChangedTime(), output.Enum(p.GetStatus()), taskName(p.GetCorruptedBy()),
		output.OneLine(p.GetDetail()))
}
