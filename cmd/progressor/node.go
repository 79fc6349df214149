package main

import (
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type nodeCmd struct {
	List  nodeListCmd  `cmd:"" help:"List the engines that run on the database."`
	Drain nodeDrainCmd `cmd:"" help:"Have an engine take nothing new and end what it runs."`
}

type nodeListCmd struct {
	clientFlags
}

func (nodeListCmd) Help() string {
	return `List shows the engines that run on the database, with what each runs. One that has not beaten for ten seconds is silent: it
is dead, and shown for an hour.

    progressor node list
    progressor node list -o json`
}

func (c *nodeListCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Insight.ListNodes, &progressorv1.ListNodesRequest{}, func(resp *progressorv1.ListNodesResponse) error {
		return printNodes(a.Stdout, resp.GetNodes())
	})
}

// printNodes measures the silence of a node from the newest beat of all, that of the node which answered or a later one: this machine's
// clock may be another than the database's.
func printNodes(w io.Writer, nodes []*progressorv1.Node) error {
	var newest time.Time
	for _, n := range nodes {
		newest = later(newest, n.GetBeatTime().AsTime())
	}
	var rows []table.Row
	for _, n := range nodes {
		rows = append(rows, table.Row{
			n.GetNodeId(), oneLine(n.GetAddress()), oneLine(n.GetVersion()), showTime(n.GetStartedTime()), showTime(n.GetBeatTime()), n.GetRunning(),
			nodeState(newest.Sub(n.GetBeatTime().AsTime()), n.GetDraining()),
		})
	}
	return printRows(w, table.Row{"node", "address", "version", "started", "last beat", "running", "state"}, rows)
}

// silentAfter is the default of engine.zombie_after: a node that has not beaten for so long is dead.
const silentAfter = 10 * time.Second

func nodeState(beatAge time.Duration, draining bool) string {
	switch {
	case beatAge > silentAfter:
		return "silent"
	case draining:
		return "draining"
	}
	return "alive"
}

type nodeDrainCmd struct {
	clientFlags
	Node string `arg:"" name:"node" help:"Its number, as node list shows it."`
}

func (nodeDrainCmd) Help() string {
	return `Drain has an engine take nothing new and end what it runs; its /readyz turns 503, so that a balancer sends it nothing. It
looks for that with its next heartbeat, within three seconds. Then it can be stopped; a restart takes tasks again.

    progressor node drain 3`
}

func (c *nodeDrainCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Insight.DrainNode, &progressorv1.DrainNodeRequest{NodeId: c.Node}, func(resp *progressorv1.DrainNodeResponse) error {
		return printNodes(a.Stdout, []*progressorv1.Node{resp.GetNode()})
	})
}
