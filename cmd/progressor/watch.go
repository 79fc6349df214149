package main

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type watchCmd struct {
	processArgs
	clientFlags
	After int64 `placeholder:"EVENT" help:"Only events after this event id. Default: all."`
}

func (watchCmd) Help() string {
	return `Watch prints events and status changes of a process, one per line, until the process ends or Ctrl-C.
With -o json, each line is a JSON document. If the engine stops, the command continues with another
one.

    progressor watch demo order-1
    progressor watch demo order-1 --after 12 -o json`
}

func (c *watchCmd) Run(a *app) error {
	ctx, cancel := a.interruptible()
	defer cancel()
	req := &progressorv1.WatchProcessRequest{Namespace: c.NS, ProcessId: c.ID, AfterEventId: c.After}
	return c.retryingClient().Watch(ctx, req, func(u *progressorv1.WatchProcessResponse) error {
		if c.json() {
			return printLine(a.Stdout, u)
		}
		_, err := fmt.Fprintln(a.Stdout, updateLine(u))
		return err
	})
}

// updateLine formats an update for people.
func updateLine(u *progressorv1.WatchProcessResponse) string {
	line := func(at *timestamppb.Timestamp, what, by, rest string) string {
		if by == "" && rest == "" {
			return showTime(at) + "  " + what
		}
		return fmt.Sprintf("%s  %-10s  %-9s  %s", showTime(at), what, by, rest)
	}
	if e := u.GetEvent(); e != nil {
		return line(e.GetTimestamp(), fmt.Sprint("event ", e.GetEventId()), taskName(e.GetTaskId()), showPayload(e.GetPayload(), 0))
	}
	p := u.GetProcess()
	return line(p.GetStatusChangedTime(), shortEnum(p.GetStatus()), taskName(p.GetCorruptedBy()), oneLine(p.GetDetail()))
}
