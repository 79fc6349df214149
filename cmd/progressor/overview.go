package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Insight.GetOverview(ctx, &progressorv1.GetOverviewRequest{Namespace: c.NS})
	if err != nil {
		return err
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	lateness := ""
	if late := resp.GetTimerLatenessP99(); late != nil {
		lateness = showTook(late.AsDuration()) + " (99 %)"
	}
	err = printFields(a.Stdout,
		field{"processes", showCounts(resp.GetCountByStatus())},
		field{"tasks that wait for", showCounts(resp.GetWaitingByWhat())},
		field{"oldest that could run", showTook(resp.GetOldestRunnableAge().AsDuration())},
		field{"tasks a second", fmt.Sprintf("%.1f", resp.GetTasksPerSecond())},
		field{"timers late by", lateness},
	)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	return printNodes(a, resp.GetNodes())
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
