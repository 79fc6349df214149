package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type overviewCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`

	clientFlags
}

func (overviewCmd) Help() string {
	return `Overview shows how many processes there are in each status, what waits for what, how old the oldest task is that could run,
how quick the nodes are, and the nodes.

    progressor overview
    progressor overview demo -o json`
}

func (c *overviewCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Insight.GetOverview, &progressorv1.GetOverviewRequest{Namespace: c.NS}, func(resp *progressorv1.GetOverviewResponse) error {
		if err := printFields(a.Stdout, overviewFields(resp)...); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
		return printNodes(a.Stdout, resp.GetNodes())
	})
}

func overviewFields(o *progressorv1.GetOverviewResponse) []field {
	late, took := "", ""
	if p99 := o.GetTimerLatenessP99(); p99 != nil {
		late = durations.Rounded(p99.AsDuration()) + " (99 %)"
	}
	if p99 := o.GetProcessingP99(); p99 != nil {
		took = fmt.Sprintf("%s (half), %s (99 %%)", durations.Rounded(o.GetProcessingP50().AsDuration()), durations.Rounded(p99.AsDuration()))
	}
	return []field{
		{"processes", showCounts(o.GetCountByStatus())},
		{"tasks that wait for", showCounts(o.GetWaitingByWhat())},
		{"oldest that could run", durations.Rounded(o.GetOldestRunnableAge().AsDuration())},
		{"tasks a second", fmt.Sprintf("%.1f", o.GetTasksPerSecond())},
		{"processors took", took},
		{"timers late by", late},
	}
}

// showCounts lists what there is any of.
func showCounts(counts map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] != 0 {
			list = append(list, fmt.Sprintf("%s %d", oneLine(name), counts[name]))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
