package process

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cancelCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	Reason string         `placeholder:"TEXT" help:"Reason, stored with the process and sent to its processor."`
	Grace  *time.Duration `placeholder:"DURATION" help:"Grace period of the processor. With 0, the processor is not called. Default: 30s."`
}

func (cancelCmd) Help() string {
	return `Cancel asks a process to end, and does not wait for it. The processor gets a CANCEL task
before all waiting tasks. When that task has finished, the process is CANCELLED. After the grace
period, the engine ends the process. A process in ERROR or SUSPENDED is CANCELLED at once.

    progressor cancel demo order-1 --reason 'the customer went away'
    progressor cancel demo order-9 --grace 5m`
}

func (c *cancelCmd) Run(a *cli.App) error {
	req := &progressorv1.CancelProcessRequest{Namespace: c.NS, ProcessId: c.ID, Reason: c.Reason}
	if c.Grace != nil {
		req.Grace = durationpb.New(*c.Grace)
	}
	return cli.Show(a, c, c.Client().Process.CancelProcess, req, printProcess)
}

type suspendCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	Reason string `placeholder:"TEXT" help:"Reason, shown as the detail of the process."`
}

func (suspendCmd) Help() string {
	return `Suspend stops a process until it is resumed. A running task finishes. No other task starts: due
timers wait, and calls are refused.

    progressor suspend demo order-1 --reason 'looking into it'
    progressor resume demo order-1`
}

func (c *suspendCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Process.SuspendProcess,
		&progressorv1.SuspendProcessRequest{Namespace: c.NS, ProcessId: c.ID, Reason: c.Reason},
		printProcess)
}

type resumeCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
}

func (resumeCmd) Help() string {
	return `Resume resumes a suspended process. Its waiting tasks, and timers that became due, run.

    progressor resume demo order-1`
}

func (c *resumeCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Process.ResumeProcess,
		&progressorv1.ResumeProcessRequest{Namespace: c.NS, ProcessId: c.ID}, printProcess)
}

type restartHistoryCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
}

func (restartHistoryCmd) Help() string {
	return `Restart-history starts a new, empty history of a process. The process keeps its state, metadata,
timers, waiting tasks and status, and its event numbers continue. Earlier events and finished tasks
are removed within seconds, so the state must contain everything that the processor still needs. A
running task belongs to the new history.

    progressor get demo order-1 -o json > order-1.json
    progressor restart-history demo order-1
    progressor restart-history demo order-1 -o json`
}

func (c *restartHistoryCmd) Run(a *cli.App) error {
	req := &progressorv1.RestartHistoryRequest{Namespace: c.NS, ProcessId: c.ID}
	return cli.Show(a, c, c.Client().Process.RestartHistory, req, printProcess)
}

type removeCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
}

func (removeCmd) Help() string {
	return `Remove deletes a process with all its tasks and events, in any status. It cannot be undone. The
output of get -o json can be imported again with put, as RUNNING or ERROR.

    progressor get demo order-1 -o json > order-1.json
    progressor remove demo order-1
    progressor put demo order-1 -f order-1.json --status running`
}

func (c *removeCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Process.RemoveProcess,
		&progressorv1.RemoveProcessRequest{Namespace: c.NS, ProcessId: c.ID},
		func(resp *progressorv1.RemoveProcessResponse) error {
			return output.PrintFields(a.Stdout, output.Field{"process", output.OneLine(c.NS + "/" + c.ID)},
				output.Field{"status", "removed"})
		})
}
