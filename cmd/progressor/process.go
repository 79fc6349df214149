package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type startCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" optional:"" name:"id" help:"Process id. Default: the engine chooses one."`

	payloadFlags
	waitFlags
	rangeFlags
	clientFlags
	Metadata  string `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	StartTime string `placeholder:"TIME|DURATION" help:"Earliest time of the INIT task: a time, or a duration from now. Implies --accepted, unless --timeout is set."`
	Priority  int32  `help:"Priority among the waiting processes of the namespace; smaller runs first."`
}

func (startCmd) Help() string {
	return `Start creates a process, runs its INIT task, and prints the response of the processor.

    progressor start demo order-1 --args '{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}]}'
    progressor start demo order-2 --args '{"order":"A-8","items":[{"sku":"tea"}]}' --metadata '{"tenant":"acme"}'
    progressor start demo order-3 --args @order.json
    cat order.bin | progressor start demo --args @- -o json`
}

func (c *startCmd) Run(a *app) error {
	args, err := c.args(a)
	if err != nil {
		return err
	}
	taskContext, err := c.context(a)
	if err != nil {
		return err
	}
	metadata, err := a.metadata(c.Metadata)
	if err != nil {
		return err
	}
	startTime, err := timeFrom("--start-time", c.StartTime)
	if err != nil {
		return err
	}
	// With a start time, do not wait, unless --timeout is set.
	c.Accepted = c.Accepted || startTime != nil && c.timeout() == nil
	ctx, cancel := a.interruptible()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, true)
	resp, err := c.client().Start(ctx, &progressorv1.StartRequest{
		Namespace: c.NS, ProcessId: c.ID, Args: args, Metadata: metadata, IdempotencyKey: sent.key,
		Context: taskContext, Range: c.historyRange(), Wait: c.wait(), Timeout: c.timeout(),
		StartTime: startTime, Priority: c.Priority,
	})
	if err != nil {
		return sent.explain(ofStart(err), sent.awaiting(c.NS, c.ID))
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return c.print(a, c.NS, resp.GetProcessId(), resp.GetTaskId(), resp.GetResponse())
}

// ofStart returns the next step after a failed INIT task. A simple repair would continue a process
// that has never started.
func ofStart(err error) error {
	d := client.Detail(err)
	if d.GetReason() != progressorv1.ErrorDetail_REASON_TASK_FAILED || d.GetProcessStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		return err
	}
	args := shellWord(d.GetNamespace()) + " " + shellWord(d.GetProcessId())
	return &advised{error: err, next: fmt.Sprintf("progressor remove %s, and start it again; or progressor repair %s --args …, if its processor can repair it", args, args)}
}

type callCmd struct {
	processArgs
	payloadFlags
	waitFlags
	rangeFlags
	clientFlags
	Priority int32 `help:"Priority among the waiting processes of the namespace; smaller runs first."`
}

func (callCmd) Help() string {
	return `Call runs a CALL task on a process and prints the response of the processor. With --accepted it
sends a NOTIFY task and does not wait.

    progressor call demo order-2 --args '{"status":true}'
    progressor call demo order-2 --args-base64 eyJzdGF0dXMiOnRydWV9 --accepted
    progressor call demo order-2 --args '{"pay":100}' --timeout 5s -k once-and-only-once`
}

func (c *callCmd) Run(a *app) error {
	args, err := c.args(a)
	if err != nil {
		return err
	}
	taskContext, err := c.context(a)
	if err != nil {
		return err
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, true)
	resp, err := c.client().Call(ctx, &progressorv1.CallRequest{
		Namespace: c.NS, ProcessId: c.ID, Args: args, IdempotencyKey: sent.key, Context: taskContext,
		Range: c.historyRange(), Wait: c.wait(), Timeout: c.timeout(), Priority: c.Priority,
	})
	if err != nil {
		return sent.explain(err, sent.awaiting(c.NS, c.ID))
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return c.print(a, c.NS, c.ID, resp.GetTaskId(), resp.GetResponse())
}

type repairCmd struct {
	processArgs
	payloadFlags
	waitFlags
	rangeFlags
	clientFlags
	Simple bool `help:"Repair without the processor: the process becomes RUNNING. If the failed task was a timer, it runs again."`
}

func (repairCmd) Help() string {
	return `Repair takes a process out of ERROR with a REPAIR task, whose args only the processor understands,
or with --simple without calling the processor.

    progressor repair demo order-1 --simple
    progressor repair demo order-1 --args '{"refund":true}'`
}

func (c *repairCmd) Run(a *app) error {
	args, err := c.args(a)
	if err != nil {
		return err
	}
	if c.Simple && args != nil {
		return usageError(errors.New("--simple cannot be used with args: the processor is not called"))
	}
	taskContext, err := c.context(a)
	if err != nil {
		return err
	}
	req := &progressorv1.RepairRequest{
		Namespace: c.NS, ProcessId: c.ID, Context: taskContext,
		Wait: c.wait(), Timeout: c.timeout(),
	}
	if c.Simple {
		req.How = &progressorv1.RepairRequest_Simple{Simple: &progressorv1.RepairRequest_SimpleRepair{}}
	} else {
		req.How = &progressorv1.RepairRequest_Processor{Processor: &progressorv1.RepairRequest_ProcessorRepair{
			Args: args, Range: c.historyRange(),
		}}
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, true)
	req.IdempotencyKey = sent.key
	resp, err := c.client().Repair(ctx, req)
	if err != nil {
		return sent.explain(err, sent.awaiting(c.NS, c.ID))
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	return c.print(a, c.NS, c.ID, resp.GetTaskId(), resp.GetResponse())
}

// print shows the result of a request.
func (f waitFlags) print(a *app, ns, id string, task int64, response []byte) error {
	accepted := ""
	if f.Accepted {
		accepted = "accepted"
	}
	return printFields(a.Stdout,
		field{"process", oneLine(ns + "/" + id)},
		field{"task", showID(task)},
		field{"status", accepted},
		field{"response", showPayload(response, 0)},
	)
}

// shortWait limits the read of a task whose wait ended without a response.
const shortWait = 10 * time.Second

type awaitCmd struct {
	processArgs
	clientFlags
	Task           int64         `placeholder:"TASK" help:"Id of the task."`
	IdempotencyKey string        `short:"k" placeholder:"KEY" help:"Idempotency key of the request."`
	Timeout        time.Duration `default:"60s" placeholder:"DURATION" help:"How long to wait; 0 shows the current status. Default: ${default}."`
}

func (awaitCmd) Help() string {
	return `Await waits until a task has ended and prints it. The exit code is 5 if the task failed, 6 if it was
rejected, and 7 if it has not ended before the timeout.

    progressor await demo order-1 --task 12
    progressor await demo order-2 -k once-and-only-once --timeout 5m`
}

func (c *awaitCmd) Run(a *app) error {
	req := &progressorv1.AwaitTaskRequest{Namespace: c.NS, ProcessId: c.ID}
	switch {
	case (c.Task != 0) == (c.IdempotencyKey != ""):
		return usageError(errBothKeys)
	case c.Task != 0:
		req.Key = &progressorv1.AwaitTaskRequest_TaskId{TaskId: c.Task}
	default:
		req.Key = &progressorv1.AwaitTaskRequest_IdempotencyKey{IdempotencyKey: c.IdempotencyKey}
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	task, err := c.await(ctx, req)
	if err != nil && (task == nil || !errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	if err := c.print(a, task); err != nil {
		return err
	}
	return taskOutcome(task, c.Timeout)
}

func (c *awaitCmd) await(ctx context.Context, req *progressorv1.AwaitTaskRequest) (*progressorv1.Task, error) {
	if c.Timeout == 0 {
		resp, err := c.client().Process.AwaitTask(ctx, req)
		return resp.GetTask(), err
	}
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	task, err := c.client().Await(waiting, req)
	if task != nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return task, err
	}
	// The wait was too short for a response: read the current status.
	reading, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	resp, readErr := c.client().Process.AwaitTask(reading, req)
	if readErr != nil {
		return nil, readErr
	}
	return resp.GetTask(), err
}

func (c *awaitCmd) print(a *app, task *progressorv1.Task) error {
	if c.json() {
		return printMessage(a.Stdout, &progressorv1.AwaitTaskResponse{Task: task})
	}
	return printFields(a.Stdout, taskFields(task)...)
}

// taskOutcome returns an error for the exit code of a task. asked is 0 without a wait.
func taskOutcome(task *progressorv1.Task, asked time.Duration) error {
	switch task.GetStatus() {
	case progressorv1.TaskStatus_TASK_STATUS_FINISHED:
		if r := task.GetRejection(); r != nil {
			return &codedError{code: exitRejected, err: fmt.Errorf("task %d was rejected: %s", task.GetTaskId(), r.GetReason())}
		}
		return nil
	case progressorv1.TaskStatus_TASK_STATUS_ERROR:
		return &codedError{code: exitTaskFailed, err: fmt.Errorf("task %d failed: %s", task.GetTaskId(), task.GetFailure().GetReason())}
	case progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		next := "progressor get " + shellWord(task.GetNamespace()) + " " + shellWord(task.GetProcessId())
		return &codedError{code: exitTaskFailed, err: fmt.Errorf("task %d was cancelled", task.GetTaskId()), next: next}
	}
	if asked == 0 {
		return nil
	}
	return &codedError{code: exitTimeout, err: fmt.Errorf("task %d is %s after %s; it continues", task.GetTaskId(), shortEnum(task.GetStatus()), asked)}
}
