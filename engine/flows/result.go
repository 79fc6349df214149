package flows

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// succeeded is the status of a run that succeeded.
const succeeded = "succeeded"

// The types of job events of runs and steps.
const (
	eventStatus             = "status_changed"
	eventStepStatus         = "step_status_changed"
	eventStepQueued         = "step_queued"
	eventCancelRequested    = "cancel_requested"
	eventCancelAcknowledged = "cancel_acknowledged"
	eventGraceExpired       = "cancel_grace_expired"
	eventAttemptFailed      = "attempt_failed"
	eventTimeout            = "timeout"
	eventRetried            = "retried"
	eventSkippedByHand      = "skipped_by_hand"
	eventCompensated        = "compensation_changed"
)

// status returns the status in the row of the run.
func (t *task) status() flows.Status {
	s := t.state.Run
	switch s.Mode {
	case flow.ModeWaiting, flow.ModeResting:
		return flows.Pending
	case flow.ModeCompensating:
		return flows.Compensating
	case flow.ModeEnded:
		return flows.Status(s.Status)
	}
	if s.Cause == flow.ByCancel {
		return flows.CancelRequested
	}
	return flows.Active
}

// change returns the fields of the run's row that are derived from its state.
func (t *task) change() flows.Change {
	s := t.state.Run
	c := flows.Change{
		RunID: t.runID, TemplateVersion: t.state.Version, Status: t.status(), Attempt: s.Attempt,
		Cancels: t.state.Cancel != "" || s.Cause == flow.ByCancel,
	}
	switch {
	case t.state.Blocked != "":
		c.BlockedOn = "scope: " + t.state.Blocked
	case s.Mode == flow.ModeWaiting && !s.RunTime.IsZero():
		c.BlockedOn = "time: " + s.RunTime.UTC().Format(time.RFC3339Nano)
	case s.Mode == flow.ModeResting:
		c.BlockedOn = "backoff: " + s.BackoffUntil.UTC().Format(time.RFC3339Nano)
	}
	return c
}

// event adds an event of the run, or of a step or an item, to those that the task stores.
func (t *task) event(kind string, p stepRef, from, to, message string) *jobs.Event {
	e := &jobs.Event{
		RunID: t.runID, Type: kind, From: from, To: to, Message: wire.Plain(message), Attempt: t.state.Run.Attempt,
		Actor: t.by.Name,
	}
	if p.step != noIndex {
		e.StepID = t.template.Steps[p.step].ID
	}
	if p.index != noIndex {
		index := int32(p.index)
		e.Index = &index
	}
	t.events = append(t.events, e)
	return e
}

// row returns the change to the row of a step or an item. It creates the change if necessary.
func (t *task) row(p stepRef) *flows.StepChange {
	row, ok := t.rows[p]
	if !ok {
		row = &flows.StepChange{
			RunID: t.runID, StepID: t.template.Steps[p.step].ID, Index: int32(p.index), Ord: int32(p.step),
			Status: flows.StepPending,
		}
		t.rows[p] = row
		t.order = append(t.order, p)
	}
	return row
}

// apply turns an effect into rows, messages and events.
func (t *task) apply(e *flow.Effect) error {
	p := stepRef{e.Step, e.Index}
	switch e.Kind {
	case flow.EffectBegin:
		row := t.row(p)
		row.Status, row.Begins = flows.StepRunning, true
		if t.isJob(p) {
			t.event(eventStepQueued, p, "", "", "")
		} else {
			t.setBegan(t.now)
			t.event(eventStepStatus, p, string(flows.StepPending), string(flows.StepRunning), "")
		}
		if a := t.template.Steps[e.Step].Action; a == flow.ActionWait || a == flow.ActionDelay {
			row.Due = e.Due
		}
		if w, ok := e.Work.(*work); ok {
			return t.begin(row, w)
		}
	case flow.EffectEnd:
		return t.ended(p, e)
	case flow.EffectCancel:
		t.requestCancel(p, e.Reason)
	case flow.EffectCompensate:
		t.row(p).Compensation = flows.StepRunning
		t.event(eventCompensated, p, "", string(flows.StepRunning), "")
		return t.enqueue(e.Work.(*work))
	case flow.EffectCancelCompensation:
		t.messages = append(t.messages, storage.Message{
			Kind: storage.MessageCancel, Reason: t.cancelReason(), Target: process.Key{
				Namespace: cmp.Or(t.template.Steps[p.step].Source.GetCompensation().GetNamespace(), t.key.Namespace),
				ProcessID: process.StepPrefix + t.workID(t.origin(p, true)),
			},
		})
	case flow.EffectCompensated:
		t.row(p).Compensation = statusOf(e.Status)
		t.event(eventCompensated, p, string(flows.StepRunning), string(statusOf(e.Status)), shorten(e.Reason))
	case flow.EffectReset:
		row := t.row(p)
		*row = flows.StepChange{
			RunID: row.RunID, StepID: row.StepID, Index: row.Index, Ord: row.Ord, Status: flows.StepPending,
			Begins: row.Begins, Untaken: row.Untaken, ProcessID: row.ProcessID,
		}
	case flow.EffectDropItems:
		t.AddEffects(&flows.DropItems{RunID: t.runID, StepID: t.template.Steps[e.Step].ID, Kept: e.Kept})
	case flow.EffectEndSuspended:
		t.endsSuspended = append(t.endsSuspended, t.template.Steps[e.Step].ID)
	case flow.EffectRunStatus:
	}
	return nil
}

// begin adds the work of a step or an item to its row and to the messages.
func (t *task) begin(row *flows.StepChange, w *work) error {
	row.Input, row.Wait, row.ItemHash = w.input, w.wait, w.hash
	if w.wait != nil {
		row.Token = rand.Text()
	}
	if w.job == nil && w.message == nil {
		return nil
	}
	if err := t.enqueue(w); err != nil {
		return err
	}
	target := t.messages[len(t.messages)-1].Target
	if row.ProcessID = target.ProcessID; target.Namespace != t.key.Namespace {
		row.ProcessIn = target.Namespace
	}
	return nil
}

// enqueue adds the message that begins the work. The keys of a job depend on the configuration that
// this node has read. Therefore they are added here and not in the decision.
func (t *task) enqueue(w *work) error {
	if w.job == nil {
		t.messages = append(t.messages, *w.message)
		return nil
	}
	t.flows.jobs.AddKeys(w.job)
	m, err := w.job.Message()
	m.NotifyParentArgs = w.from.json()
	t.messages = append(t.messages, m)
	return err
}

// ended records the end of a step or an item.
func (t *task) ended(p stepRef, e *flow.Effect) error {
	row := t.row(p)
	from := flows.StepPending // it was skipped or cancelled before it began
	if row.Begins || p.index != noIndex || flow.StepStatus(t.before.steps[p.step]) == flow.Running {
		from = flows.StepRunning
	}
	if attempt, known := t.attempts[p]; known && from == flows.StepRunning {
		row.WorkerID, row.Started, row.Untaken = attempt.worker, attempt.started, !attempt.taken
		t.setBegan(attempt.started)
		if row.Untaken {
			from = flows.StepPending
		}
	}
	row.Status, row.Token, row.Reason = statusOf(e.Status), "", e.Reason
	var failure *progressorv1.Failure
	if e.Reason == flow.ReasonStopped {
		reason, err := t.endReason()
		if err != nil {
			return err
		}
		row.Reason = reason
	}
	if end := e.End; end != nil {
		row.Result, row.WorkerID, row.Reason = end.Result, cmp.Or(row.WorkerID, end.Worker),
			cmp.Or(end.Reason, row.Reason)
		if failure = failureOf(end); failure != nil {
			row.Failure, _ = wire.FailureJSON(failure) // cannot fail: the failure was cleaned or has plain strings
		}
	}
	message := cmp.Or(row.Reason, failureText(failure))
	if e.Reason == eventGraceExpired {
		t.event(eventGraceExpired, p, "", "", "it did not end in time and was cancelled")
		row.Reason = "it did not end within the grace period of the cancel"
	}
	t.event(eventStepStatus, p, string(from), string(row.Status), message).WorkerID = row.WorkerID
	return nil
}

// done completes the result of the task.
func (t *task) done() error {
	if t.removes {
		t.Result.JSONResponse(t.reply).Remove()
		return nil
	}
	if err := t.readOpenAttempts(); err != nil {
		return err
	}
	for n := range t.decision.Effects {
		if err := t.apply(&t.decision.Effects[n]); err != nil {
			return err
		}
	}
	if err := t.endSuspended(); err != nil {
		return err
	}
	now := t.change()
	now.Started = t.state.Began
	if err := t.finish(&now); err != nil {
		return err
	}
	if err := t.cancelFailedJobs(now.Status); err != nil {
		return err
	}
	t.write(&now)
	s := t.state
	if s.Run.Mode == flow.ModeEnded && !t.precedesRetry() {
		t.Result.Complete()
		s.Timer = time.Time{}
		if t.reply == nil {
			t.reply = &reply{}
		}
		t.reply.Status, t.reply.Result, t.reply.Failure = string(now.Status), now.Result, now.Failure
		if now.Status == flows.Cancelled {
			t.reply.Reason = t.state.Cancel
		}
	} else if at := s.Run.Timer(t.now); s.Timer.IsZero() || at.IsZero() || at.After(t.now) || s.Timer.After(t.now) {
		// If the timer is set, and its time and the new time have both passed, it is not set again.
		t.MoveTimer(&s.Timer, at)
	}
	if t.created != nil {
		t.reply.Fresh = t.fresh(&now)
	}
	if t.reply != nil {
		response, err := t.response()
		if err != nil {
			return err
		}
		t.Result.Response(response)
	}
	text, err := encode(s)
	if t.Request.GetType() == progressorv1.TaskType_TASK_TYPE_CANCEL {
		t.Result = processor.Result() // only the state is stored
	}
	t.Result.AuxState(text)
	return err
}

// precedesRetry reports whether the run was reopened for a retry whose command has not arrived. A
// message, such as the end of a job from the last attempt, must not end the run again, because the
// command would then fail.
func (t *task) precedesRetry() bool { return t.before.ended && t.isNotification() }

// response returns the response of the run as JSON. A result or failure that is too large for a
// message stays in the row of the run.
func (t *task) response() ([]byte, error) {
	text, err := encode(t.reply)
	if err != nil || len(text) <= process.MaxPayloadBytes {
		return text, err
	}
	short := *t.reply
	failure, _ := wire.Failure(short.Failure) // the row has the full failure
	short.InRow, short.Message = true, shorten(cmp.Or(failure.GetMessage(), failure.GetReason()))
	short.Result, short.Failure = nil, nil
	return encode(&short)
}

// maxFresh limits the number of changed steps in a freshRun.
const maxFresh = 20

// fresh describes the run that a StartRun created. It returns nil if the run has open steps other
// than jobs that no worker has taken, or too many of them.
func (t *task) fresh(now *flows.Change) *freshRun {
	if now.Status != flows.Active && now.Status != flows.Pending || len(t.order) > maxFresh {
		return nil
	}
	r := &freshRun{Time: t.now, Version: t.state.Version, Attempt: now.Attempt, BlockedOn: now.BlockedOn}
	for _, p := range t.order {
		if p.index != noIndex || t.rows[p].Status != flows.StepRunning ||
			t.template.Steps[p.step].Action != flow.ActionJob || t.template.Steps[p.step].ForEach() {
			return nil
		}
		r.Begun = append(r.Begun, p.step)
	}
	return r
}

// finish sets the result of a run that succeeds, and the failure of a run that fails or expires.
func (t *task) finish(now *flows.Change) error {
	s := t.state.Run
	if s.Mode == flow.ModeEnded && s.Status == succeeded && t.before.row.Status != flows.Succeeded {
		result, err := t.result()
		if err != nil {
			return err
		}
		now.Result = result
	}
	switch {
	case s.BadResult != "" && s.Cause == flow.ByFailure:
		now.Failure, _ = wire.FailureJSON(failed(reasonExpression, s.BadResult).Failure) // cannot fail: plain strings
	case s.Cause == flow.ByTime:
		now.Failure, _ = wire.FailureJSON(&progressorv1.Failure{
			Reason: process.ReasonTimeout, Message: t.passedTimeout(),
		})
	case s.Broken != nil && s.Cause == flow.ByFailure:
		failure, err := t.runFailure(*s.Broken)
		if err != nil {
			return err
		}
		now.Failure, _ = wire.FailureJSON(failure) // cannot fail: it was stored, or has plain strings
	}
	return nil
}

// runFailure returns the failure of the step that failed the run.
func (t *task) runFailure(step int) (*progressorv1.Failure, error) {
	v, err := t.value(step)
	if err != nil {
		return nil, err
	}
	if v.Failure != nil {
		return v.Failure, nil
	}
	id := t.template.Steps[step].ID
	if t.template.Steps[step].ForEach() {
		// The message has no numbers if the items will run again, because the counts were reset.
		message := "items of step " + id + " failed"
		if each := t.state.Run.Each[step]; each != nil && each.Redo == nil {
			message = fmt.Sprintf("%d of %d items of step %s failed", each.Failed, each.Count, id)
			if each.Count == 1 {
				message = "the only item of step " + id + " failed"
			}
		}
		index, cause, err := t.firstFailed(step)
		if err != nil {
			return nil, err
		}
		if text := []rune(cmp.Or(cause.GetMessage(), cause.GetReason())); len(text) > 0 {
			message += fmt.Sprintf(", item %d: %s", index, string(text[:min(len(text), maxEndReason)]))
		}
		return &progressorv1.Failure{Reason: "items_failed", Message: message, Details: itemDetails(index, cause)}, nil
	}
	return &progressorv1.Failure{Reason: reasonCancelled, Message: "step " + id + " was cancelled"}, nil
}

// itemDetails returns the details of a run that failed because of an item: the index of the item
// and the reason of its failure. They are nil if no item failed.
func itemDetails(index int, cause *progressorv1.Failure) *structpb.Value {
	if cause == nil {
		return nil
	}
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"item":   structpb.NewNumberValue(float64(index)),
		"reason": structpb.NewStringValue(cause.GetReason()),
	}})
}

// firstFailed returns the index of the first failed item of a step, and the failure of that item.
// The failure is nil if no item failed or the failure is empty.
func (t *task) firstFailed(step int) (first int, failure *progressorv1.Failure, err error) {
	index, text, err := flows.FirstFailed(t.Ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID)
	if err != nil {
		return 0, nil, err
	}
	first = int(index)
	if failure, err = wire.Failure(text); err != nil {
		return 0, nil, err
	}
	for n := range t.decision.Effects { // items that end in this task: their rows are not written yet
		e := &t.decision.Effects[n]
		if e.Kind != flow.EffectEnd || e.Step != step || e.Index == noIndex || e.End == nil {
			continue
		}
		if cause := failureOf(e.End); cause != nil && (failure == nil || e.Index < first) {
			first, failure = e.Index, cause
		}
	}
	return first, failure, nil
}

// result returns the result of a run that succeeded.
func (t *task) result() ([]byte, error) {
	if t.template.HasResult() {
		return t.decision.Result, nil
	}
	for step := len(t.template.Steps) - 1; step >= 0; step-- {
		if t.state.Run.StatusOf(step) != flow.Succeeded {
			continue
		}
		if end := t.decision.End(step, noIndex); end != nil {
			return end.Result, nil
		}
		rows, err := flows.Values(t.Ctx, t.flows.store, t.key.Namespace, t.runID, t.template.Steps[step].ID)
		if err != nil {
			return nil, readError(err)
		}
		if len(rows) > 0 {
			return rows[0].Result, nil
		}
		return nil, nil
	}
	return nil, nil
}
