package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Commands are the commands that observe and manage the engines and their namespaces.
type Commands struct {
	Overview  overviewCmd  `cmd:"" group:"cluster" help:"Show a summary of the nodes and of one or all namespaces."`
	Top       topCmd       `cmd:"" group:"cluster" help:"Show rates, namespaces, errors and nodes, live."`
	Changes   changesCmd   `cmd:"" group:"namespace" help:"Print or follow the recorded changes of a namespace."`
	Audit     auditCmd     `cmd:"" group:"access" help:"List commands of operators."`
	Health    healthCmd    `cmd:"" group:"cluster" help:"Check whether an engine accepts requests."`
	Node      nodeCmd      `cmd:"" group:"cluster" help:"List or drain engines."`
	Namespace namespaceCmd `cmd:"" aliases:"ns" group:"namespace" help:"Manage namespaces."`
	Login     loginCmd     `cmd:"" group:"access" help:"Log in at an issuer of OpenID Connect."`
	Logout    logoutCmd    `cmd:"" group:"access" help:"Delete the tokens of a login."`
	Whoami    whoamiCmd    `cmd:"" group:"access" help:"Show the name and the roles of this client."`
}

type overviewCmd struct {
	NS       string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`
	Internal bool   `help:"Count internal processes (jobs, runs, crons and bulks) with the others."`

	cli.ClientFlags
}

func (overviewCmd) Help() string {
	return `Overview shows the processes by status, the waiting tasks by what they wait for, the age of the
oldest task that could run, the work of the last minute, the crons whose last run failed, and the
nodes. Processes of the engine (jobs, runs, crons, bulks) have their own line. --internal adds them
to the others.

    progressor overview
    progressor overview --internal
    progressor overview demo -o json`
}

func (c *overviewCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Insight.GetOverview, &progressorv1.GetOverviewRequest{Namespace: c.NS},
		func(resp *progressorv1.GetOverviewResponse) error {
			if err := output.PrintFields(a.Stdout, overviewFields(resp, internalToo(c.Internal))...); err != nil {
				return err
			}
			fmt.Fprintln(a.Stdout)
			return printNodes(a.Stdout, resp.GetNodes())
		})
}

func overviewFields(o *progressorv1.GetOverviewResponse, internal internalToo) []output.Field {
	late, took := "", ""
	if p99 := o.GetTimerLatenessP99(); p99 != nil {
		late = durations.Rounded(p99.AsDuration()) + " (p99)"
	}
	if p99 := o.GetProcessingP99(); p99 != nil {
		took = fmt.Sprintf("%s (p50), %s (p99)", durations.Rounded(o.GetProcessingP50().AsDuration()),
			durations.Rounded(p99.AsDuration()))
	}
	return []output.Field{
		{"processes", showCounts(internal.counts(o))},
		{"internal processes", showCounts(o.GetInternalByStatus()) + orMore(o.GetInternalMore())},
		{"tasks waiting for", showCounts(o.GetWaitingByWhat())},
		{"oldest runnable task", durations.Rounded(o.GetOldestRunnableAge().AsDuration())},
		{"tasks per second", fmt.Sprintf("%.1f", o.GetTasksPerSecond())},
		{"processing time", took},
		{"timer lateness", late},
		{"failing crons", strconv.FormatInt(o.GetFailingCrons(), 10)},
	}
}

// internalToo selects whether internal processes are counted with those of users.
type internalToo bool

// counts returns the number of processes in each status.
func (i internalToo) counts(o interface {
	GetCountByStatus() map[string]int64
	GetInternalByStatus() map[string]int64
},
) map[string]int64 {
	counts := maps.Clone(o.GetCountByStatus())
	for status, n := range o.GetInternalByStatus() {
		if !i {
			counts[status] -= n
		}
	}
	return counts
}

// orMore marks counts that are lower bounds, because there are too many rows to count.
func orMore(more bool) string {
	if more {
		return ", or more"
	}
	return ""
}

// showTotal returns the sum of the counts, and how many are errors.
func showTotal(counts map[string]int64) string {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if broken := counts["error"]; broken != 0 {
		return fmt.Sprintf("%d (error %d)", total, broken)
	}
	return strconv.FormatInt(total, 10)
}

// byUrgency orders statuses by their urgency for an operator, and other names alphabetically.
func byUrgency(a, b string) int {
	order := []string{"error", "running", "suspended", "completed", "cancelled"}
	return cmp.Or(slices.Index(order, a)-slices.Index(order, b), cmp.Compare(a, b))
}

// showCounts lists the counts that are not zero.
func showCounts(counts map[string]int64) string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(counts), byUrgency) {
		if counts[name] != 0 {
			list = append(list, fmt.Sprintf("%s %d", output.OneLine(name), counts[name]))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
