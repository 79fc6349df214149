package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type getCmd struct {
	processArgs
	rangeFlags
	clientFlags
	AwaitInit time.Duration `placeholder:"DURATION" help:"Wait up to this long while the process is in INIT."`
}

func (getCmd) Help() string {
	return `Get shows a process: its status, state, timers and history.

    progressor get demo order-1
    progressor get demo order-1 --backward --limit 5
    progressor get demo order-1 -o json`
}

func (c *getCmd) Run(a *app) error {
	req := &progressorv1.GetProcessRequest{Namespace: c.NS, ProcessId: c.ID, Range: c.historyRange()}
	bounded := a.request
	if c.AwaitInit > 0 {
		bounded = a.interruptible
		req.AwaitInit = durationpb.New(c.AwaitInit)
	}
	ctx, cancel := bounded()
	defer cancel()
	resp, err := c.client().Process.GetProcess(ctx, req)
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return printProcess(a, resp.GetProcess())
}

func printProcess(a *app, p *progressorv1.Process) error {
	err := printFields(a.Stdout,
		field{"process", oneLine(p.GetNamespace() + "/" + p.GetProcessId())},
		field{"kind", p.GetKind()},
		field{"status", shortEnum(p.GetStatus())},
		field{"previous status", shortEnum(p.GetPreviousStatus())},
		field{"detail", oneLine(p.GetDetail())},
		field{"corrupted by", taskName(p.GetCorruptedBy())},
		field{"state", showPayload(p.GetAuxState(), 0)},
		field{"metadata", showMessage(p.GetMetadata(), 0)},
		field{"first event", firstEvent(p)},
		field{"last event", showID(p.GetLastEventId())},
		field{"history restarted", showTime(p.GetHistoryRestartedTime())},
		field{"created", showTime(p.GetCreatedTime())},
		field{"status since", showTime(p.GetStatusChangedTime())},
		field{"cancel requested", showTime(p.GetCancelRequestedTime())},
		field{"cancel reason", oneLine(p.GetCancelReason())},
	)
	if err != nil {
		return err
	}
	if len(p.GetTimers()) > 0 {
		fmt.Fprintln(a.Stdout, "\ntimers")
		if err := printRows(a.Stdout, table.Row{"timer", "fires", "does", "status"}, timerRows(p.GetTimers())); err != nil {
			return err
		}
	}
	if len(p.GetHistory()) > 0 {
		fmt.Fprintln(a.Stdout, "\nhistory")
		return printRows(a.Stdout, table.Row{"event", "task", "time", "payload"}, eventRows(p.GetHistory()))
	}
	return nil
}

// firstEvent returns the number of the first event of a restarted history.
func firstEvent(p *progressorv1.Process) string {
	if p.GetHistoryRestartedTime() == nil {
		return ""
	}
	return showID(p.GetFirstEventId())
}

func taskName(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("task %d", id)
}

func timerRows(timers []*progressorv1.Timer) []table.Row {
	var rows []table.Row
	for _, t := range timers {
		name, does := oneLine(t.GetName()), "timeout"
		if name == "" {
			name = "(default)"
		}
		if t.GetRemove() {
			does = "remove"
		}
		rows = append(rows, table.Row{name, showTime(t.GetFireTime()), does, shortEnum(t.GetStatus())})
	}
	return rows
}

func eventRows(events []*progressorv1.Event) []table.Row {
	var rows []table.Row
	for _, e := range events {
		rows = append(rows, table.Row{e.GetEventId(), showID(e.GetTaskId()), showTime(e.GetTimestamp()), showPayload(e.GetPayload(), cellLimit)})
	}
	return rows
}

type listCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only processes that match, such as 'status = ERROR'. See docs/api.md."`

	clientFlags
	Status    string `placeholder:"STATUS" help:"Only processes in this status: init, running, error, suspended, completed or cancelled."`
	Filter    string `placeholder:"FILTER" help:"The filter as a flag. All filters must match."`
	OrderBy   string `placeholder:"ORDER" help:"created_time desc, created_time, process_id, process_id desc or, with a status such as error, status_changed_time desc. Default: created_time desc."`
	pageFlags `set:"rows=Processes"`
}

func (listCmd) Help() string {
	return `List shows the processes of a namespace, newest first, a page at a time.

A filter compares status, process_id, kind, created_time, status_changed_time, detail, corrupted_by
and metadata.KEY with = != < <= > >=; a : matches elements of lists and parts of detail. A * at the
end of a process_id or detail matches any suffix. AND, OR and NOT are in capitals; OR binds closer
than AND.

    progressor list demo
    progressor list demo 'status = ERROR AND metadata.tenant = "acme"'
    progressor list demo 'process_id = "order-*" AND created_time > "2026-11-01T00:00:00Z"'
    progressor list demo 'detail:"no book" AND NOT metadata.tags:vip'
    progressor list demo 'metadata.amount >= 100 AND (status = ERROR OR status = SUSPENDED)' --order-by process_id
    progressor list demo --status error --order-by 'status_changed_time desc'
    progressor list demo --all -o json`
}

func (c *listCmd) Run(a *app) error {
	filter := ""
	if err := setEnum("--status", c.Status, func(s progressorv1.ProcessStatus) { filter = "status = " + shortEnum(s) }); err != nil {
		return err
	}
	filter = both(both(filter, c.Match), c.Filter)
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListProcessesResponse, error) {
		return c.client().Process.ListProcesses(ctx, &progressorv1.ListProcessesRequest{
			Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy, PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.ListProcessesResponse) error {
		var rows []table.Row
		for _, p := range all.GetProcesses() {
			rows = append(rows, table.Row{
				oneLine(p.GetProcessId()), shortEnum(p.GetStatus()), showTime(p.GetStatusChangedTime()), showTime(p.GetCreatedTime()),
				p.GetLastEventId(), showMessage(p.GetMetadata(), cellLimit), oneLine(p.GetDetail()),
			})
		}
		header := table.Row{"process", "status", "since", "created", "events", "metadata", "detail"}
		return printRows(a.Stdout, header, rows)
	})
}

// both combines two filters with AND; "" matches everything. A single filter is not changed,
// because the engine reports errors by character position.
func both(a, b string) string {
	if strings.TrimSpace(a) == "" || strings.TrimSpace(b) == "" {
		return a + b
	}
	return "(" + a + ") AND (" + b + ")"
}

type traceCmd struct {
	processArgs
	clientFlags
	pageFlags `set:"rows=Tasks"`
}

func (traceCmd) Help() string {
	return `Trace shows every task of a process in order: when it was due, ran and ended, its attempts,
its args and outcome, and the events that it produced. Attempts that failed and were retried have
their own rows, with the time of the failure: the newest 10 of each task.

    progressor trace demo order-1
    progressor trace demo order-1 --all -o json`
}

func (c *traceCmd) Run(a *app) error {
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.TraceProcessResponse, error) {
		return c.client().Process.TraceProcess(ctx, &progressorv1.TraceProcessRequest{
			Namespace: c.NS, ProcessId: c.ID, PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.TraceProcessResponse) error {
		var rows []table.Row
		for _, t := range all.GetTasks() {
			for _, f := range t.GetFailures() {
				rows = append(rows, failedAttemptRow(t, f))
			}
			rows = append(rows, traceRow(t))
		}
		header := table.Row{"task", "type", "status", "attempt", "scheduled", "took", "args", "outcome", "events"}
		if at := all.GetHistoryRestartedTime(); at != nil {
			fmt.Fprintf(a.Stdout, "The history was restarted at %s. It begins with event %d; earlier events and tasks are removed.\n",
				showTime(at), all.GetFirstEventId())
		}
		return printRows(a.Stdout, header, rows)
	})
}

// failedAttemptRow shows an attempt that was repeated, at the time of its failure.
func failedAttemptRow(t *progressorv1.Task, f *progressorv1.Failure) table.Row {
	return table.Row{
		t.GetTaskId(), shortEnum(t.GetType()), "FAILED", f.GetAttempt(), showTime(f.GetFailedTime()), "", "",
		"failure " + oneLine(f.GetReason()+": "+f.GetMessage()) + ", node " + f.GetNodeId(), "",
	}
}

func traceRow(t *progressorv1.Task) table.Row {
	took := ""
	if t.GetFinishedTime() != nil && t.GetRunningTime() != nil {
		took = durations.Rounded(t.GetFinishedTime().AsTime().Sub(t.GetRunningTime().AsTime()))
	}
	kind := shortEnum(t.GetType())
	if t.GetTimerName() != "" {
		kind += " " + oneLine(t.GetTimerName())
	}
	var events []string
	for _, e := range t.GetEvents() {
		events = append(events, showID(e.GetEventId()))
	}
	return table.Row{
		t.GetTaskId(), kind, shortEnum(t.GetStatus()), t.GetAttempt(), showTime(t.GetScheduledTime()), took,
		showPayload(t.GetArgs(), traceLimit), outcome(t, traceLimit), strings.Join(events, " "),
	}
}

// outcome returns the response of a task, or why it has none.
func outcome(t *progressorv1.Task, limit int) string {
	switch {
	case t.GetFailure() != nil:
		return "failure " + oneLine(t.GetFailure().GetReason()+": "+t.GetFailure().GetMessage())
	case t.GetRejection() != nil:
		return "rejection " + oneLine(t.GetRejection().GetReason()+": "+t.GetRejection().GetMessage())
	}
	return showPayload(t.GetResponse(), limit)
}

func taskFields(t *progressorv1.Task) []field {
	return []field{
		{"process", oneLine(t.GetNamespace() + "/" + t.GetProcessId())},
		{"task", showID(t.GetTaskId())},
		{"type", shortEnum(t.GetType())},
		{"status", shortEnum(t.GetStatus())},
		{"timer", oneLine(t.GetTimerName())},
		{"attempt", showID(int64(t.GetAttempt()))},
		{"scheduled", showTime(t.GetScheduledTime())},
		{"running since", showTime(t.GetRunningTime())},
		{"finished", showTime(t.GetFinishedTime())},
		{"retry after", showDuration(t.GetRetryInterval().AsDuration())},
		{"idempotency key", oneLine(t.GetIdempotencyKey())},
		{"args", showPayload(t.GetArgs(), 0)},
		{"outcome", outcome(t, 0)},
	}
}
