package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type flowGetCmd struct {
	flowArgs
	clientFlags
	endFlags `set:"what=run"`
}

func (flowGetCmd) Help() string {
	return `Get shows a run and its steps. In a graph, each step is below the step that it depends on; a step
with several dependencies is below the last of them, and names the others. Running steps show their
progress, waiting ones what they wait for. With --wait, the command follows the run to its end, on a
terminal with its steps. The exit code is then 5 if the run did not succeed, and 7 if --wait-timeout
has passed.

    progressor run get demo task-1
    progressor run get demo task-1 --wait --wait-timeout 10m
    progressor run get demo task-1 -o json`
}

func (c *flowGetCmd) Run(a *app) error {
	if c.Wait {
		return c.followRun(a, c.clientFlags, c.flowArgs)
	}
	return ofRun(c.flowArgs, ask(a, c.outputFlag, c.client().Flow.GetRun, &progressorv1.GetRunRequest{Namespace: c.NS, RunId: c.ID}, func(resp *progressorv1.GetRunResponse) error {
		return printRun(a, c.clientFlags, resp.GetRun())
	}))
}

// printRun prints a run for people.
func printRun(a *app, flags clientFlags, r *progressorv1.Run) error {
	ctx, cancel := a.request()
	defer cancel()
	if err := printFields(a.Stdout, runFields(r)...); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.Stdout, "\n"+drawSteps(r, templateOf(ctx, flags, r)))
	return err
}

// runProgress returns the progress of a run. A run that ended without success has no bar, which
// would look as if it continued.
func runProgress(r *progressorv1.Run) string {
	if !runEnded(r) || r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		return progressBar(r.GetProgress().GetPercent()) + " " + showProgress(r.GetProgress())
	}
	succeeded := 0
	for _, s := range r.GetSteps() {
		if s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_SUCCEEDED {
			succeeded++
		}
	}
	return fmt.Sprintf("%d of %s succeeded", succeeded, counted(len(r.GetSteps()), "step"))
}

func runFields(r *progressorv1.Run) []field {
	attempt, lease, failure := "", "", ""
	if r.GetAttempt() > 0 {
		attempt = fmt.Sprintf("%d of %d", r.GetAttempt(), max(r.GetMaxAttempts(), 1))
	}
	if r.GetLeaseExpiresTime() != nil {
		lease = "until " + showTime(r.GetLeaseExpiresTime())
	}
	if r.GetFailure() != nil {
		failure = oneLine(showFailure(r.GetFailure()))
	}
	return []field{
		{"run", oneLine(r.GetNamespace() + "/" + r.GetRunId())},
		{"template", fmt.Sprintf("%s, version %d", r.GetTemplateType(), r.GetTemplateVersion())},
		{"status", shortEnum(r.GetStatus())},
		{"phase", r.GetPhase()},
		{"blocked on", oneLine(r.GetBlockedOn())},
		{"progress", oneLine(runProgress(r))},
		{"attempt", attempt},
		{"scope", oneLine(strings.TrimSpace(r.GetScope() + " " + r.GetScopeId()))},
		{"worker", oneLine(r.GetWorkerId())},
		{"lease", lease},
		{"payload", showMessage(r.GetPayload(), cellLimit)},
		{"result", showMessage(r.GetResult(), 0)},
		{"failure", failure},
		{"metadata", showMessage(r.GetMetadata(), 0)},
		{"created", showTime(r.GetCreatedTime())},
		{"not before", showTime(r.GetRunTime())},
		{"running since", showTime(r.GetRunningTime())},
		{"finished", showTime(r.GetFinishedTime())},
		{"took", took(r.GetRunningTime(), r.GetFinishedTime())},
		{"cancel requested", showTime(r.GetCancelRequestedTime())},
		{"cancel reason", oneLine(r.GetCancelReason())},
		{"cron", oneLine(r.GetCronId())},
		{"fire time", showTime(r.GetFireTime())},
		{"step of", oneLine(r.GetParentRunId())},
		{"repeats", oneLine(r.GetRepeatOfRunId())},
	}
}

// templateOf returns the template version of a run, or nil if it was deleted; then the steps are
// drawn without it.
func templateOf(ctx context.Context, flags clientFlags, r *progressorv1.Run) *progressorv1.Template {
	resp, err := flags.client().Flow.GetTemplate(ctx, &progressorv1.GetTemplateRequest{Namespace: r.GetNamespace(), Type: r.GetTemplateType(), Version: r.GetTemplateVersion()})
	if err != nil {
		return nil
	}
	return resp.GetTemplate()
}

type flowStepsCmd struct {
	flowArgs
	clientFlags
	Step      string `placeholder:"STEP" help:"Only this step and its items."`
	pageFlags `set:"rows=Steps"`
}

func (flowStepsCmd) Help() string {
	return `Steps lists the steps of a run that have started, were skipped or were cancelled, and the items of
for_each steps, with their action, worker, duration and outcome.

    progressor run steps demo order-7
    progressor run steps demo order-7 --step ship --all
    progressor run steps demo order-7 -o json`
}

func (c *flowStepsCmd) Run(a *app) error {
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListStepsResponse, error) {
		page, err := c.client().Flow.ListSteps(ctx, &progressorv1.ListStepsRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, PageSize: c.PageSize, PageToken: token})
		if err != nil {
			return nil, ofRun(c.flowArgs, err)
		}
		return page, nil
	}, func(all *progressorv1.ListStepsResponse) error {
		var rows []table.Row
		for _, s := range all.GetSteps() {
			rows = append(rows, table.Row{
				stepName(s.GetStepId(), s.Index), shortEnum(s.GetStatus()), s.GetAttempt(), took(s.GetRunningTime(), s.GetFinishedTime()), oneLine(s.GetProcessId()), oneLine(s.GetWorkerId()),
				showMessage(s.GetInput(), traceLimit), showMessage(s.GetResult(), traceLimit), oneLine(stepNote(s)),
			})
		}
		return printRows(a.Stdout, table.Row{"step", "status", "attempt", "took", "done by", "worker", "input", "result", "note"}, rows)
	})
}

// stepName returns the name of a step or an item.
func stepName(id string, index *int32) string {
	if index == nil {
		return id
	}
	return fmt.Sprintf("%s[%d]", id, *index)
}
