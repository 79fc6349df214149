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

// The reasons of failures that flows create.
const (
	reasonNotStarted = "not_started"
	reasonExpression = "expression"
	reasonTooLarge   = "result_too_large"
	reasonCancelled  = "cancelled"
	reasonRun        = "run_failed"
)

// notified handles the ends of the work of steps, or a command of another run.
func (t *task) notified() error {
	ends, err := t.attempt.ChildEnds()
	if err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	for _, end := range ends {
		child := &progressorv1.ChildEnd{
			Namespace: end.Namespace, ProcessId: end.ProcessID, Response: end.Response,
			Status: progressorv1.ProcessStatus(progressorv1.ProcessStatus_value[end.Status]),
		}
		if err := t.childEnded(end.Args, child, attemptFacts{end.WorkerID, end.RunningTime, true}); err != nil {
			return err
		}
	}
	switch child := t.request.GetChild(); {
	case len(ends) > 0:
		return nil
	case child != nil:
		return t.childEnded(t.request.GetArgs(), child, attemptFacts{})
	}
	return t.carryOut()
}

// childEnded handles the end of the work of a step. attempt contains facts about the last attempt
// of a job, if they are known.
func (t *task) childEnded(args []byte, child *progressorv1.ChildEnd, attempt attemptFacts) error {
	clear(t.values) // earlier ends in this task changed the status of steps
	var by input
	if err := json.Unmarshal(args, &by); err != nil || by.Step < 0 || by.Step >= len(t.template.Steps) {
		return processor.Reject(processor.ReasonBadArgs, "a run accepts messages only from its own steps")
	}
	p := place{by.Step, by.Index}
	job, broke := t.failedWith(p, child, by.Undo)
	if by.Round != t.state.Run.Round {
		if broke {
			t.letGo(job.key, "its run continued without it")
		}
		return nil // of an earlier attempt
	}
	o := flow.Outcome{Step: by.Step, Index: by.Index, Round: by.Round, Undo: by.Undo}
	e, letter, err := t.endOf(p, child, by.Undo)
	if err != nil {
		return err
	}
	if o.Status = letter; by.Undo {
		o.Reason = cmp.Or(e.reason, e.failure.GetMessage(), e.failure.GetReason())
	}
	if e.failure != nil {
		o.Lost = e.failure.GetReason() == process.ReasonLeaseLost
	}
	before := t.ends[p]
	if !by.Undo {
		t.ends[p] = e
		if err := t.setAttempt(p, child, attempt); err != nil {
			return err
		}
	}
	if o.Status == flow.Cancelled && t.decision.Status(p.step) == flow.Open {
		if err := t.cancelEvent(p, child); err != nil {
			return err
		}
	}
	known, err := t.decision.Ended(o)
	switch {
	case broke && known:
		t.failed = append(t.failed, job)
	case broke:
		t.letGo(job.key, "its run continued without it")
	}
	if !known && !by.Undo { // the step ended in another way, such as a skip, or the message is a duplicate
		if delete(t.ends, p); before != nil {
			t.ends[p] = before
		}
	}
	return err
}

// endOf returns how the work of a step ended.
func (t *task) endOf(p place, child *progressorv1.ChildEnd, undo bool) (*end, flow.StepStatus, error) {
	action := t.template.Steps[p.step].Action
	if undo {
		action = flow.ActionJob
	}
	switch child.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		if action == flow.ActionRun {
			return t.runEnd(child)
		}
		return &end{result: resultOf(child.GetResponse())}, flow.Succeeded, nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		reason := cmp.Or(child.GetDetail(), "it was cancelled")
		if t.state.Run.Cause != flow.NoCause && child.GetDetail() == "" { // its run asked it to end
			var err error
			if reason, err = t.why(); err != nil {
				return nil, 0, err
			}
		}
		return &end{reason: reason}, flow.Cancelled, nil
	case progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
		failure, err := t.failureOf(child, action)
		return &end{failure: failure}, flow.Failed, err
	}
	if action == flow.ActionRun && len(child.GetResponse()) > 0 {
		var a answered
		if err := json.Unmarshal(child.GetResponse(), &a); err == nil && a.Outcome != "" {
			return failed(reasonNotStarted, a.Message), flow.Failed, nil
		}
	}
	return failed(reasonNotStarted, cmp.Or(child.GetDetail(), "the process of the step was removed")), flow.Failed, nil
}

func failed(reason, message string) *end {
	return &end{failure: &progressorv1.Failure{Reason: reason, Message: wire.Plain(message)}}
}

// reasonOf returns the reason of a failure that a decision caused with err.
func reasonOf(err error) string {
	if _, large := errors.AsType[*flow.SizeError](err); large {
		return reasonTooLarge
	}
	return reasonExpression
}

// runEnd returns the end of a step that is a run.
func (t *task) runEnd(child *progressorv1.ChildEnd) (*end, flow.StepStatus, error) {
	var o answered
	if err := json.Unmarshal(child.GetResponse(), &o); err != nil {
		return failed(reasonRun, "the run returned no outcome"), flow.Failed, nil //nolint:nilerr // the failure reports it
	}
	if o.InRow {
		row, err := flows.Get(t.ctx, t.flows.store, child.GetNamespace(), child.GetProcessId()[len(process.FlowPrefix):])
		switch {
		case errors.Is(err, process.ErrRunNotFound):
			return failed(reasonRun, "its run was removed before its result was read"), flow.Failed, nil
		case err != nil:
			return nil, 0, t.faulted(err)
		}
		o.Result, o.Failure = row.Result, row.Failure
	}
	switch o.Status {
	case succeeded:
		return &end{result: o.Result}, flow.Succeeded, nil
	case string(flow.ByCancel):
		return &end{reason: "its run was cancelled"}, flow.Cancelled, nil
	}
	failure, err := wire.Failure(o.Failure)
	if err != nil || failure == nil {
		failure = &progressorv1.Failure{Reason: reasonRun, Message: "its run is " + o.Status}
	}
	return &end{failure: failure}, flow.Failed, nil
}

// resultOf converts the response of a job or a process to a value: JSON is kept, other text becomes
// a string, and binary data a base64 string.
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

// failureOf reads the failure of a job or a process that is in ERROR.
func (t *task) failureOf(child *progressorv1.ChildEnd, action flow.Action) (failure *progressorv1.Failure, err error) {
	key := process.Key{Namespace: child.GetNamespace(), ProcessID: child.GetProcessId()}
	if action == flow.ActionJob {
		rows, err := jobs.Get(t.ctx, t.flows.store, key)
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
		p, err := t.flows.engine.GetProcess(t.ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
		if err == nil && p.GetCorruptedBy() != 0 {
			var task *progressorv1.Task
			if task, err = t.flows.engine.AwaitTask(t.ctx, engine.AwaitParams{Key: key, TaskID: p.GetCorruptedBy()}); err == nil {
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
