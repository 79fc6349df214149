package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

type flowWaitsCmd struct {
	NS    string `arg:"" name:"ns" help:"Namespace."`
	Match string `arg:"" optional:"" name:"filter" help:"Only waits that match, such as 'assignees:sales'. See docs/flows.md."`

	clientFlags
	ID        string `name:"run" placeholder:"RUN" help:"Only of this run."`
	Kind      string `placeholder:"KIND" help:"Only external or human ones."`
	Assignee  string `placeholder:"NAME" help:"Only for this person or group."`
	pageFlags `set:"rows=Waits"`
}

func (flowWaitsCmd) Help() string {
	return `Waits lists the steps of runs that wait for a person or for an outside worker, the soonest due first. A filter compares kind,
template_type, due_time and run_id, and asks with : whether somebody is among the assignees. -o json has the token of each, its input and the schema of
its answer.

    progressor run waits demo
    progressor run waits demo --assignee sales --kind human
    progressor run waits demo 'due_time < "2026-11-30T00:00:00Z"' --all -o json`
}

func (c *flowWaitsCmd) Run(a *app) error {
	filter := ""
	if err := setEnum("--kind", c.Kind, func(k progressorv1.WaitAction_Kind) { filter = "kind = " + shortEnum(k) }); err != nil {
		return err
	}
	if c.ID != "" {
		filter = both(filter, "run_id = "+search.Quote(c.ID, false))
	}
	if c.Assignee != "" {
		filter = both(filter, "assignees:"+search.Quote(c.Assignee, false))
	}
	filter = both(filter, c.Match)
	return printPages(a, c.outputFlag, c.pageFlags, func(ctx context.Context, token string) (*progressorv1.ListOpenWaitsResponse, error) {
		return c.client().Flow.ListOpenWaits(ctx, &progressorv1.ListOpenWaitsRequest{Namespace: c.NS, Filter: filter, PageSize: c.PageSize, PageToken: token})
	}, func(all *progressorv1.ListOpenWaitsResponse) error {
		var rows []table.Row
		for _, w := range all.GetWaits() {
			note := ""
			if w.GetCancelRequested() {
				note = "the run is to end"
			}
			token := ""
			if w.GetKind() == progressorv1.WaitAction_KIND_EXTERNAL {
				token = w.GetToken()
			}
			rows = append(rows, table.Row{
				oneLine(w.GetRunId()), stepName(w.GetStepId(), w.Index), shortEnum(w.GetKind()), showTime(w.GetDueTime()), oneLine(strings.Join(w.GetAssignees(), ", ")), oneLine(w.GetTitle()), token, note,
			})
		}
		return printRows(a.Stdout, table.Row{"run", "step", "kind", "due", "assignees", "title", "token", "note"}, rows)
	})
}

// waitArgs name a step of a run, or an item of it.
type waitArgs struct {
	flowArgs
	Step  string `arg:"" name:"step" help:"Step id."`
	Index *int32 `placeholder:"N" help:"Item of a step that is run for each, from 0."`
}

type flowCompleteCmd struct {
	waitArgs
	clientFlags
	Token     string `placeholder:"TOKEN" help:"Token of the wait, which an external one needs; run waits has it."`
	Result    string `xor:"outcome" placeholder:"JSON|@FILE|@-" help:"The step succeeded: its result."`
	Failure   string `xor:"outcome" placeholder:"REASON" help:"The step failed: why, in a word; --message says more."`
	Cancelled bool   `xor:"outcome" help:"It has stopped, as the cancel of the run asks."`
	Message   string `placeholder:"TEXT" help:"Of --failure: what has happened."`
	WorkerID  string `placeholder:"NAME" help:"Who did it."`
}

func (flowCompleteCmd) Help() string {
	return `Complete answers a wait: with the result of the step, which is checked against the schema of the template, with a failure, or with the
acknowledgement of a cancel. A wait for a person needs no token.

    progressor run complete demo order-7 approve --result '{"approved": true}' --worker-id ann
    progressor run complete demo doc-1 translate --token 0192f7c0… --result @text.json
    progressor run complete demo doc-1 translate --token 0192f7c0… --failure no_translator --message 'nobody speaks it'`
}

func (c *flowCompleteCmd) Run(a *app) error {
	req := &progressorv1.CompleteStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index, Token: c.Token, WorkerId: c.WorkerID}
	switch {
	case c.Message != "" && c.Failure == "":
		return usageError(errors.New("--message is of --failure: give it too"))
	case c.Result != "":
		v, err := a.jsonValue("--result", c.Result)
		if err != nil {
			return err
		}
		req.Outcome = &progressorv1.CompleteStepRequest_Result{Result: v}
	case c.Failure != "":
		req.Outcome = &progressorv1.CompleteStepRequest_Failure{Failure: &progressorv1.Failure{Reason: c.Failure, Message: c.Message}}
	case c.Cancelled:
		req.Outcome = &progressorv1.CompleteStepRequest_Cancelled{Cancelled: &progressorv1.Cancelled{}}
	default:
		return usageError(fmt.Errorf("want one of --result, --failure and --cancelled, as in: progressor run complete %s %s %s --result null", shellWord(c.NS), shellWord(c.ID), c.Step))
	}
	return ofRun(c.flowArgs, ask(a, c.outputFlag, c.client().Flow.CompleteStep, req, func(resp *progressorv1.CompleteStepResponse) error {
		return printRun(a, c.clientFlags, resp.GetRun())
	}))
}

type flowReportCmd struct {
	waitArgs
	clientFlags
	Token   string         `placeholder:"TOKEN" help:"Token of the wait, which an external one needs; run waits has it."`
	Percent *float64       `placeholder:"0..100" help:"How far it is."`
	Summary string         `placeholder:"TEXT" help:"What it is at, in a few words."`
	Due     *time.Duration `placeholder:"DURATION" help:"It is due so long from now."`
}

func (flowReportCmd) Help() string {
	return `Report tells how far a wait is, and moves its due time. The directive of the answer says whether to go on: CONTINUE, or CANCEL.

    progressor run report demo doc-1 translate --token 0192f7c0… --percent 40 --summary 'page 4 of 10' --due 1h`
}

func (c *flowReportCmd) Run(a *app) error {
	req := &progressorv1.ReportStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index, Token: c.Token}
	if c.Percent != nil || c.Summary != "" {
		req.Progress = &progressorv1.Progress{Summary: c.Summary}
		if c.Percent != nil {
			req.Progress.Percent = *c.Percent
		}
	}
	if c.Due != nil {
		req.Due = durationpb.New(*c.Due)
	}
	return ofRun(c.flowArgs, ask(a, c.outputFlag, c.client().Flow.ReportStep, req, func(resp *progressorv1.ReportStepResponse) error {
		d := resp.GetDirective()
		return printFields(a.Stdout, field{"step", oneLine(c.NS + "/" + c.ID + " " + c.Step)}, field{"directive", shortEnum(d.GetDirective())}, field{"cancel reason", oneLine(d.GetCancelReason())})
	}))
}

type flowSkipCmd struct {
	waitArgs
	clientFlags
	Result string `placeholder:"JSON|@FILE|@-" help:"In place of the step's own result. Default: null."`
	Reason string `placeholder:"TEXT" help:"Why: kept with the step."`
}

func (flowSkipCmd) Help() string {
	return `Skip ends a step by hand that has not ended. Those that depend on it go on as if it had succeeded; what does it is asked to end.

    progressor run skip demo order-7 approve --reason 'the boss has called'
    progressor run skip demo order-7 ship --index 3 --result '{"tracking": "none"}'`
}

func (c *flowSkipCmd) Run(a *app) error {
	req := &progressorv1.SkipStepRequest{Namespace: c.NS, RunId: c.ID, StepId: c.Step, Index: c.Index, Reason: c.Reason}
	var err error
	if req.Result, err = a.jsonValue("--result", c.Result); err != nil {
		return err
	}
	return ofRun(c.flowArgs, ask(a, c.outputFlag, c.client().Flow.SkipStep, req, func(resp *progressorv1.SkipStepResponse) error {
		return printRun(a, c.clientFlags, resp.GetRun())
	}))
}
