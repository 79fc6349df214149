package flow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// Commands are the commands that manage templates and runs of flows.
type Commands struct {
	Template templateCmd `cmd:"" group:"flow" help:"Manage templates of flows."`
	Run      flowCmd     `cmd:"" group:"flow" help:"Start flow runs, follow their steps, and complete waits."`
}

type flowCmd struct {
	Start    flowStartCmd    `cmd:"" help:"Start a run of a template."`
	Get      flowGetCmd      `cmd:"" help:"Show a run with its steps as a tree."`
	List     flowListCmd     `cmd:"" help:"List the runs of a namespace."`
	Steps    flowStepsCmd    `cmd:"" help:"List the steps and items of a run."`
	Watch    flowWatchCmd    `cmd:"" help:"Follow a run to its end."`
	Cancel   flowCancelCmd   `cmd:"" help:"Cancel a run."`
	Retry    flowRetryCmd    `cmd:"" help:"Continue a failed, expired or cancelled run."`
	Repeat   flowRepeatCmd   `cmd:"" help:"Start a new run with the payload of another run."`
	Remove   flowRemoveCmd   `cmd:"" help:"Remove a run that has ended, with its steps and jobs."`
	Skip     flowSkipCmd     `cmd:"" help:"End a step with a given result."`
	Waits    flowWaitsCmd    `cmd:"" help:"List steps that wait for a person or an external worker."`
	Complete flowCompleteCmd `cmd:"" help:"Complete a wait."`
	Report   flowReportCmd   `cmd:"" help:"Report the progress of a wait, and change its due time."`
}

// flowArgs identify a run.
type flowArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"run" help:"Run id."`
}

type flowStartCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Type string `arg:"" name:"type" complete:"template" help:"Type of the template."`

	cli.ClientFlags
	ID              string `name:"id" placeholder:"ID" help:"Run id. Default: the engine chooses one."`
	TemplateVersion int32  `field:"version" placeholder:"N" help:"Version of the template. Default: the newest."`
	Payload         string `placeholder:"JSON|@FILE|@-" help:"Payload of the run: JSON, @FILE, or @- for standard input."`
	Scope           string `placeholder:"TEXT" help:"Kind of subject: user, account, system, …"`
	ScopeID         string `placeholder:"TEXT" help:"Id of the subject."`
	RunTime         string `placeholder:"TIME|DURATION" help:"Earliest start: a time, or a duration from now."`
	IdempotencyKey  string `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key does not start a second run. Default without --id: a random key."`
	Metadata        string `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	DryRun          bool   `help:"Check the payload and the scope, and store nothing."`
	cli.EndFlags    `set:"what=run"`
}

func (flowStartCmd) Help() string {
	return `Start stores a run. It starts at once, at --run-time, or when the runs of the same scope permit it.
If the template returns an existing run instead, the output has "started no". With --wait, the
command follows the run to its end. On a terminal, it also shows the steps. The exit code is then 5
if the run did not succeed, and 7 if --wait-timeout has passed.

    progressor run start demo order --payload '{"order": "A-7", "total": 120}'
    progressor run start demo demo_long_task --id task-1 --scope user --scope-id 42 --payload '{"target": "x"}' --wait
    progressor run start demo order --payload @order.json --dry-run`
}

func (c *flowStartCmd) Run(a *cli.App) error {
	req := &progressorv1.StartRunRequest{
		Namespace: c.NS, RunId: c.ID, Type: c.Type, Version: c.TemplateVersion, Scope: c.Scope, ScopeId: c.ScopeID,
		IdempotencyKey: c.IdempotencyKey, ValidateOnly: c.DryRun,
	}
	var err error
	if req.Payload, err = a.JSONValue("--payload", c.Payload); err != nil {
		return err
	}
	if req.RunTime, err = cli.TimeFrom("--run-time", c.RunTime); err != nil {
		return err
	}
	if req.Metadata, err = a.Metadata(c.Metadata); err != nil {
		return err
	}
	ctx, cancel := a.Request()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, c.ID == "" && !c.DryRun)
	req.IdempotencyKey = sent.Key
	resp, err := c.Client().Flow.StartRun(ctx, req)
	if err != nil {
		return sent.Explain(ofTemplate(templateArgs{c.NS, c.Type}, ofRun(flowArgs{c.NS, c.ID}, err)),
			cli.Named("progressor run get", c.NS, c.ID))
	}
	r := resp.GetRun()
	switch {
	case c.Wait && !c.DryRun:
		return followRun(a, c.EndFlags, c.ClientFlags, flowArgs{c.NS, r.GetRunId()})
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	}
	started := ""
	switch {
	case c.DryRun && r.GetCreatedTime() == nil:
		started = "no (--dry-run)"
	case c.DryRun:
		started = "no: the run already exists"
	case !resp.GetStarted():
		started = "no: the run already existed"
	}
	name := r.GetNamespace() + "/" + r.GetRunId()
	if r.GetRunId() == "" { // a run without an ID gets one when it starts
		name = "a new one in " + r.GetNamespace()
	}
	return output.PrintFields(a.Stdout,
		output.Field{"run", output.OneLine(name)},
		output.Field{"template", fmt.Sprintf("%s, version %d", r.GetTemplateType(), r.GetTemplateVersion())},
		output.Field{"status", output.Enum(r.GetStatus())},
		output.Field{"blocked on", output.Note(r.GetBlockedOn())},
		output.Field{"started", started},
	)
}

type flowListCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only runs that match, such as 'status = FAILED'. See docs/flows.md."`

	cli.ClientFlags
	Status        string `placeholder:"STATUS" complete:"RunStatus" help:"Only runs in this status: pending, queued, running, waiting_worker, cancel_requested, compensating, succeeded, failed, cancelled or expired."`
	Type          string `placeholder:"TYPE" complete:"template" help:"Only runs of this template."`
	ScopeID       string `placeholder:"TEXT" help:"Only runs of this scope_id."`
	OrderBy       string `placeholder:"ORDER" help:"created_time desc, created_time, updated_time or updated_time desc. Default: created_time desc."`
	cli.PageFlags `set:"rows=runs"`
}

func (flowListCmd) Help() string {
	return `List shows the runs of a namespace, newest first, a page at a time. A filter compares status,
template_type, scope, scope_id, phase, cron_id, created_time, reason, fingerprint, payload.KEY and
metadata.KEY with = != < <= > >=. A * at the end of a text matches any suffix.

    progressor run list demo
    progressor run list demo --status failed --type order
    progressor run list demo 'status = RUNNING AND phase = execute'
    progressor run list demo 'payload.target = "x" OR metadata.team = "billing"' --order-by updated_time --all -o json`
}

func (c *flowListCmd) Run(a *cli.App) error {
	filter := ""
	if err := cli.SetEnum("--status", c.Status,
		func(s progressorv1.RunStatus) { filter = "status = " + output.Enum(s) }); err != nil {
		return err
	}
	if c.Type != "" {
		filter = cli.Both(filter, "template_type = "+search.Quote(c.Type, false))
	}
	if c.ScopeID != "" {
		filter = cli.Both(filter, "scope_id = "+search.Quote(c.ScopeID, false))
	}
	filter = cli.Both(filter, c.Match)
	return cli.PrintPages(a, c, c.Client().Flow.ListRuns,
		&progressorv1.ListRunsRequest{Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy},
		func(all *progressorv1.ListRunsResponse) error {
			var rows []table.Row
			for _, r := range all.GetRuns() {
				rows = append(rows, table.Row{
					output.OneLine(r.GetRunId()), r.GetTemplateType(), output.Enum(r.GetStatus()), r.GetPhase(),
					fmt.Sprintf("%.0f %%", r.GetProgress().GetPercent()), output.Time(r.GetCreatedTime()),
					took(r.GetRunningTime(), r.GetFinishedTime()), output.Note(runNote(r)),
				})
			}
			none := cli.None("runs", c.NS, filter != "",
				fmt.Sprintf("start one with progressor run start %s TEMPLATE", output.ShellWord(c.NS)))
			return output.PrintList(a.Stdout, none, table.Row{"run", "template", "status", "phase", "progress",
				output.Minor("created"), "took", "note"}, rows)
		})
}

// runNote returns the most important fact about a run, for a list.
func runNote(r *progressorv1.Run) string {
	switch {
	case r.GetFailure() != nil:
		return output.ShowFailure(r.GetFailure())
	case r.GetBlockedOn() != "":
		return r.GetBlockedOn()
	case r.GetCancelReason() != "":
		return r.GetCancelReason()
	}
	return r.GetProgress().GetSummary()
}

type flowCancelCmd struct {
	flowArgs
	cli.ClientFlags
	Reason string `placeholder:"TEXT" help:"Reason, stored with the run and sent to its workers."`
	Force  bool   `help:"End the run now, without waiting and without further compensation."`
}

func (flowCancelCmd) Help() string {
	return `Cancel ends a waiting run at once. The workers of running steps receive the request with their next
heartbeat. Steps that are not cancelable finish first. After the grace period of the template, the
engine ends the run. Then it undoes completed steps that have a compensation.

    progressor run cancel demo task-1 --reason 'the customer went away'

With --force, any run that has not ended ends now, even if its template does not support cancelling.
The run asks its open steps to end and does not wait for them. No further steps are compensated.
Use --force for a run that cannot be ended otherwise.`
}

func (c *flowCancelCmd) Run(a *cli.App) error {
	return ofRun(c.flowArgs, cli.Ask(a, c.OutputFlag, c.Client().Flow.CancelRun, &progressorv1.CancelRunRequest{
		Namespace: c.NS, RunId: c.ID, Reason: c.Reason, Force: c.Force,
	}, func(resp *progressorv1.CancelRunResponse) error {
		return printRun(a, c.ClientFlags, resp.GetRun())
	}))
}

type flowRetryCmd struct {
	flowArgs
	cli.ClientFlags
	NewestVersion bool     `help:"Continue with the newest version of the template."`
	Input         []string `field:"inputs" sep:"none" placeholder:"STEP=JSON|STEP=@FILE" help:"New input for a step that runs again; can be repeated."`
	cli.EndFlags  `set:"what=run"`
}

func (flowRetryCmd) Help() string {
	return `Retry continues a FAILED, CANCELLED or EXPIRED run. Steps that did not succeed start again with all
their attempts. Succeeded steps keep their results. With --newest-version, the run continues with
the newest version of its template, which must contain the succeeded steps. With --input, a step
gets this input instead of the one that the template computes.

    progressor run retry demo task-1
    progressor run retry demo task-1 --input 'pay={"amount": 120}'
    progressor run retry demo task-1 --newest-version --wait`
}

func (c *flowRetryCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	req := &progressorv1.RetryRunRequest{Namespace: c.NS, RunId: c.ID, NewestVersion: c.NewestVersion}
	for _, text := range c.Input {
		step, value, ok := strings.Cut(text, "=")
		if !ok || step == "" || value == "" {
			return fmt.Errorf("--input: must be STEP=JSON or STEP=@FILE (got %q)", text)
		}
		input, err := a.JSONValue("--input "+step, value)
		if err != nil {
			return err
		}
		req.Inputs = append(req.Inputs, &progressorv1.StepInput{StepId: step, Input: input})
	}
	resp, err := c.Client().Flow.RetryRun(ctx, req)
	switch {
	case err != nil:
		return ofRun(c.flowArgs, err)
	case c.Wait:
		return followRun(a, c.EndFlags, c.ClientFlags, c.flowArgs)
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	}
	return printRun(a, c.ClientFlags, resp.GetRun())
}

type flowRepeatCmd struct {
	flowArgs
	cli.ClientFlags
	Payload        string `placeholder:"JSON|@FILE|@-" help:"Another payload: JSON, @FILE, or @- for standard input. Default: the payload of the run."`
	IdempotencyKey string `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key does not start a second run. Default: a random key."`
	cli.EndFlags   `set:"what=run"`
}

func (flowRepeatCmd) Help() string {
	return `Repeat starts a new run with the payload, scope and metadata of another run, and the newest version
of its template. With --payload, the new run has this payload. The command fails if the template is
not repeatable.

    progressor run repeat demo task-1
    progressor run repeat demo task-1 --payload '{"target": "y"}'
    progressor run repeat demo task-1 --wait`
}

func (c *flowRepeatCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	payload, err := a.JSONValue("--payload", c.Payload)
	if err != nil {
		return err
	}
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, true)
	resp, err := c.Client().Flow.RepeatRun(ctx, &progressorv1.RepeatRunRequest{
		Namespace: c.NS, RunId: c.ID, IdempotencyKey: sent.Key, Payload: payload,
	})
	switch {
	case err != nil:
		return sent.Explain(ofRun(c.flowArgs, err), "")
	case c.Wait:
		return followRun(a, c.EndFlags, c.ClientFlags, flowArgs{c.NS, resp.GetRun().GetRunId()})
	case c.JSON():
		return output.PrintMessage(a.Stdout, resp)
	}
	return printRun(a, c.ClientFlags, resp.GetRun())
}

type flowRemoveCmd struct {
	flowArgs
	cli.ClientFlags
}

func (flowRemoveCmd) Help() string {
	return `Remove deletes a run that has ended, with its steps and jobs. This cannot be undone. A run that has
not ended cannot be removed: end it with cancel, or with cancel --force. The processes and runs that
its steps started are kept.

    progressor run remove demo task-1`
}

func (c *flowRemoveCmd) Run(a *cli.App) error {
	req := &progressorv1.RemoveRunRequest{Namespace: c.NS, RunId: c.ID}
	err := cli.Ask(a, c.OutputFlag, c.Client().Flow.RemoveRun, req, func(*progressorv1.RemoveRunResponse) error {
		return output.PrintFields(a.Stdout, output.Field{"run", output.OneLine(c.NS + "/" + c.ID)},
			output.Field{"status", "removed"})
	})
	if client.Detail(err).GetReason() == progressorv1.ErrorDetail_REASON_PROCESS_STATUS {
		return &cli.Advised{Err: err,
			Next: "progressor run cancel " + output.ShellWord(c.NS) + " " + output.ShellWord(c.ID)}
	}
	return ofRun(c.flowArgs, err)
}

// ofRun adds advice to an error. The advice names commands for runs, because to the engine a run is
// a process.
func ofRun(run flowArgs, err error) error {
	ns, id := output.ShellWord(run.NS), output.ShellWord(run.ID)
	d := client.Detail(err)
	switch d.GetReason() {
	case progressorv1.ErrorDetail_REASON_SAME_SCOPE:
		return &cli.Advised{Err: err, Next: "progressor run get " + ns + " " + output.ShellWord(d.GetProcessId())}
	case progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
		return &cli.Advised{Err: err, Next: "progressor run list " + ns}
	case progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND:
		return &cli.Advised{Err: err, Next: "progressor run steps " + ns + " " + id}
	case progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED:
		return &cli.Advised{Err: err, Next: "progressor template list " + ns}
	case progressorv1.ErrorDetail_REASON_PROCESS_STATUS, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS,
		progressorv1.ErrorDetail_REASON_NOT_CANCELLABLE:
		next := "progressor run get " + ns + " " + id
		if strings.Contains(err.Error(), "token") {
			next = "progressor run waits " + ns + " --run " + id
		}
		return &cli.Advised{Err: err, Next: next}
	default:
		if d.GetField() == "token" {
			next := "--wait-token, which progressor run waits " + ns + " --run " + id + " shows"
			return &cli.Advised{Err: err, Next: next}
		}
		return err
	}
}

// runOutcome returns an error for the exit code of an ended run.
func runOutcome(r *progressorv1.Run) error {
	again := fmt.Sprintf("progressor run retry %s %s", output.ShellWord(r.GetNamespace()),
		output.ShellWord(r.GetRunId()))
	why := ""
	if r.GetFailure().GetReason() == "expression" { // it fails again with the same values
		again = fmt.Sprintf("progressor run repeat %s %s --payload JSON", output.ShellWord(r.GetNamespace()),
			output.ShellWord(r.GetRunId()))
	}
	if r.GetFailure() != nil {
		why = ": " + output.ShowFailure(r.GetFailure())
	}
	switch r.GetStatus() {
	case progressorv1.RunStatus_RUN_STATUS_FAILED:
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New("the run has failed" + why), Next: again}
	case progressorv1.RunStatus_RUN_STATUS_EXPIRED:
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New("the run has expired" + why), Next: again}
	case progressorv1.RunStatus_RUN_STATUS_CANCELLED:
		return &cli.CodedError{Code: cli.ExitTaskFailed, Err: errors.New("the run was cancelled"), Next: again}
	default:
		return nil
	}
}

// runEnded reports whether a run has ended.
func runEnded(r *progressorv1.Run) bool { return r.GetFinishedTime() != nil }

type timed interface {
	IsValid() bool
	AsTime() time.Time
}

// took returns how long something took, from its start to its end, or until now if to is not set.
// It returns "" if from is not set.
func took(from, to timed) string {
	if !from.IsValid() {
		return ""
	}
	end := time.Now()
	if to.IsValid() {
		end = to.AsTime()
	}
	return durations.Rounded(end.Sub(from.AsTime()))
}
