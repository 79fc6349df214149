package admin

import (
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type nodeCmd struct {
	List  nodeListCmd  `cmd:"" help:"List the engines that use the database."`
	Drain nodeDrainCmd `cmd:"" help:"Drain an engine: it finishes its tasks and accepts no new ones."`
}

type nodeListCmd struct {
	cli.ClientFlags
}

func (nodeListCmd) Help() string {
	return `List shows the engines that use the database, with the number of tasks that each runs. An engine
without a heartbeat for ten seconds has the state "silent": it counts as dead, and is shown for an
hour. An engine with the state "requests only" accepts requests but runs no tasks (engine.requests_only).

    progressor node list
    progressor node list -o json`
}

func (c *nodeListCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Insight.ListNodes, &progressorv1.ListNodesRequest{},
		func(resp *progressorv1.ListNodesResponse) error {
			return printNodes(a.Stdout, resp.GetNodes())
		})
}

// printNodes prints nodes. It measures the time since the last heartbeat of a node from the newest
// heartbeat of all nodes, because the clock of this machine may differ from the database clock.
func printNodes(w io.Writer, nodes []*progressorv1.Node) error {
	var newest time.Time
	for _, n := range nodes {
		newest = cli.Later(newest, n.GetBeatTime().AsTime())
	}
	var rows []table.Row
	for _, n := range nodes {
		rows = append(rows, table.Row{
			n.GetNodeId(), output.OneLine(n.GetAddress()), output.OneLine(n.GetVersion()),
			output.Time(n.GetStartedTime()), output.Time(n.GetBeatTime()), n.GetRunning(),
			output.NodeState(newest.Sub(n.GetBeatTime().AsTime()), n),
		})
	}
	return output.PrintList(w, cli.None("nodes", "", false, "start one with progressor serve"),
		table.Row{"node", "address", output.Minor("version"), output.Minor("started"), "last beat", "running", "state"},
		rows)
}

type nodeDrainCmd struct {
	cli.ClientFlags
	Node string `arg:"" name:"node" help:"Number of the node; node list shows it."`
}

func (nodeDrainCmd) Help() string {
	return `Drain drains an engine: it finishes its running tasks and accepts no new ones. Its /readyz returns
503, so that a load balancer stops using it. The drain begins with its next heartbeat, within three
seconds. After a restart, it accepts tasks again.

    progressor node drain 3`
}

func (c *nodeDrainCmd) Run(a *cli.App) error {
	err := cli.Ask(a, c.OutputFlag, c.Client().Insight.DrainNode, &progressorv1.DrainNodeRequest{NodeId: c.Node},
		func(resp *progressorv1.DrainNodeResponse) error {
			return printNodes(a.Stdout, []*progressorv1.Node{resp.GetNode()})
		})
	switch connect.CodeOf(err) {
	case connect.CodeNotFound, connect.CodeInvalidArgument:
		return &cli.Advised{Err: err, Next: "progressor node list"}
	default:
		return err
	}
}
