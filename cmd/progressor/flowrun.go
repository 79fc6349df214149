package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

type flowCmd struct {
	Start    flowStartCmd    `cmd:"" help:"Start a run of a template."`
	Get      flowGetCmd      `cmd:"" help:"Show a run, its steps as a tree; wait for its end."`
	List     flowListCmd     `cmd:"" help:"List the runs of a namespace."`
	Steps    flowStepsCmd    `cmd:"" help:"List the steps of a run and the items of each."`
	Watch    flowWatchCmd    `cmd:"" help:"Show a run as it goes on, to its end."`
	Cancel   flowCancelCmd   `cmd:"" help:"Ask a run to end; one that waits is cancelled at once."`
	Retry    flowRetryCmd    `cmd:"" help:"Take a run up again that failed, expired or was cancelled."`
	Repeat   flowRepeatCmd   `cmd:"" help:"Start a new run with the payload of an old one."`
	Skip     flowSkipCmd     `cmd:"" help:"End a step by hand, with a result in place of its own."`
	Waits    flowWaitsCmd    `cmd:"" help:"List what waits for a person, or for an outside worker."`
	Complete flowCompleteCmd `cmd:"" help:"Answer a wait."`
	Report   flowReportCmd   `cmd:"" help:"Tell the progress of a wait, and move its due time."`
}

// flowArgs name a run.
type flowArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" help:"Run id."`
}

type flowStartCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Type string `arg:"" name:"type" help:"Type of the template."`

	clientFlags
	ID             string `name:"id" placeholder:"ID" help:"Run id; the engine chooses one where it is missing."`
	Version        int32  `placeholder:"N" help:"Version of the template. Default: the newest."`
	Payload        string `placeholder:"JSON|@FILE|@-" help:"Payload of the run: JSON, @FILE, or @- for standard input."`
	Scope          string `placeholder:"TEXT" help:"Whom it is for: user, account, system, …"`
	ScopeID        string `placeholder:"TEXT" help:"Which one of these."`
	RunTime        string `placeholder:"TIME|DURATION" help:"Not before this time, or so long from now."`
	IdempotencyKey string `short:"k" placeholder:"KEY" help:"The same request with the same key starts no second run. Default: a random one where there is no --id."`
	Metadata       string `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	ValidateOnly   bool   `help:"Check the payload and the scope, and store nothing."`
	endFlags       `set:"what=run"`
}

func (flowStartCmd) Help() string {
	return `Start stores a run, which begins at once, at --run-time, or when the runs of the same scope let it. Where the template answers with a
run that is there, it is shown, and "started" says no. With --wait it follows the run to its end, on a terminal with its steps; it ends with code 5
where the run has not succeeded, 7 where --wait-timeout is over.

    progressor run start demo order --payload '{"order": "A-7", "total": 120}'
    progressor run start demo demo_long_task --id task-1 --scope user --scope-id 42 --payload '{"target": "x"}' --wait
    progressor run start demo order --payload @order.json --validate-only`
}

func (c *flowStartCmd) Run(a *app) error {
	req := &progressorv1.StartRunRequest{
		Namespace: c.NS, RunId: c.ID, Type: c.Type, Version: c.Version, Scope: c.Scope, ScopeId: c.ScopeID, IdempotencyKey: c.IdempotencyKey, ValidateOnly: c.ValidateOnly,
	}
	var err error
	if req.Payload, err = a.jsonValue("--payload", c.Payload); err != nil {
		return err
	}
	if req.RunTime, err = timeFrom("--run-time", c.RunTime); err != nil {
		return err
	}
	if req.Metadata, err = a.metadata(c.Metadata); err != nil {
		return err
	}
	ctx, cancel := a.request()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, c.ID == "" && !c.ValidateOnly)
	req.IdempotencyKey = sent.key
	resp, err := c.client().Flow.StartRun(ctx, req)
	if err != nil {
		return sent.explain(ofTemplate(templateArgs{c.NS, c.Type}, ofRun(flowArgs{c.NS, c.ID}, err)), named("progressor run get", c.NS, c.ID))
	}
	r := resp.GetRun()
	switch {
	case c.Wait && !c.ValidateOnly:
		return c.followRun(a, c.clientFlags, flowArgs{c.NS, r.GetRunId()})
	case c.json():
		return printMessage(a.Stdout, resp)
	}
	started := ""
	switch {
	case c.ValidateOnly && r.GetCreatedTime() == nil:
		started = "no: it would be"
	case c.ValidateOnly:
		started = "no: this one is there"
	case !resp.GetStarted():
		started = "no: this one was there"
	}
	name := r.GetNamespace() + "/" + r.GetRunId()
	if r.GetRunId() == "" { // it gets one when it is started
		name = "a new one in " + r.GetNamespace()
	}
	return printFields(a.Stdout,
		field{"run", oneLine(name)},
		field{"template", fmt.Sprintf("%s, version %d", r.GetTemplateType(), r.GetTemplateVersion())},
		field{"status", shortEnum(r.GetStatus())},
		field{"blocked on", oneLine(r.GetBlockedOn())},
		field{"started", started},
	)
}

type flowListCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only runs that match, such as 'status = FAILED'. See docs/flows.md."`

	clientFlags
	Status    string `placeholder:"STATUS" help:"Only runs in this status: pending, queued, running, waiting_worker, cancel_requested, compensating, succeeded, failed, cancelled or expired."`
	Type      string `placeholder:"TYPE" help:"Only runs of this template."`
	ScopeID   string `placeholder:"TEXT" help:"Only runs of this scope_id."`
	OrderBy   string `placeholder:"ORDER" help:"created_time desc, created_time, updated_time or updated_time desc. Default: created_time desc."`
	pageFlags `set:"rows=Runs"`
}

func (flowListCmd) Help() string {
	return `List shows the runs of a namespace, newest first, a page at a time. A filter compares status, template_type, scope, scope_id, phase,
cron_id, created_time, payload.KEY and metadata.KEY with = != < <= > >=; * at the end of a text stands for anything.

    progressor run list demo
    progressor run list demo --status failed --type order
    progressor run list demo 'status = RUNNING AND phase = execute'
    progressor run list demo 'payload.target = "x" OR metadata.team = "billing"' --order-by updated_time --all -o json`
}

func (c *flowListCmd) Run(a *app) error {
	filter := ""
	if err := setEnum("--status", c.Status, func(s progressorv1.RunStatus) { filter = "status = " + shortEnum(s) }); err != nil {
		return err
	}
	if c.Type != "" {
		filter = both(filter, "template_type = "+search.Quote(c.Type, false))
	}
	if c.ScopeID != "" {
		filter = both(filter, "scope_id = "+search.Quote(c.ScopeID, false))
	}
	filter = both(filter, c.Match)
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListRunsResponse, error) {
		return c.client().Flow.ListRuns(ctx, &progressorv1.ListRunsRequest{
			Namespace: c.NS, Filter: filter, OrderBy: c.OrderBy, PageSize: c.PageSize, PageToken: token,
		})
	}, func(all *progressorv1.ListRunsResponse) error {
		var rows []table.Row
		for _, r := range all.GetRuns() {
			rows = append(rows, table.Row{
				oneLine(r.GetRunId()), r.GetTemplateType(), shortEnum(r.GetStatus()), r.GetPhase(), fmt.Sprintf("%.0f %%", r.GetProgress().GetPercent()), showTime(r.GetCreatedTime()),
				took(runSince(r), r.GetFinishedTime()), oneLine(runNote(r)),
			})
		}
		return printRows(a.Stdout, table.Row{"run", "template", "status", "phase", "progress", "created", "took", "note"}, rows)
	})
}

// runNote is the one thing that is to be said of a run in a list.
func runNote(r *progressorv1.Run) string {
	switch {
	case r.GetFailure() != nil:
		return showFailure(r.GetFailure())
	case r.GetBlockedOn() != "":
		return r.GetBlockedOn()
	case r.GetCancelReason() != "":
		return r.GetCancelReason()
	}
	return r.GetProgress().GetSummary()
}

type flowCancelCmd struct {
	flowArgs
	clientFlags
	Reason string `placeholder:"TEXT" help:"Why: kept with the run, and told to its workers."`
	Force  bool   `help:"End the run now: wait for nothing, and compensate nothing more."`
}

func (flowCancelCmd) Help() string {
	return `Cancel ends a run at once that waits for its turn or for a worker. Steps that run are told, and those that may not be cancelled end first;
past the grace of the template the engine ends the run. Then what was done is undone, where the template says how.

    progressor run cancel demo task-1 --reason 'the customer went away'

With --force, the run ends now, in any status before its end and also if its template does not support cancelling. What is
open is asked to end, the run does not wait for it, and nothing more is compensated. Use it for a run that nothing else ends.`
}

func (c *flowCancelCmd) Run(a *app) error {
	return ofRun(c.flowArgs, ask(a, c.outputFlag, c.client().Flow.CancelRun, &progressorv1.CancelRunRequest{
		Namespace: c.NS, RunId: c.ID, Reason: c.Reason, Force: c.Force,
	}, func(resp *progressorv1.CancelRunResponse) error {
		return printRun(a, c.clientFlags, resp.GetRun())
	}))
}

type flowRetryCmd struct {
	flowArgs
	clientFlags
	NewestVersion bool `help:"Go on with the newest version of the template."`
	endFlags      `set:"what=run"`
}

func (flowRetryCmd) Help() string {
	return `Retry takes a run up again that is FAILED, CANCELLED or EXPIRED, at the steps that did not succeed, with all its attempts; what succeeded
keeps its result. With --newest-version it goes on by the newest version, which must have the steps that succeeded.

    progressor run retry demo task-1
    progressor run retry demo task-1 --newest-version --wait`
}

func (c *flowRetryCmd) Run(a *app) error {
	ctx, cancel := a.request()
	defer cancel()
	resp, err := c.client().Flow.RetryRun(ctx, &progressorv1.RetryRunRequest{Namespace: c.NS, RunId: c.ID, NewestVersion: c.NewestVersion})
	switch {
	case err != nil:
		return ofRun(c.flowArgs, err)
	case c.Wait:
		return c.followRun(a, c.clientFlags, c.flowArgs)
	case c.json():
		return printMessage(a.Stdout, resp)
	}
	return printRun(a, c.clientFlags, resp.GetRun())
}

type flowRepeatCmd struct {
	flowArgs
	clientFlags
	IdempotencyKey string `short:"k" placeholder:"KEY" help:"The same request with the same key starts no second run. Default: a random one."`
	endFlags       `set:"what=run"`
}

func (flowRepeatCmd) Help() string {
	return `Repeat starts a new run with the payload, the scope and the metadata of an old one, by the newest version of its template. It is refused where
the template is not repeatable.

    progressor run repeat demo task-1
    progressor run repeat demo task-1 --wait`
}

func (c *flowRepeatCmd) Run(a *app) error {
	ctx, cancel := a.request()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, true)
	resp, err := c.client().Flow.RepeatRun(ctx, &progressorv1.RepeatRunRequest{Namespace: c.NS, RunId: c.ID, IdempotencyKey: sent.key})
	switch {
	case err != nil:
		return sent.explain(ofRun(c.flowArgs, err), "")
	case c.Wait:
		return c.followRun(a, c.clientFlags, flowArgs{c.NS, resp.GetRun().GetRunId()})
	case c.json():
		return printMessage(a.Stdout, resp)
	}
	return printRun(a, c.clientFlags, resp.GetRun())
}

// ofRun says what to do about an error that is of a run, and not of the process that it is.
func ofRun(run flowArgs, err error) error {
	ns, id := shellWord(run.NS), shellWord(run.ID)
	d := client.Detail(err)
	switch d.GetReason() {
	case progressorv1.ErrorDetail_REASON_SAME_SCOPE:
		return &advised{error: err, next: "progressor run get " + ns + " " + shellWord(d.GetProcessId())}
	case progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND:
		return &advised{error: err, next: "progressor run list " + ns}
	case progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND:
		return &advised{error: err, next: "progressor run steps " + ns + " " + id}
	case progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED:
		return &advised{error: err, next: "progressor template list " + ns}
	case progressorv1.ErrorDetail_REASON_PROCESS_STATUS, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, progressorv1.ErrorDetail_REASON_NOT_CANCELLABLE:
		next := "progressor run get " + ns + " " + id
		if strings.Contains(err.Error(), "token") {
			next = "progressor run waits " + ns + " --run " + id
		}
		return &advised{error: err, next: next}
	default:
		if d.GetField() == "token" {
			return &advised{error: err, next: "--token, which progressor run waits " + ns + " --run " + id + " shows"}
		}
		return err
	}
}

// runOutcome is the error that says how a run ended, for the exit code.
func runOutcome(r *progressorv1.Run) error {
	again := fmt.Sprintf("progressor run retry %s %s", shellWord(r.GetNamespace()), shellWord(r.GetRunId()))
	why := ""
	if r.GetFailure() != nil {
		why = ": " + showFailure(r.GetFailure())
	}
	switch r.GetStatus() {
	case progressorv1.RunStatus_RUN_STATUS_FAILED:
		return &codedError{code: exitTaskFailed, err: errors.New("the run has failed" + why), next: again}
	case progressorv1.RunStatus_RUN_STATUS_EXPIRED:
		return &codedError{code: exitTaskFailed, err: errors.New("the run has expired" + why), next: again}
	case progressorv1.RunStatus_RUN_STATUS_CANCELLED:
		return &codedError{code: exitTaskFailed, err: errors.New("the run was cancelled"), next: again}
	default:
		return nil
	}
}

// runEnded tells whether a run is at its end.
func runEnded(r *progressorv1.Run) bool { return r.GetFinishedTime() != nil }

type timed interface {
	IsValid() bool
	AsTime() time.Time
}

// took is how long something took, or takes until now; "": it has not begun.
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
