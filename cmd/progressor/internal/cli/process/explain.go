package process

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type explainCmd struct {
	Process explainProcessCmd `cmd:"" default:"withargs" help:"Explain what a process waits for, what happens next, and how its time was spent."`
	Sink    explainSinkCmd    `cmd:"" help:"Explain why a sink does not deliver, what happens next, and what would unblock it."`
}

type explainProcessCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	All bool `help:"Show the whole timeline. Default: the newest 20 spans."`
}

func (explainProcessCmd) Help() string {
	return `Explain shows what a process waits for, what happens next, what would unblock it, and how its time
was spent: running, waiting for another task, for a slot or for a retry, or idle. A durable function is
described by its journal: the timers, children and failed steps, and how to repair it.

    progressor explain demo order-1
    progressor explain demo order-1 --all
    progressor explain shop run-1          also the id of a run or a cron
    progressor explain process sink p-1    the same, in a namespace that is called sink
    progressor explain demo order-1 -o json`
}

// shownSpans is the maximum number of spans that are shown without --all.
const shownSpans = 20

func (c *explainProcessCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	resp, err := c.explained(ctx)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	p := resp.GetProcess()
	err = output.PrintFields(a.Stdout,
		output.Field{"process", output.OneLine(p.GetNamespace() + "/" + p.GetProcessId())},
		output.Field{"status",
			output.Phrase{output.Enum(p.GetStatus()), " since ", output.Time(p.GetStatusChangedTime())}},
		output.Field{"waits for", waitsFor(resp)},
		output.Field{"now", output.Sentence(resp.GetWaitsForDetail())},
		output.Field{"next", output.Sentence(resp.GetNext())},
		output.Field{"unblock", output.OneLine(resp.GetUnblock())},
		output.Field{"time spent", showTotals(resp)},
	)
	if err != nil {
		return err
	}
	spans := resp.GetSpans()
	if hidden := len(spans) - shownSpans; hidden > 0 && !c.All {
		spans = spans[hidden:]
		fmt.Fprintf(a.Stdout, "\ntimeline, without the first %d spans (--all shows them)\n", hidden)
	} else {
		fmt.Fprintln(a.Stdout, "\ntimeline")
	}
	return output.PrintRows(a.Stdout, table.Row{"from", "took", "what", "task", "", "detail"},
		timelineRows(spans, explainedAt(resp), barsWidth(output.StyleOf(a.Stdout).Columns())))
}

// explained explains the process or, if it does not exist, the run or cron with this ID.
func (c *explainProcessCmd) explained(ctx context.Context) (*progressorv1.ExplainProcessResponse, error) {
	insight := c.Client().Insight
	resp, err := insight.ExplainProcess(ctx, &progressorv1.ExplainProcessRequest{Namespace: c.NS, ProcessId: c.ID})
	if client.Detail(err).GetReason() != progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND {
		return resp, err
	}
	for _, prefix := range []string{process.FlowPrefix, process.CronPrefix} {
		if own, ownErr := insight.ExplainProcess(ctx,
			&progressorv1.ExplainProcessRequest{Namespace: c.NS, ProcessId: prefix + c.ID}); ownErr == nil {
			return own, nil
		}
	}
	return nil, err
}

// waitsFor returns what the process waits for. The API has one value for a slot and a worker, which
// the kind of the open span distinguishes.
func waitsFor(resp *progressorv1.ExplainProcessResponse) string {
	if resp.GetWaitsFor() == progressorv1.WaitsFor_WAITS_FOR_PLACE &&
		slices.ContainsFunc(resp.GetSpans(), func(s *progressorv1.Span) bool {
			return s.GetToTime() == nil && s.GetWhat() == explain.ForWorker
		}) {
		return explain.ForWorker
	}
	return strings.ToLower(output.Enum(resp.GetWaitsFor()))
}

// spent describes the kinds of spans, for the total of the time that they took.
var spent = map[string]string{
	"processing": "running", "idle": "idle", "back_off": "waiting for a retry",
	"time": "waiting for a timer or start time", "place": "waiting for a slot", "worker": "waiting for a worker",
	"process": "waiting for another task", "constraint": "waiting for a constraint",
	"operator": "waiting for an operator",
}

// showTotals shows how much time each kind of span took, longest first.
func showTotals(resp *progressorv1.ExplainProcessResponse) string {
	var names []string
	for what := range resp.GetTimeByWhat() {
		names = append(names, what)
	}
	took := func(what string) time.Duration { return resp.GetTimeByWhat()[what].AsDuration() }
	slices.SortFunc(names, func(a, b string) int {
		if took(a) != took(b) {
			return int(max(min(took(b)-took(a), 1), -1))
		}
		return strings.Compare(a, b)
	})
	for n, what := range names {
		names[n] = durations.Rounded(took(what)) + " " + cmp.Or(spent[what], output.OneLine(what))
	}
	return strings.Join(names, ", ")
}

// explainedAt returns the database time of an explanation, because the clock of this machine may
// differ. The time is derived from the total duration of a kind of span, which includes the open
// spans up to this time.
func explainedAt(resp *progressorv1.ExplainProcessResponse) time.Time {
	spans := resp.GetSpans()
	for _, open := range spans {
		if open.GetToTime() != nil {
			continue
		}
		left := resp.GetTimeByWhat()[open.GetWhat()].AsDuration()
		count := time.Duration(0)
		for _, s := range spans {
			switch {
			case s.GetWhat() != open.GetWhat():
			case s.GetToTime() != nil:
				left -= s.GetToTime().AsTime().Sub(s.GetFromTime().AsTime())
			default:
				left += s.GetFromTime().AsTime().Sub(open.GetFromTime().AsTime())
				count++
			}
		}
		return open.GetFromTime().AsTime().Add(left / count)
	}
	return time.Time{} // no span is open
}

// The width of the bars of a timeline: half of what the other columns leave, within bounds.
const (
	leastBars  = 8
	mostBars   = 32
	besideBars = 44 // width of the columns before the bars
)

// barsWidth returns the width of the bars for a terminal.
func barsWidth(columns int) int {
	if columns == 0 {
		return mostBars
	}
	return min(max((columns-besideBars)/2, leastBars), mostBars)
}

// bars contains the character of the bars of each kind of span.
var bars = map[string]string{"processing": "█", "back_off": "▒", "place": "▒", "worker": "▒", "process": "▒",
	"constraint": "▒", "operator": "░", "time": "·", "idle": "·"}

// timelineRows draws spans on a common scale from the first to the last one. Open spans end now.
func timelineRows(spans []*progressorv1.Span, now time.Time, barWidth int) []table.Row {
	if len(spans) == 0 {
		return nil
	}
	from, to := spans[0].GetFromTime().AsTime(), spans[0].GetFromTime().AsTime()
	end := func(s *progressorv1.Span) time.Time {
		if s.GetToTime() != nil {
			return s.GetToTime().AsTime()
		}
		return cli.Later(now, s.GetFromTime().AsTime())
	}
	for _, s := range spans {
		to = cli.Later(to, end(s))
	}
	scale := func(t time.Time) int {
		if !to.After(from) {
			return 0
		}
		return int(float64(barWidth) * float64(t.Sub(from)) / float64(to.Sub(from)))
	}
	var rows []table.Row
	for _, s := range spans {
		first := min(scale(s.GetFromTime().AsTime()), barWidth-1)
		last := max(scale(end(s)), first+1)
		bar := cmp.Or(bars[s.GetWhat()], "▒")
		took := durations.Rounded(end(s).Sub(s.GetFromTime().AsTime()))
		if s.GetToTime() == nil {
			took += "…"
		}
		rows = append(rows, table.Row{
			output.Time(s.GetFromTime()), took, output.OneLine(s.GetWhat()), output.ID(s.GetTaskId()),
			output.Whole(strings.Repeat(" ", first) + strings.Repeat(bar, last-first) +
				strings.Repeat(" ", barWidth-last)),
			output.OneLine(s.GetDetail()),
		})
	}
	return rows
}
