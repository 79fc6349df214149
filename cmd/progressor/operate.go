package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type cancelCmd struct {
	processArgs
	clientFlags
	Reason string         `placeholder:"TEXT" help:"Why: kept with the process, and handed to its processor."`
	Grace  *time.Duration `placeholder:"DURATION" help:"How long the processor may take. 0: it is not asked. Default: 30s."`
}

func (cancelCmd) Help() string {
	return `Cancel asks a process to end, and does not wait for it: the processor gets a CANCEL task, before everything that
waits, and when that has ended the process is CANCELLED. Past the grace the engine ends it by itself. A process in ERROR or
SUSPENDED is CANCELLED at once.

    progressor cancel demo order-1 --reason 'the customer went away'
    progressor cancel demo order-9 --grace 5m`
}

func (c *cancelCmd) Run(a *app) error {
	req := &progressorv1.CancelProcessRequest{Namespace: c.NS, ProcessId: c.ID, Reason: c.Reason}
	if c.Grace != nil {
		req.Grace = durationpb.New(*c.Grace)
	}
	return ask(a, c.outputFlag, c.client().Process.CancelProcess, req, func(resp *progressorv1.CancelProcessResponse) error {
		return printProcess(a, resp.GetProcess())
	})
}

type suspendCmd struct {
	processArgs
	clientFlags
	Reason string `placeholder:"TEXT" help:"Why: shown as the detail of the process."`
}

func (suspendCmd) Help() string {
	return `Suspend holds a process until it is resumed. What runs goes on to its end; nothing else is handed out: timers that
come due wait, and calls are refused.

    progressor suspend demo order-1 --reason 'looking into it'
    progressor resume demo order-1`
}

func (c *suspendCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Process.SuspendProcess, &progressorv1.SuspendProcessRequest{Namespace: c.NS, ProcessId: c.ID, Reason: c.Reason}, func(resp *progressorv1.SuspendProcessResponse) error {
		return printProcess(a, resp.GetProcess())
	})
}

type resumeCmd struct {
	processArgs
	clientFlags
}

func (resumeCmd) Help() string {
	return `Resume lets a suspended process go on, with what waits for it and with the timers that came due meanwhile.

    progressor resume demo order-1`
}

func (c *resumeCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Process.ResumeProcess, &progressorv1.ResumeProcessRequest{Namespace: c.NS, ProcessId: c.ID}, func(resp *progressorv1.ResumeProcessResponse) error {
		return printProcess(a, resp.GetProcess())
	})
}

type restartHistoryCmd struct {
	processArgs
	clientFlags
}

func (restartHistoryCmd) Help() string {
	return `Restart-history begins a new, empty history of a process. The process keeps its state, metadata, timers, waiting
tasks and status, and the numbers of its events go on. Its earlier events, and its tasks that have ended, are removed within
seconds: the state must hold all that the processor still needs of them. What runs now belongs to the new history.

    progressor get demo order-1 -o json > order-1.json
    progressor restart-history demo order-1
    progressor restart-history demo order-1 -o json`
}

func (c *restartHistoryCmd) Run(a *app) error {
	req := &progressorv1.RestartHistoryRequest{Namespace: c.NS, ProcessId: c.ID}
	return ask(a, c.outputFlag, c.client().Process.RestartHistory, req, func(resp *progressorv1.RestartHistoryResponse) error {
		return printProcess(a, resp.GetProcess())
	})
}

type removeCmd struct {
	processArgs
	clientFlags
}

func (removeCmd) Help() string {
	return `Remove deletes a process with all its tasks and events, in any status. It cannot be undone: a copy by
get -o json can be put again, as RUNNING or in ERROR.

    progressor get demo order-1 -o json > order-1.json
    progressor remove demo order-1
    progressor put demo order-1 -f order-1.json --status running`
}

func (c *removeCmd) Run(a *app) error {
	return ask(a, c.outputFlag, c.client().Process.RemoveProcess, &progressorv1.RemoveProcessRequest{Namespace: c.NS, ProcessId: c.ID}, func(resp *progressorv1.RemoveProcessResponse) error {
		return printFields(a.Stdout, field{"process", oneLine(c.NS + "/" + c.ID)}, field{"status", "removed"})
	})
}
