package flow

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type flowGetCmd struct {
	flowArgs
	cli.ClientFlags
	cli.EndFlags `set:"what=run"`
}

func (flowGetCmd) Help() string {
	return `Get shows a run and its steps. In a graph, each step is below the step that it depends
on; a step with several dependencies is below the last of them, and names the others. Running steps
show their progress, and waiting steps show what they wait for. With --wait, the command follows the
run to its end. On a terminal, it also shows the steps. The exit code is then 5 if the run did not
succeed, and 7 if --wait-timeout has passed.

    progressor run get demo task-1
    progressor run get demo task-1 --wait --wait-timeout 10m
    progressor run get demo task-1 -o json`
}

func (c *flowGetCmd) Run(a *cli.App) error {
	if c.Wait {
		return followRun(a, c.EndFlags, c.ClientFlags, c.flowArgs)
	}
	return ofRun(c.flowArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.GetRun, &progressorv1.GetRunRequest{Namespace: c.NS, RunId: c.ID},
			func(resp *progressorv1.GetRunResponse) error {
				return printRun(a, c.ClientFlags, resp.GetRun())
			}))
}

// printRun prints a run for people.
func printRun(a *cli.App, flags cli.ClientFlags, r *progressorv1.Run) error {
	ctx, cancel := a.Request()
	defer cancel()
	if err := output.PrintFields(a.Stdout, runFields(r)...); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.Stdout, "\n"+drawSteps(output.StyleOf(a.Stdout), r, templateOf(ctx, flags, r)))
	return err
}

// runProgress returns the progress of a run. A run that ended without success has no bar, because a
// bar would look as if the run continued.
func runProgress(r *progressorv1.Run) string {
	if !runEnded(r) || r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_SUCCEEDED {
		return progressBar(r.GetProgress().GetPercent()) + " " + output.ShowProgress(r.GetProgress())
	}
	succeeded := 0
	for _, s := range r.GetSteps() {
		if s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_SUCCEEDED {
			succeeded++
		}
	}
	return fmt.Sprintf("%d of %s succeeded", succeeded, output.Counted(len(r.GetSteps()), "step"))
}

func runFields(r *progressorv1.Run) []output.Field {
	attempt, failure, lease := "", "", output.Phrase(nil)
	if r.GetAttempt() > 0 {
		attempt = fmt.Sprintf("%d of %d", r.GetAttempt(), max(r.GetMaxAttempts(), 1))
	}
	if r.GetLeaseExpiresTime() != nil {
		lease = output.Phrase{"until ", output.Time(r.GetLeaseExpiresTime())}
	}
	if r.GetFailure() != nil {
		failure = output.OneLine(output.ShowFailure(r.GetFailure()))
	}
	return []output.Field{
		{"run", output.OneLine(r.GetNamespace() + "/" + r.GetRunId())},
		{"template", fmt.Sprintf("%s, version %d", r.GetTemplateType(), r.GetTemplateVersion())},
		{"status", output.Enum(r.GetStatus())},
		{"phase", r.GetPhase()},
		{"blocked on", output.Note(r.GetBlockedOn())},
		{"progress", output.OneLine(runProgress(r))},
		{"attempt", attempt},
		{"scope", output.OneLine(strings.TrimSpace(r.GetScope() + " " + r.GetScopeId()))},
		{"worker", output.OneLine(r.GetWorkerId())},
		{"lease", lease},
		{"payload", output.Message(r.GetPayload(), output.CellLimit)},
		{"result", output.Message(r.GetResult(), 0)},
		{"failure", failure},
		{"metadata", output.Message(r.GetMetadata(), 0)},
		{"created", output.Time(r.GetCreatedTime())},
		{"not before", output.Time(r.GetRunTime())},
		{"running since", output.Time(r.GetRunningTime())},
		{"finished", output.Time(r.GetFinishedTime())},
		{"took", took(r.GetRunningTime(), r.GetFinishedTime())},
		{"cancel requested", output.Time(r.GetCancelRequestedTime())},
		{"cancel reason", output.OneLine(r.GetCancelReason())},
		{"cron", output.OneLine(r.GetCronId())},
		{"fire time", output.Time(r.GetFireTime())},
		{"step of", output.OneLine(r.GetParentRunId())},
		{"repeats", output.OneLine(r.GetRepeatOfRunId())},
	}
}

// templateOf returns the template version of a run. It returns nil if the template cannot be read,
// for example because it was deleted. The steps are then drawn without it.
func templateOf(ctx context.Context, flags cli.ClientFlags, r *progressorv1.Run) *progressorv1.Template {
	resp, err := flags.Client().Flow.GetTemplate(ctx,
		&progressorv1.GetTemplateRequest{Namespace: r.GetNamespace(), Type: r.GetTemplateType(),
			Version: r.GetTemplateVersion()})
	if err != nil {
		return nil
	}
	return resp.GetTemplate()
}

type flowStepsCmd struct {
	flowArgs
	cli.ClientFlags
	Step          string `placeholder:"STEP" help:"Only this step and its items."`
	cli.PageFlags `set:"rows=steps"`
}

func (flowStepsCmd) Help() string {
	return `Steps lists the steps of a run that have started, were skipped or were cancelled, and the items of
for_each steps, with their action, worker, duration and outcome.

    progressor run steps demo order-7
    progressor run steps demo order-7 --step ship --all
    progressor run steps demo order-7 -o json`
}

func (c *flowStepsCmd) Run(a *cli.App) error {
	return ofRun(c.flowArgs, cli.PrintPages(a, c, c.Client().Flow.ListSteps,
		&progressorv1.ListStepsRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step},
		func(all *progressorv1.ListStepsResponse) error {
			var rows []table.Row
			for _, s := range all.GetSteps() {
				rows = append(rows, table.Row{
					output.StepName(s.GetStepId(), s.Index), output.Enum(s.GetStatus()), s.GetAttempt(),
					took(s.GetRunningTime(), s.GetFinishedTime()), output.OneLine(s.GetProcessId()),
					output.OneLine(s.GetWorkerId()),
					output.Message(s.GetInput(), output.TraceLimit), output.Message(s.GetResult(), output.TraceLimit),
					output.OneLine(stepNote(s)),
				})
			}
			return output.PrintRows(a.Stdout,
				table.Row{"step", "status", "attempt", "took", "done by", "worker", "input", "result", "note"}, rows)
		}))
}
