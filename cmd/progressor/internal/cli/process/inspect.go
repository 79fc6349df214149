package process

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type getCmd struct {
	cli.ProcessArgs
	cli.RangeFlags
	cli.ClientFlags
	AwaitInit time.Duration `placeholder:"DURATION" help:"Wait up to this long while the process is in INIT, at most 10m."`
}

func (getCmd) Help() string {
	return `Get shows a process: its status, state, timers and history.

    progressor get demo order-1
    progressor get demo order-1 --backward --limit 5
    progressor get demo order-1 -o json`
}

func (c *getCmd) Run(a *cli.App) error {
	req := &progressorv1.GetProcessRequest{Namespace: c.NS, ProcessId: c.ID, Range: c.HistoryRange()}
	bounded := a.Request
	if c.AwaitInit > 0 {
		bounded = a.Interruptible
		req.AwaitInit = durationpb.New(c.AwaitInit)
	}
	ctx, cancel := bounded()
	defer cancel()
	resp, err := c.Client().Process.GetProcess(ctx, req)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	return printProcess(a, resp)
}

// printProcess prints the process of a response.
func printProcess[P interface{ GetProcess() *progressorv1.Process }](a *cli.App, resp P) error {
	p := resp.GetProcess()
	err := output.PrintFields(a.Stdout,
		output.Field{"process", output.OneLine(p.GetNamespace() + "/" + p.GetProcessId())},
		output.Field{"kind", p.GetKind()},
		output.Field{"status", output.Enum(p.GetStatus())},
		output.Field{"previous status", output.Enum(p.GetPreviousStatus())},
		output.Field{"detail", output.OneLine(p.GetDetail())},
		output.Field{"corrupted by", taskName(p.GetCorruptedBy())},
		output.Field{"state", output.Payload(p.GetAuxState(), 0)},
		output.Field{"metadata", output.Message(p.GetMetadata(), 0)},
		output.Field{"first event", firstEvent(p)},
		output.Field{"last event", output.ID(p.GetLastEventId())},
		output.Field{"history restarted", output.Time(p.GetHistoryRestartedTime())},
		output.Field{"created", output.Time(p.GetCreatedTime())},
		output.Field{"status since", output.Time(p.GetStatusChangedTime())},
		output.Field{"cancel requested", output.Time(p.GetCancelRequestedTime())},
		output.Field{"cancel reason", output.OneLine(p.GetCancelReason())},
	)
	if err != nil {
		return err
	}
	if len(p.GetTimers()) > 0 {
		fmt.Fprintln(a.Stdout, "\ntimers")
		if err := output.PrintRows(a.Stdout, table.Row{"timer", "fires", "does", "status"},
			timerRows(p.GetTimers())); err != nil {
			return err
		}
	}
	if len(p.GetHistory()) > 0 {
		fmt.Fprintln(a.Stdout, "\nhistory")
		return output.PrintRows(a.Stdout, table.Row{"event", "task", "time", "payload"}, eventRows(p.GetHistory()))
	}
	return nil
}

// firstEvent returns the number of the first event of a restarted history.
func firstEvent(p *progressorv1.Process) string {
	if p.GetHistoryRestartedTime() == nil {
		return ""
	}
	return output.ID(p.GetFirstEventId())
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
		name, does := cmp.Or(output.OneLine(t.GetName()), "(default)"), "timeout"
		if t.GetRemove() {
			does = "remove"
		}
		rows = append(rows, table.Row{name, output.Time(t.GetFireTime()), does, output.Enum(t.GetStatus())})
	}
	return rows
}

func eventRows(events []*progressorv1.Event) []table.Row {
	var rows []table.Row
	for _, e := range events {
		rows = append(rows, table.Row{e.GetEventId(), output.ID(e.GetTaskId()), output.Time(e.GetTimestamp()),
			output.Payload(e.GetPayload(), output.CellLimit)})
	}
	return rows
}

type listCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only processes that match, such as 'status = ERROR'. See docs/api.md."`

	cli.ClientFlags
	Status        string `placeholder:"STATUS" complete:"ProcessStatus" help:"Only processes in this status: init, running, error, suspended, completed or cancelled."`
	Filter        string `placeholder:"FILTER" help:"The filter as a flag. All filters must match."`
	Internal      bool   `help:"Also list processes of the engine: jobs, runs, crons and bulks. A filter that compares kind or contains ~ has the same effect."`
	OrderBy       string `placeholder:"ORDER" help:"created_time desc, created_time, process_id, process_id desc or, with a status such as error, status_changed_time desc. Default: created_time desc."`
	cli.PageFlags `set:"rows=processes"`
}

func (listCmd) Help() string {
	return `List shows the processes of a namespace, newest first, a page at a time. Jobs and the engine's
own processes, whose IDs begin with ~ (runs, crons, bulks), are left out. --internal includes them,
and so does a filter that compares kind or contains a ~.

A filter compares status, process_id, kind, created_time, status_changed_time, detail, corrupted_by,
reason, fingerprint (see progressor errors) and metadata.KEY with = != < <= > >=; a : matches
elements of lists and parts of detail. A * at the end of a text matches any suffix. AND, OR and NOT
are in capitals; OR binds closer than AND.

    progressor list demo
    progressor list demo 'status = ERROR AND metadata.tenant = "acme"'
    progressor list demo 'process_id = "order-*" AND created_time > "2026-11-01T00:00:00Z"'
    progressor list demo 'detail:"no book" AND NOT metadata.tags:vip'
    progressor list demo 'metadata.amount >= 100 AND (status = ERROR OR status = SUSPENDED)' --order-by process_id
    progressor list demo --status error --order-by 'status_changed_time desc'
    progressor list demo --internal
    progressor list demo 'process_id = "~cron/*"'
    progressor list demo --all -o json`
}

func (c *listCmd) Run(a *cli.App) error {
	filter := ""
	if err := cli.SetEnum("--status", c.Status,
		func(s progressorv1.ProcessStatus) { filter = "status = " + output.Enum(s) }); err != nil {
		return err
	}
	filter = cli.Both(cli.Both(filter, c.Match), c.Filter)
	return cli.PrintPages(a, c, c.Client().Process.ListProcesses,
		&progressorv1.ListProcessesRequest{Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy,
			UsersOnly: !c.Internal && !asksInternal.MatchString(filter)},
		func(all *progressorv1.ListProcessesResponse) error {
			var rows []table.Row
			for _, p := range all.GetProcesses() {
				rows = append(rows, table.Row{
					output.OneLine(p.GetProcessId()), output.Enum(p.GetStatus()), output.Time(p.GetStatusChangedTime()),
					output.Time(p.GetCreatedTime()),
					p.GetLastEventId(), output.Message(p.GetMetadata(), output.CellLimit),
					output.OneLine(p.GetDetail()),
				})
			}
			header := table.Row{"process", "status", "since", output.Minor("created"), output.Minor("events"),
				"metadata", "detail"}
			none := cli.None("processes", c.NS, filter != "",
				fmt.Sprintf("start one with progressor start %s ID", output.ShellWord(c.NS)))
			return output.PrintList(a.Stdout, none, header, rows)
		})
}

// asksInternal matches filters that ask for internal processes: those that compare kind, contain
// the ~ of their IDs, or belong to a group of errors. The console has the same rule.
var asksInternal = regexp.MustCompile(`\b(kind|fingerprint)\b|~`)

type traceCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	cli.PageFlags `set:"rows=tasks"`
}

func (traceCmd) Help() string {
	return `Trace shows every task of a process in order: when it was due, ran and ended, its attempts,
its args and outcome, and the events that it produced. Attempts that failed and were retried have
their own rows, with the time of the failure: the newest 10 of each task.

    progressor trace demo order-1
    progressor trace demo order-1 --all -o json`
}

func (c *traceCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Process.TraceProcess,
		&progressorv1.TraceProcessRequest{Namespace: c.NS, ProcessId: c.ID},
		func(all *progressorv1.TraceProcessResponse) error {
			var rows []table.Row
			for _, t := range all.GetTasks() {
				for _, f := range t.GetFailures() {
					rows = append(rows, failedAttemptRow(t, f))
				}
				rows = append(rows, traceRow(t))
			}
			header := table.Row{"task", "type", "status", output.Minor("attempt"),
				output.Minor("scheduled"), "took", "args", "outcome", output.Minor("events")}
			if at := all.GetHistoryRestartedTime(); at != nil {
				fmt.Fprintf(a.Stdout,
					"The history was restarted at %s. It begins with event %d; earlier events and tasks are removed.\n",
					output.StyleOf(a.Stdout).Text(output.Time(at)), all.GetFirstEventId())
			}
			return output.PrintRows(a.Stdout, header, rows)
		})
}

// failedAttemptRow shows an attempt that was repeated, at the time of its failure.
func failedAttemptRow(t *progressorv1.Task, f *progressorv1.Failure) table.Row {
	return table.Row{
		t.GetTaskId(), output.Enum(t.GetType()), "FAILED", f.GetAttempt(), output.Time(f.GetFailedTime()), "", "",
		"failure " + output.OneLine(f.GetReason()+": "+f.GetMessage()) + ", node " + f.GetNodeId(), "",
	}
}

func traceRow(t *progressorv1.Task) table.Row {
	took := ""
	if t.GetFinishedTime() != nil && t.GetRunningTime() != nil {
		took = durations.Rounded(t.GetFinishedTime().AsTime().Sub(t.GetRunningTime().AsTime()))
	}
	kind := output.Enum(t.GetType())
	if t.GetTimerName() != "" {
		kind += " " + output.OneLine(t.GetTimerName())
	}
	var events []string
	for _, e := range t.GetEvents() {
		events = append(events, output.ID(e.GetEventId()))
	}
	return table.Row{
		t.GetTaskId(), kind, output.Enum(t.GetStatus()), t.GetAttempt(), output.Time(t.GetScheduledTime()), took,
		output.Payload(t.GetArgs(), output.TraceLimit), outcome(t, output.TraceLimit), strings.Join(events, " "),
	}
}

// outcome returns the response of a task, or why it has none.
func outcome(t *progressorv1.Task, limit int) string {
	switch {
	case t.GetFailure() != nil:
		return "failure " + output.OneLine(t.GetFailure().GetReason()+": "+t.GetFailure().GetMessage())
	case t.GetRejection() != nil:
		return "rejection " + output.OneLine(t.GetRejection().GetReason()+": "+t.GetRejection().GetMessage())
	}
	return output.Payload(t.GetResponse(), limit)
}

func taskFields(t *progressorv1.Task) []output.Field {
	return []output.Field{
		{"process", output.OneLine(t.GetNamespace() + "/" + t.GetProcessId())},
		{"task", output.ID(t.GetTaskId())},
		{"type", output.Enum(t.GetType())},
		{"status", output.Enum(t.GetStatus())},
		{"timer", output.OneLine(t.GetTimerName())},
		{"attempt", output.ID(int64(t.GetAttempt()))},
		{"scheduled", output.Time(t.GetScheduledTime())},
		{"running since", output.Time(t.GetRunningTime())},
		{"finished", output.Time(t.GetFinishedTime())},
		{"retry after", output.Duration(t.GetRetryInterval().AsDuration())},
		{"idempotency key", output.OneLine(t.GetIdempotencyKey())},
		{"args", output.Payload(t.GetArgs(), 0)},
		{"outcome", outcome(t, 0)},
	}
}
