package flow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

type flowWaitsCmd struct {
	NS    string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`
	Match string `arg:"" optional:"" name:"filter" help:"Only waits that match, such as 'assignees:sales'. See docs/flows.md."`

	cli.ClientFlags
	ID            string `name:"run" placeholder:"RUN" complete:"run" help:"Only waits of this run."`
	Kind          string `placeholder:"KIND" complete:"external,human" help:"Only waits of this kind: external or human."`
	Assignee      string `placeholder:"NAME" help:"Only waits for this person or group."`
	Answerable    bool   `help:"Only waits that you may complete: you are an assignee, or may operate the namespace."`
	cli.PageFlags `set:"rows=waits"`
}

func (flowWaitsCmd) Help() string {
	return `Waits lists steps that wait for a person or an external worker, earliest due time first. A filter
compares kind, template_type, due_time and run_id; assignees:NAME matches an assignee. -o json
includes the token, the input and the result schema of each.

    progressor run waits demo
    progressor run waits demo --assignee sales --kind human
    progressor run waits --answerable
    progressor run waits demo 'due_time < "2026-11-30T00:00:00Z"' --all -o json`
}

func (c *flowWaitsCmd) Run(a *cli.App) error {
	filter := ""
	if err := cli.SetEnum("--kind", c.Kind,
		func(k progressorv1.WaitAction_Kind) { filter = "kind = " + output.Enum(k) }); err != nil {
		return err
	}
	if c.ID != "" {
		filter = cli.Both(filter, "run_id = "+search.Quote(c.ID, false))
	}
	if c.Assignee != "" {
		filter = cli.Both(filter, "assignees:"+search.Quote(c.Assignee, false))
	}
	filter = cli.Both(filter, c.Match)
	return cli.PrintPages(a, c, c.Client().Flow.ListOpenWaits,
		&progressorv1.ListOpenWaitsRequest{Namespace: c.NS, Filter: filter, Answerable: c.Answerable},
		func(all *progressorv1.ListOpenWaitsResponse) error {
			var rows []table.Row
			for _, w := range all.GetWaits() {
				note := ""
				switch {
				case w.GetCancelRequested():
					note = "cancel requested"
				case w.GetWorkerId() != "":
					note = "taken by " + output.OneLine(w.GetWorkerId())
				}
				run := output.OneLine(w.GetRunId())
				if c.NS == "" {
					run = w.GetNamespace() + "/" + run
				}
				token := ""
				if w.GetKind() == progressorv1.WaitAction_KIND_EXTERNAL {
					token = w.GetToken()
				}
				rows = append(rows, table.Row{
					run, output.StepName(w.GetStepId(), w.Index), output.Enum(w.GetKind()),
					output.Time(w.GetDueTime()), output.OneLine(strings.Join(w.GetAssignees(), ", ")),
					output.OneLine(w.GetTitle()), token, note,
				})
			}
			return output.PrintList(a.Stdout, cli.None("open waits", c.NS, filter != "" || c.Answerable, ""),
				table.Row{"run", "step", "kind", "due", "assignees", "title", "token", "note"}, rows)
		})
}

// waitArgs identify a step of a run, or an item of it.
type waitArgs struct {
	flowArgs
	Step  string `arg:"" name:"step" help:"Step id."`
	Index *int32 `placeholder:"N" help:"Item of a for_each step, from 0."`
}

type flowCompleteCmd struct {
	waitArgs
	cli.ClientFlags
	Token     string `field:"token" name:"wait-token" placeholder:"TOKEN" help:"Token of a wait for an external worker; run waits shows it."`
	Result    string `xor:"outcome" placeholder:"JSON|@FILE|@-" help:"Result of the step, which has succeeded."`
	Failure   string `field:"failure.reason" xor:"outcome" placeholder:"REASON" help:"Reason why the step failed, an identifier; --message adds details."`
	Cancelled bool   `xor:"outcome" help:"The step has stopped, as requested by the cancel of the run."`
	Message   string `field:"failure.message" placeholder:"TEXT" help:"Message of --failure."`
	WorkerID  string `placeholder:"NAME" help:"Who completed it."`
}

func (flowCompleteCmd) Help() string {
	return `Complete completes a wait with a result, which is checked against the schema of the template, with a
failure, or by confirming a cancel. A wait for a person needs no token.

    progressor run complete demo order-7 approve --result '{"approved": true}' --worker-id ann
    progressor run complete demo doc-1 translate --wait-token 0192f7c0… --result @text.json
    progressor run complete demo doc-1 translate --wait-token 0192f7c0… --failure no_translator`
}

func (c *flowCompleteCmd) Run(a *cli.App) error {
	req := &progressorv1.CompleteStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index,
		Token: c.Token, WorkerId: c.WorkerID}
	switch {
	case c.Message != "" && c.Failure == "":
		return cli.UsageError(errors.New("--message requires --failure"))
	case c.Result != "":
		v, err := a.JSONValue("--result", c.Result)
		if err != nil {
			return err
		}
		req.Outcome = &progressorv1.CompleteStepRequest_Result{Result: v}
	case c.Failure != "":
		req.Outcome = &progressorv1.CompleteStepRequest_Failure{
			Failure: &progressorv1.Failure{Reason: c.Failure, Message: c.Message}}
	case c.Cancelled:
		req.Outcome = &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}}
	default:
		return cli.UsageError(
			fmt.Errorf("set one of --result, --failure and --cancelled, for example: progressor run complete %s %s "+
				"%s --result null", output.ShellWord(c.NS), output.ShellWord(c.ID), c.Step))
	}
	return ofRun(c.flowArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.CompleteStep, req,
			func(resp *progressorv1.CompleteStepResponse) error {
				return printRun(a, c.ClientFlags, resp.GetRun())
			}))
}

type flowReportCmd struct {
	waitArgs
	cli.ClientFlags
	Token   string         `field:"token" name:"wait-token" placeholder:"TOKEN" help:"Token of a wait for an external worker; run waits shows it."`
	Percent *float64       `field:"progress.percent" placeholder:"0..100" help:"Progress in percent."`
	Summary string         `field:"progress.summary" placeholder:"TEXT" help:"Summary of the progress."`
	Due     *time.Duration `placeholder:"DURATION" help:"New due time, as a duration from now."`
	Worker  *string        `name:"worker-id" placeholder:"NAME" help:"Who works on the step, as lists show it. An empty name clears it."`
}

func (flowReportCmd) Help() string {
	return `Report reports the progress of a wait, changes its due time, and says who works on it. The
directive in the response is CONTINUE or CANCEL.

    progressor run report demo doc-1 translate --wait-token 0192f7c0… --percent 40 --summary 'page 4 of 10' --due 1h
    progressor run report demo order-7 approve --worker-id ann`
}

func (c *flowReportCmd) Run(a *cli.App) error {
	req := &progressorv1.ReportStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index, Token: c.Token,
		WorkerId: c.Worker}
	if c.Percent != nil || c.Summary != "" {
		req.Progress = &progressorv1.Progress{Summary: c.Summary}
		if c.Percent != nil {
			req.Progress.Percent = *c.Percent
		}
	}
	if c.Due != nil {
		req.Due = durationpb.New(*c.Due)
	}
	return ofRun(c.flowArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.ReportStep, req, func(resp *progressorv1.ReportStepResponse) error {
			d := resp.GetDirective()
			return output.PrintFields(a.Stdout, output.Field{"step", output.OneLine(c.NS + "/" + c.ID + " " + c.Step)},
				output.Field{"directive", output.Enum(d.GetDirective())},
				output.Field{"cancel reason", output.OneLine(d.GetCancelReason())})
		}))
}

type flowSkipCmd struct {
	waitArgs
	cli.ClientFlags
	Result string `placeholder:"JSON|@FILE|@-" help:"Result of the step. Default: null."`
	Reason string `placeholder:"TEXT" help:"Reason, stored with the step."`
}

func (flowSkipCmd) Help() string {
	return `Skip ends a step that has not ended. Steps that depend on it continue as if it had succeeded. Its
job, process or run is asked to end.

    progressor run skip demo order-7 approve --reason 'approved by phone'
    progressor run skip demo order-7 ship --index 3 --result '{"tracking": "none"}'`
}

func (c *flowSkipCmd) Run(a *cli.App) error {
	req := &progressorv1.SkipStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index, Reason: c.Reason}
	var err error
	if req.Result, err = a.JSONValue("--result", c.Result); err != nil {
		return err
	}
	return ofRun(c.flowArgs,
		cli.Ask(a, c.OutputFlag, c.Client().Flow.SkipStep, req, func(resp *progressorv1.SkipStepResponse) error {
			return printRun(a, c.ClientFlags, resp.GetRun())
		}))
}
