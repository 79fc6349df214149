package flows

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// Reasons of failures that flows create.
const (
	reasonNotStarted = "not_started"
	reasonExpression = "expression"
	reasonTooLarge   = "result_too_large"
	reasonCancelled  = "cancelled"
	reasonRun        = "run_failed"
)

// childEnd is the end of a job, a process or a run that a step has started.
type childEnd struct {
	*progressorv1.ChildEnd
	args    []byte
	attempt attemptFacts // facts about the last attempt of a job, or zero
}

// notified handles a NOTIFY task. It contains a command of a cron, a process or another run, or it
// reports the ends of children of steps.
func (t *task) notified() error {
	batch, err := t.ChildEnds()
	if err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	var children []childEnd
	for _, end := range batch {
		children = append(children, childEnd{&progressorv1.ChildEnd{
			Namespace: end.Namespace, ProcessId: end.ProcessID, Response: end.Response,
			Status: progressorv1.ProcessStatus(progressorv1.ProcessStatus_value[end.Status]),
		}, end.Args, attemptFacts{end.WorkerID, end.RunningTime, true}})
	}
	if child := t.Request.GetChild(); len(batch) == 0 && child != nil {
		children = append(children, childEnd{child, t.Request.GetArgs(), attemptFacts{}})
	}
	if len(children) == 0 {
		return t.execute()
	}
	return t.childrenEnded(children)
}

// childrenEnded handles the ends of children of steps.
func (t *task) childrenEnded(children []childEnd) error {
	var inputs []flow.Input
	var ended []childEnd // the ends that inputs contains
	for _, child := range children {
		o, err := t.outcome(&child)
		switch {
		case err != nil:
			return err
		case o.Round == t.state.Run.Round:
			inputs, ended = append(inputs, flow.Input{Kind: flow.InputEnd, Outcome: o}), append(ended, child)
		default: // the end of an earlier attempt
			t.cancelLateJob(&child, &o)
		}
	}
	if err := t.decide(inputs...); err != nil {
		return err
	}
	for n := range inputs {
		o := &inputs[n].Outcome
		switch {
		case !t.decision.Known[n]: // the step has already ended (for example by a skip), or the message is a duplicate
			t.cancelLateJob(&ended[n], o)
		case t.isFailedJob(&ended[n], o):
			t.failed = append(t.failed, failedJob{o.Step, keyOfChild(ended[n].ChildEnd)})
		}
	}
	return nil
}

// outcome returns how the child of a step ended. It reads from the database what the message does
// not contain. For a child of an earlier attempt, it returns only the origin.
func (t *task) outcome(child *childEnd) (flow.Outcome, error) {
	var from origin
	if err := json.Unmarshal(child.args, &from); err != nil || from.Step < 0 || from.Step >= len(t.template.Steps) {
		return flow.Outcome{}, processor.Reject(processor.ReasonBadArgs,
			"a run accepts messages only from its own steps")
	}
	p := stepRef{from.Step, from.Index}
	o := flow.Outcome{Step: p.step, Index: p.index, Round: from.Round, Undo: from.Undo}
	if from.Round != t.state.Run.Round {
		return o, nil
	}
	end, status, err := t.endOf(p, child.ChildEnd, from.Undo)
	if err != nil {
		return o, err
	}
	o.Status, o.WorkerLost = status, end.Failure.GetReason() == process.ReasonLeaseLost
	if from.Undo {
		o.Reason = cmp.Or(end.Reason, end.Failure.GetMessage(), end.Failure.GetReason())
	} else {
		o.End = end
		if err := t.setAttempt(p, child); err != nil {
			return o, err
		}
	}
	if status == flow.Cancelled && t.state.Run.StatusOf(p.step) == flow.Running {
		err = t.cancelEvent(p, child.ChildEnd)
	}
	return o, err
}

// endOf converts the end of a child to the end of its step, and returns the status of the step.
func (t *task) endOf(p stepRef, child *progressorv1.ChildEnd, undo bool) (*flow.End, flow.StepStatus, error) {
	action := t.template.Steps[p.step].Action
	if undo {
		action = flow.ActionJob
	}
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		if action == flow.ActionRun {
			return t.runEnd(child)
		}
		return &flow.End{Result: resultOf(child.GetResponse())}, flow.Succeeded, nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		reason := cmp.Or(child.GetDetail(), "it was cancelled")
		if t.state.Run.Cause != flow.NoCause && child.GetDetail() == "" { // the run has requested the cancellation
			var err error
			if reason, err = t.endReason(); err != nil {
				return nil, 0, err
			}
		}
		return &flow.End{Reason: reason}, flow.Cancelled, nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
		failure, err := t.childFailure(child, action)
		return &flow.End{Failure: failure}, flow.Failed, err
	}
	if action == flow.ActionRun && len(child.GetResponse()) > 0 {
		var a reply
		if err := json.Unmarshal(child.GetResponse(), &a); err == nil && a.Outcome != "" {
			return failed(reasonNotStarted, a.Message), flow.Failed, nil
		}
	}
	return failed(reasonNotStarted, cmp.Or(child.GetDetail(), "the process of the step was removed")), flow.Failed, nil
}

func failed(reason, message string) *flow.End {
	return &flow.End{Failure: &progressorv1.Failure{Reason: reason, Message: wire.Plain(message)}}
}

// failureOf returns the failure of a step or an item, or nil if it did not fail.
func failureOf(end *flow.End) *progressorv1.Failure {
	if end.Err == nil {
		return end.Failure
	}
	reason := reasonExpression
	if _, large := errors.AsType[*flow.SizeError](end.Err); large {
		reason = reasonTooLarge
	}
	return failed(reason, end.Err.Error()).Failure
}

// runEnd returns the end of a step whose child is a run.
func (t *task) runEnd(child *progressorv1.ChildEnd) (*flow.End, flow.StepStatus, error) {
	var o reply
	if err := json.Unmarshal(child.GetResponse(), &o); err != nil {
		return failed(reasonRun, "the run returned no outcome"), flow.Failed, nil //nolint:nilerr // in the failure
	}
	if o.InRow {
		row, err := flows.Get(t.Ctx, t.flows.store, child.GetNamespace(),
			child.GetProcessId()[len(process.FlowPrefix):])
		switch {
		case errors.Is(err, process.ErrRunNotFound):
			return failed(reasonRun, "its run was removed before its result was read"), flow.Failed, nil
		case err != nil:
			return nil, 0, readError(err)
		}
		o.Result, o.Failure = row.Result, row.Failure
	}
	switch o.Status {
	case succeeded:
		return &flow.End{Result: o.Result}, flow.Succeeded, nil
	case string(flow.ByCancel):
		return &flow.End{Reason: "its run was cancelled"}, flow.Cancelled, nil
	}
	failure, err := wire.Failure(o.Failure)
	if err != nil || failure == nil {
		failure = &progressorv1.Failure{Reason: reasonRun, Message: "its run is " + o.Status}
	}
	return &flow.End{Failure: failure}, flow.Failed, nil
}

// resultOf converts the response of a job or a process to a JSON value. JSON is kept, other text
// becomes a string, and binary data becomes a base64 string.
func resultOf(response []byte) []byte {
	switch {
	case len(response) == 0:
		return nil
	case json.Valid(response):
		return response
	case utf8.Valid(response):
		text, _ := encode(wire.Plain(string(response))) // cannot fail: a string
		return text
	}
	text, _ := json.Marshal(base64.StdEncoding.EncodeToString(response)) // cannot fail: a string
	return text
}

// childFailure reads the failure of a job or a process that is in ERROR.
func (t *task) childFailure(
	child *progressorv1.ChildEnd, action flow.Action,
) (failure *progressorv1.Failure, err error) {
	key := keyOfChild(child)
	if action == flow.ActionJob {
		rows, err := jobs.Get(t.Ctx, t.flows.store, key)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 && rows[0] != nil {
			all, _ := wire.JobFailures(rows[0].Failures) // unreadable failures are ignored
			if len(all) > 0 {
				failure, _ = wire.Failure(all[len(all)-1].Failure)
			}
		}
	} else {
		p, err := t.flows.engine.GetProcess(t.Ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
		if err == nil && p.GetCorruptedBy() != 0 {
			var task *progressorv1.Task
			if task, err = t.flows.engine.AwaitTask(t.Ctx, engine.AwaitParams{
				Key: key, TaskID: p.GetCorruptedBy(),
			}); err == nil {
				failure = task.GetFailure()
			}
		}
		if err != nil && !errors.Is(err, process.ErrProcessNotFound) && !errors.Is(err, process.ErrTaskNotFound) {
			return nil, err
		}
	}
	if failure == nil {
		failure = &progressorv1.Failure{Reason: reasonRun, Message: child.GetDetail()}
	}
	return failure, nil
}
