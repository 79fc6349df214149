package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type topCmd struct {
	NS       string        `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`
	Interval time.Duration `placeholder:"DURATION" default:"1s" help:"Time between two updates, at least 200ms. Default: ${default}."`
	Count    int           `placeholder:"N" help:"Number of updates. Default: until Ctrl-C."`
	Internal bool          `help:"Count internal processes (jobs, runs, crons and bulks) with the others."`

	cli.ClientFlags
}

func (topCmd) Help() string {
	return `Top shows the overview repeatedly, with the namespaces and the most frequent errors. On a terminal,
it redraws the screen; otherwise, it appends each update. With -o json, each update is the overview
as one line of JSON. Processes of the engine (jobs, runs, crons, bulks) are counted separately.
--internal adds them to the others.

    progressor top
    progressor top demo --interval 5s
    progressor top --count 1
    progressor top -o json | jq .tasksPerSecond`
}

func (c *topCmd) Validate() error {
	switch {
	case c.Interval < 200*time.Millisecond:
		return fmt.Errorf("--interval: must be at least 200ms (got %s)", c.Interval)
	case c.Count < 0:
		return fmt.Errorf("--count: must be at least 0 (got %d)", c.Count)
	}
	return nil
}

func (c *topCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	live := output.NewScreen(a.Stderr, a.Terminal)
	next := time.NewTicker(c.Interval)
	defer next.Stop()
	for n := 1; ; n++ {
		if err := c.update(ctx, a, live); err != nil {
			if ctx.Err() != nil {
				return nil // Ctrl-C is the usual way to end top
			}
			return err
		}
		if n == c.Count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// update shows the current state. On a terminal, if an earlier update succeeded, it shows that the
// engine cannot be reached, and the next update retries. Otherwise it returns the error.
func (c *topCmd) update(ctx context.Context, a *cli.App, live *output.Screen) error {
	limit, cancel := context.WithTimeout(ctx, cli.ReadTimeout)
	defer cancel()
	overview, err := c.Client().Insight.GetOverview(limit, &progressorv1.GetOverviewRequest{Namespace: c.NS})
	if err == nil && c.JSON() {
		return output.PrintLine(a.Stdout, overview)
	}
	var failures *progressorv1.ListErrorsResponse
	if err == nil {
		failures, err = c.Client().Insight.ListErrors(limit,
			&progressorv1.ListErrorsRequest{Namespace: c.NS, PageSize: topErrors})
	}
	if err != nil {
		if !live.Enabled() || !live.Shown() || ctx.Err() != nil {
			return err
		}
		live.Show(fmt.Sprintf("%s  no response: %s\n", live.Text(output.Second(time.Now())),
			output.OneLine(err.Error())))
		return nil
	}
	var b bytes.Buffer
	style := output.StyleOf(a.Stdout)
	if live.Enabled() {
		style = live.Style
	}
	to := output.Stream{Writer: &b, Style: style}
	if err := drawTop(to, overview, failures.GetGroups(), internalToo(c.Internal)); err != nil {
		return err
	}
	if live.Enabled() {
		live.Show(b.String())
		return nil
	}
	_, err = fmt.Fprintln(a.Stdout, b.String())
	return err
}

// topErrors is the number of groups of errors that are shown, largest first.
const topErrors = 5

func drawTop(
	w io.Writer, o *progressorv1.GetOverviewResponse, groups []*progressorv1.ErrorGroup, internal internalToo,
) error {
	var rates []float64
	for _, s := range o.GetSamples() {
		rates = append(rates, s.GetTasksPerSecond())
	}
	head := append([]output.Field{{"at", output.Second(time.Now())}}, overviewFields(o, internal)...)
	columns := output.StyleOf(w).Columns()
	line := sparkline(rates, sparkSamples(columns, head))
	err := output.PrintFields(w, append(head, output.Field{sparkTitle, line})...)
	if err != nil {
		return err
	}
	var namespaces, failures []table.Row
	for _, n := range o.GetNamespaces() {
		paused := ""
		if n.GetPaused() {
			paused = "yes"
		}
		namespaces = append(namespaces, table.Row{
			n.GetNamespace(), showCounts(internal.counts(n)), showTotal(n.GetInternalByStatus()), n.GetRunnable(),
			durations.Rounded(n.GetOldestRunnableAge().AsDuration()), n.GetWorkers(), n.GetFailingCrons(), paused,
		})
	}
	for _, g := range groups {
		failures = append(failures,
			table.Row{g.GetCount(), g.GetNamespace(), output.OneLine(g.GetReason()), output.Time(g.GetLastTime()),
				output.OneLine(g.GetMessage())})
	}
	for _, part := range []struct {
		header table.Row
		rows   []table.Row
	}{
		{
			table.Row{"namespace", "processes", output.Minor("internal"), "runnable", "oldest",
				output.Tally("workers"), output.Tally("failing crons"), "paused"},
			namespaces,
		},
		{table.Row{"errors", "namespace", "reason", "last", "newest message"}, failures},
	} {
		if len(part.rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := output.PrintRows(w, part.header, part.rows); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return printNodes(w, o.GetNodes())
}

// sparkTitle is the title of the sparkline.
const sparkTitle = "ten minutes"

// sparkWidth is the number of samples in a sparkline: 60 samples of ten seconds cover ten minutes.
const sparkWidth = 60

// sparkSamples returns the number of samples that fit on a line of the terminal with the fields. If
// columns is 0, the width is not limited.
func sparkSamples(columns int, fields []output.Field) int {
	if columns == 0 {
		return sparkWidth
	}
	names := len(sparkTitle)
	for _, f := range fields {
		if (output.Style{}).Text(f[1]) != "" {
			names = max(names, len(fmt.Sprint(f[0])))
		}
	}
	return min(max(columns-names-2, 1), sparkWidth)
}

// sparkline draws the newest values as bars; the maximum has the full height.
func sparkline(values []float64, most int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	values = values[max(0, len(values)-most):]
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	if highest == 0 {
		return ""
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(bars[int(v/highest*float64(len(bars)-1)+0.5)])
	}
	return b.String()
}
