package main

import (
	"io"

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
	return `List shows the engines that run on the database, with what each runs. One that has not beaten for ten seconds is dead; it is
shown for an hour.

    progressor node list
    progressor node list -o json`
}

func (c *nodeListCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Insight.ListNodes, &progressorv1.ListNodesRequest{}, func(resp *progressorv1.ListNodesResponse) error {
		return printNodes(a.Stdout, resp.GetNodes())
	})
}

func printNodes(w io.Writer, nodes []*progressorv1.Node) error {
	var rows []table.Row
	for _, n := range nodes {
		draining := ""
		if n.GetDraining() {
			draining = "yes"
		}
		rows = append(rows, table.Row{
			n.GetNodeId(), oneLine(n.GetAddress()), oneLine(n.GetVersion()), showTime(n.GetStartedTime()), showTime(n.GetBeatTime()), n.GetRunning(), draining,
		})
	}
	return printRows(w, table.Row{"node", "address", "version", "started", "last beat", "running", "draining"}, rows)
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
