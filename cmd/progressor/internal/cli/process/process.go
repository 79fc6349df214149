package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Commands are the commands that read and change processes.
type Commands struct {
	Start          startCmd          `cmd:"" group:"process" help:"Start a process."`
	Call           callCmd           `cmd:"" group:"process" help:"Call a process and print its response."`
	Repair         repairCmd         `cmd:"" group:"process" help:"Repair a process in ERROR."`
	Await          awaitCmd          `cmd:"" group:"process" help:"Wait for the end of a task."`
	Get            getCmd            `cmd:"" group:"process" help:"Show a process, its timers and its history."`
	List           listCmd           `cmd:"" group:"process" help:"List the processes of a namespace."`
	Count          countCmd          `cmd:"" group:"process" help:"Count processes by status."`
	Trace          traceCmd          `cmd:"" group:"process" help:"Show the tasks of a process with their events."`
	Explain        explainCmd        `cmd:"" group:"process" help:"Explain what a process waits for, or why a sink does not deliver."`
	Errors         errorsCmd         `cmd:"" group:"process" help:"Group the processes in ERROR by cause."`
	Watch          watchCmd          `cmd:"" group:"process" help:"Print new events and status changes of a process."`
	Put            putCmd            `cmd:"" group:"process" help:"Import a process with its history."`
	Suspend        suspendCmd        `cmd:"" group:"process" help:"Suspend a process until it is resumed."`
	RestartHistory restartHistoryCmd `cmd:"" name:"restart-history" group:"process" help:"Start a new, empty history of a process."`
	Resume         resumeCmd         `cmd:"" group:"process" help:"Resume a suspended process."`
	Cancel         cancelCmd         `cmd:"" group:"process" help:"Ask a process to end; after the grace period, the engine ends it."`
	Remove         removeCmd         `cmd:"" group:"process" help:"Delete a process with its tasks and events."`
	Erase          eraseCmd          `cmd:"" group:"process" help:"Delete a process and every trace of it."`
	Bulk           bulkCmd           `cmd:"" group:"process" help:"Apply an action to all processes that match a filter."`
}

type startCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" optional:"" name:"id" complete:"process" help:"Process id. Default: the engine chooses one."`

	cli.PayloadFlags
	cli.WaitFlags
	cli.RangeFlags
	cli.ClientFlags
	Metadata  string `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	StartTime string `placeholder:"TIME|DURATION" help:"Earliest time of the INIT task: a time, or a duration from now. Implies --accepted, unless --wait-timeout is set."`
	Priority  int32  `placeholder:"N" help:"Priority among the waiting processes of the namespace; a smaller number runs first. Default: 0."`
}

func (startCmd) Help() string {
	return `Start creates a process, runs its INIT task, and prints the response of the processor.

    progressor start demo order-1 --args '{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}]}'
    progressor start demo order-2 --args '{"order":"A-8","items":[{"sku":"tea"}]}' --metadata '{"tenant":"acme"}'
    progressor start demo order-3 --args @order.json
    cat order.bin | progressor start demo --args @- -o json`
}

func (c *startCmd) Run(a *cli.App) error {
	args, err := c.ReadArgs(a)
	if err != nil {
		return err
	}
	taskContext, err := c.ReadContext(a)
	if err != nil {
		return err
	}
	metadata, err := a.Metadata(c.Metadata)
	if err != nil {
		return err
	}
	startTime, err := cli.TimeFrom("--start-time", c.StartTime)
	if err != nil {
		return err
	}
	// With a start time, do not wait, unless --wait-timeout is set.
	c.Accepted = c.Accepted || startTime != nil && c.RequestTimeout() == nil
	ctx, cancel := a.Interruptible()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, true)
	resp, err := c.Client().Start(ctx, &progressorv1.StartRequest{
		Namespace: c.NS, ProcessId: c.ID, Args: args, Metadata: metadata, IdempotencyKey: sent.Key,
		Context: taskContext, Range: c.HistoryRange(), Wait: c.Wait(), Timeout: c.RequestTimeout(),
		StartTime: startTime, Priority: c.Priority,
	})
	if err != nil {
		return sent.Explain(ofStart(err), sent.Awaiting(c.NS, c.ID))
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	return c.Print(a, c.NS, resp.GetProcessId(), resp.GetTaskId(), resp.GetResponse())
}

// ofStart adds the next step to the error of a failed INIT task. It does not recommend a simple
// repair, which would continue a process that has never started.
func ofStart(err error) error {
	d := client.Detail(err)
	if d.GetReason() != progressorv1.ErrorDetail_REASON_TASK_FAILED ||
		d.GetProcessStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		return err
	}
	args := output.ShellWord(d.GetNamespace()) + " " + output.ShellWord(d.GetProcessId())
	return &cli.Advised{Err: err,
		Next: fmt.Sprintf("progressor remove %s, and start it again; or progressor repair %s --args …, if its "+
			"processor can repair it", args, args)}
}

type callCmd struct {
	cli.ProcessArgs
	cli.PayloadFlags
	cli.WaitFlags
	cli.RangeFlags
	cli.ClientFlags
	Priority int32 `placeholder:"N" help:"Priority among the waiting processes of the namespace; a smaller number runs first. Default: 0."`
}

func (callCmd) Help() string {
	return `Call runs a CALL task on a process and prints the response of the processor. With --accepted it
sends a NOTIFY task and does not wait.

    progressor call demo order-2 --args '{"status":true}'
    progressor call demo order-2 --args-base64 eyJzdGF0dXMiOnRydWV9 --accepted
    progressor call demo order-2 --args '{"pay":100}' --wait-timeout 5s -k once-and-only-once`
}

func (c *callCmd) Run(a *cli.App) error {
	args, err := c.ReadArgs(a)
	if err != nil {
		return err
	}
	taskContext, err := c.ReadContext(a)
	if err != nil {
		return err
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, true)
	resp, err := c.Client().Call(ctx, &progressorv1.CallRequest{
		Namespace: c.NS, ProcessId: c.ID, Args: args, IdempotencyKey: sent.Key, Context: taskContext,
		Range: c.HistoryRange(), Wait: c.Wait(), Timeout: c.RequestTimeout(), Priority: c.Priority,
	})
	if err != nil {
		return sent.Explain(err, sent.Awaiting(c.NS, c.ID))
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	return c.Print(a, c.NS, c.ID, resp.GetTaskId(), resp.GetResponse())
}

type repairCmd struct {
	cli.ProcessArgs
	cli.PayloadFlags
	cli.WaitFlags
	cli.RangeFlags
	cli.ClientFlags
	stepRepairFlags
	Simple bool `help:"Repair without the processor: the process becomes RUNNING. If the failed task was a timer, it runs again."`
}

func (repairCmd) Help() string {
	return `Repair takes a process out of ERROR with a REPAIR task, whose args only the processor understands,
or with --simple without calling the processor. progressor explain shows which repair fits.

A durable function that has ended with an error starts again, with its old input or with --args.
--skip-step, --set-step and --rewind repair a durable function by step: they change its journal, and
the function continues. They can be combined and repeated. The response lists the entries of the
journal that no longer count. See docs/functions.md.

    progressor repair demo order-1 --simple
    progressor repair demo order-1 --args '{"refund":true}'
    progressor repair orders A-7
    progressor repair orders A-7 --skip-step mail
    progressor repair orders A-7 --set-step 'charge="by hand"'
    progressor repair orders A-7 --rewind reserve`
}

func (c *repairCmd) Run(a *cli.App) error {
	args, err := c.ReadArgs(a)
	if err != nil {
		return err
	}
	steps, err := c.stepArgs()
	switch {
	case err != nil:
		return cli.UsageError(err)
	case steps != nil && (c.Simple || args != nil):
		return cli.UsageError(
			fmt.Errorf("--skip-step, --set-step and --rewind cannot be used with --simple or %s", c.ArgsFlag()))
	case steps != nil:
		args = steps
	case c.Simple && args != nil:
		return cli.UsageError(
			fmt.Errorf("--simple cannot be used with %s: the processor is not called", c.ArgsFlag()))
	}
	taskContext, err := c.ReadContext(a)
	if err != nil {
		return err
	}
	req := &progressorv1.RepairRequest{
		Namespace: c.NS, ProcessId: c.ID, Context: taskContext,
		Wait: c.Wait(), Timeout: c.RequestTimeout(),
	}
	if c.Simple {
		req.How = &progressorv1.RepairRequest_Simple{Simple: &progressorv1.RepairRequest_SimpleRepair{}}
	} else {
		req.How = &progressorv1.RepairRequest_Processor{Processor: &progressorv1.RepairRequest_ProcessorRepair{
			Args: args, Range: c.HistoryRange(),
		}}
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, true)
	req.IdempotencyKey = sent.Key
	resp, err := c.Client().Repair(ctx, req)
	if err != nil {
		return sent.Explain(err, sent.Awaiting(c.NS, c.ID))
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	return c.Print(a, c.NS, c.ID, resp.GetTaskId(), resp.GetResponse())
}

// shortWait limits the read of a task whose wait ended without a response.
const shortWait = 10 * time.Second

type awaitCmd struct {
	cli.ProcessArgs
	cli.ClientFlags
	Task           int64         `placeholder:"TASK" help:"Id of the task."`
	IdempotencyKey string        `short:"k" placeholder:"KEY" help:"Idempotency key of the request."`
	Timeout        time.Duration `name:"wait-timeout" aliases:"timeout" default:"60s" placeholder:"DURATION" help:"How long to wait; 0 shows the current status. Default: ${default}."`
}

func (awaitCmd) Help() string {
	return `Await waits until a task has ended and prints it. The exit code is 5 if the task failed, 6 if it was
rejected, and 7 if it has not ended before the timeout.

    progressor await demo order-1 --task 12
    progressor await demo order-2 -k once-and-only-once --wait-timeout 5m`
}

func (c *awaitCmd) Run(a *cli.App) error {
	req := &progressorv1.AwaitTaskRequest{Namespace: c.NS, ProcessId: c.ID}
	switch {
	case (c.Task != 0) == (c.IdempotencyKey != ""):
		return cli.UsageError(cli.ErrBothKeys)
	case c.Task != 0:
		req.Key = &progressorv1.AwaitTaskRequest_TaskId{TaskId: c.Task}
	default:
		req.Key = &progressorv1.AwaitTaskRequest_IdempotencyKey{IdempotencyKey: c.IdempotencyKey}
	}
	ctx, cancel := a.Interruptible()
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
		resp, err := c.Client().Process.AwaitTask(ctx, req)
		return resp.GetTask(), err
	}
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	task, err := c.Client().Await(waiting, req)
	if task != nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return task, err
	}
	// The wait ended before the response, so read the current status.
	reading, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	resp, readErr := c.Client().Process.AwaitTask(reading, req)
	if readErr != nil {
		return nil, readErr
	}
	return resp.GetTask(), err
}

func (c *awaitCmd) print(a *cli.App, task *progressorv1.Task) error {
	if c.JSON() {
		return output.PrintMessage(a.Stdout, &progressorv1.AwaitTaskResponse{Task: task})
	}
	return output.PrintFields(a.Stdout, taskFields(task)...)
}

// taskOutcome returns an error for the exit code of a task. waited is 0 if the command does not
// wait.
func taskOutcome(task *progressorv1.Task, waited time.Duration) error {
	switch task.GetStatus() {
	case progressorv1.TaskStatus_TASK_STATUS_FINISHED:
		if r := task.GetRejection(); r != nil {
			return &cli.CodedError{Code: cli.ExitRejected,
				Err: fmt.Errorf("task %d was rejected: %s", task.GetTaskId(), r.GetReason())}
		}
		return nil
	case progressorv1.TaskStatus_TASK_STATUS_ERROR:
		return &cli.CodedError{Code: cli.ExitTaskFailed,
			Err: fmt.Errorf("task %d failed: %s", task.GetTaskId(), task.GetFailure().GetReason())}
	case progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		next := "progressor get " + output.ShellWord(task.GetNamespace()) + " " + output.ShellWord(task.GetProcessId())
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: fmt.Errorf("task %d was cancelled", task.GetTaskId()),
			Next: next}
	}
	if waited == 0 {
		return nil
	}
	return &cli.CodedError{Code: cli.ExitTimeout,
		Err: fmt.Errorf("task %d is %s after %s; it continues", task.GetTaskId(), output.Enum(task.GetStatus()),
			waited)}
}
