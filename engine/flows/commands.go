package flows

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// The outcomes in a CompleteStep command.
const (
	stepSucceeded = "succeeded"
	stepFailed    = "failed"
	stepCancelled = "cancelled"
)

// execute executes a command. A rejected command changes nothing.
func (t *task) execute() error {
	var o command
	if err := json.Unmarshal(t.Request.GetArgs(), &o); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	t.by = o.by()
	t.reply = &reply{}
	switch o.Method {
	case methodTurn:
		if t.state.Run.Mode != flow.ModeWaiting || t.state.Blocked == "" {
			return nil
		}
		if t.template.Repeatable() {
			return t.beginInScope("")
		}
		holder, err := flows.Peek(t.Ctx, t.flows.store, t.template.scope(t.key.Namespace, t.state.Key, t.runID))
		if err != nil {
			return err
		}
		return t.beginInScope(holder.Done)
	case methodAskTurn:
		return t.requestDedupeKey()
	case methodCancel:
		return t.cancel(&o)
	case methodRetry:
		return t.retry(&o)
	case methodSkip:
		return t.skip(&o)
	case methodComplete:
		return t.complete(&o)
	case methodReport:
		return t.report(&o)
	}
	return processor.Reject(processor.ReasonBadArgs, "unknown command %s", o.Method)
}

// isNotification reports whether the command is a message of a cron, a process or another run. No
// client waits for its result.
func (t *task) isNotification() bool {
	return t.Request.GetType() == progressorv1.TaskType_TASK_TYPE_NOTIFY
}

func (t *task) cancel(o *command) error {
	s := t.state.Run
	switch {
	case o.Force && s.Mode != flow.ModeEnded:
		t.state.Cancel, t.cancels, t.state.Blocked = wire.Plain(o.Reason), true, ""
		t.event(eventCancelRequested, stepRef{noIndex, noIndex}, "", "", o.Reason)
		return t.decide(flow.Input{Kind: flow.InputAbort})
	case s.Cause == flow.ByCancel && s.Mode != flow.ModeEnded:
		return nil // the cancel was already requested
	case s.Mode == flow.ModeEnded, s.Mode == flow.ModeCompensating:
		if t.isNotification() {
			return nil
		}
		return processor.Reject(rejectedCancel, "a run that is %s cannot be cancelled", statusName(t.status()))
	case !t.template.Cancelable() && !t.isNotification():
		return processor.Reject(rejectedCancel, "its template does not support cancelling")
	}
	t.state.Cancel, t.cancels = wire.Plain(o.Reason), true
	t.state.Blocked = ""
	t.event(eventCancelRequested, stepRef{noIndex, noIndex}, "", "", o.Reason)
	return t.decide(flow.Input{Kind: flow.InputCancel})
}

// requestDedupeKey asks again for the dedupe key that the run waits for. The run that held the key
// was removed without passing it on.
func (t *task) requestDedupeKey() error {
	if t.state.Run.Mode != flow.ModeWaiting || t.state.Blocked == "" {
		return nil
	}
	s := t.template.scope(t.key.Namespace, t.state.Key, t.runID)
	s.Queues = true
	holder, err := flows.Enter(t.Ctx, t.flows.store, s)
	if err != nil {
		return err
	}
	if t.state.Blocked = holder.RunID; holder.RunID != "" {
		return nil
	}
	return t.beginInScope(holder.Done)
}

// beginInScope begins a run that has waited for its dedupe key. If the template allows only one run
// to succeed, done is the run that has succeeded with that key in the meantime.
func (t *task) beginInScope(done string) error {
	t.state.Blocked = ""
	if done == "" {
		return t.decide(flow.Input{Kind: flow.InputStart})
	}
	reason := fmt.Sprintf("run %s of the same scope has succeeded, and its template is not repeatable", done)
	t.state.Cancel, t.cancels = reason, true
	t.event(eventCancelRequested, stepRef{noIndex, noIndex}, "", "", reason)
	return t.decide(flow.Input{Kind: flow.InputCancel})
}

// retry restarts a run that has ended. If the retry is refused, nothing changes: the run, which was
// reopened for the command, ends again with its previous status. A rejection would not restore that
// status.
func (t *task) retry(o *command) error {
	before, run, template := *t.state, *t.state.Run, t.template
	refusal, err := t.prepareRetry(o)
	if err != nil {
		return err
	}
	if refusal != nil { // prepareRetry may have changed the version of the template
		*t.state, *t.state.Run, t.template = before, run, template
		t.reply = refusal
		return nil
	}
	t.state.Cancel, t.state.Inputs = "", t.state.Inputs.with(o.Inputs)
	t.event(eventRetried, stepRef{noIndex, noIndex}, "", "", retryMessage(o.Inputs))
	return t.decide(flow.Input{Kind: flow.InputRetry})
}

// prepareRetry checks whether a run can be retried, changes its version if the command requests
// that, and requests its dedupe key. It returns a reply if the retry is refused.
func (t *task) prepareRetry(o *command) (*reply, error) {
	s := t.state.Run
	if s.Mode != flow.ModeEnded || s.Status == succeeded {
		return refuse(notRetryable, statusName(t.status())), nil
	}
	if o.Newest {
		if no, err := t.useNewestVersion(); no != nil || err != nil {
			return no, err
		}
	}
	if no := t.checkInputs(o.Inputs); no != nil || t.state.Key == "" {
		return no, nil
	}
	holder, err := flows.Enter(t.Ctx, t.flows.store, flows.Scope{
		Namespace: t.key.Namespace, TemplateType: t.state.Type, DedupeKey: t.state.Key, RunID: t.runID, Alone: true,
	})
	if err == nil && holder.RunID != "" {
		return refuse("run %s of the same scope has not ended", holder.RunID), nil
	}
	return nil, err
}

// refuse returns the reply that refuses a retry.
func refuse(format string, args ...any) *reply { return &reply{Refused: fmt.Sprintf(format, args...)} }

// useNewestVersion changes the run to the newest version of its template. If that is not possible,
// it returns a reply.
func (t *task) useNewestVersion() (*reply, error) {
	if t.state.Type == waitType {
		return refuse("it has no template"), nil
	}
	newest, err := t.flows.template(t.Ctx, t.key.Namespace, t.state.Type, 0)
	if err != nil {
		return nil, err
	}
	old := t.state.Run
	statuses := []byte(flow.NewState(newest.plan).Steps)
	each := map[int]*flow.Each{}
	index := make([]int, len(t.template.Steps))
	for i := range t.template.Steps {
		step := &t.template.Steps[i]
		at, ok := newest.Index(step.ID)
		if !ok && old.StatusOf(i) == flow.Succeeded {
			return refuse("step %s has succeeded and is not in version %d", step.ID, newest.Source.GetVersion()), nil
		}
		index[i] = -1
		if !ok {
			continue
		}
		index[i], statuses[at] = at, byte(old.StatusOf(i))
		if e := old.Each[i]; e != nil && newest.Steps[at].ForEach() {
			each[at] = e
		} else if e != nil || newest.Steps[at].ForEach() && old.StatusOf(i) != flow.Succeeded {
			statuses[at] = byte(flow.Pending)
		}
	}
	kept := func(list []int) (all []int) {
		for _, i := range list {
			if index[i] >= 0 {
				all = append(all, index[i])
			}
		}
		return all
	}
	old.Steps, old.Each, old.Done, old.Undone, old.Left, old.Broken = string(statuses), each, kept(old.Done),
		kept(old.Undone), kept(old.Left), nil
	t.template, t.state.Version, t.state.Stored = newest, newest.Source.GetVersion(), newest.stored
	return nil, nil
}

// find returns the step or item to which a command refers.
func (t *task) find(o *command) (stepRef, error) {
	step, ok := t.template.Index(o.StepID)
	if !ok {
		return stepRef{}, processor.Reject(rejectedStep, "step %q of template %s, version %d", o.StepID, t.state.Type,
			t.state.Version)
	}
	p := stepRef{step, o.Index}
	if o.Index == noIndex {
		return p, nil
	}
	each := t.state.Run.Each[step]
	if each == nil || o.Index >= each.Count {
		return p, processor.Reject(rejectedStep, "step %s has no item %d", o.StepID, o.Index)
	}
	return p, nil
}

func (t *task) skip(o *command) error {
	p, err := t.find(o)
	if err != nil {
		return err
	}
	s := t.state.Run
	status := s.StatusOf(p.step)
	switch {
	case s.Mode == flow.ModeEnded, s.Mode == flow.ModeCompensating:
		return processor.Reject(rejectedStatus, "the steps of a run that is %s cannot be skipped",
			statusName(t.status()))
	case status != flow.Pending && status != flow.Running:
		return processor.Reject(rejectedStatus, "step %s is %s: only a step that has not ended can be skipped",
			o.StepID, statusOf(status))
	}
	if p.index != noIndex {
		if err := t.load(flow.Need{Kind: flow.NeedItems, Step: p.step}); err != nil {
			return err
		}
		isOpen := func(item flow.Item) bool { return item.Index == p.index && item.Status == flow.Running }
		if !slices.ContainsFunc(t.facts.items[p.step], isOpen) {
			return processor.Reject(rejectedStatus, "item %d of step %s is not open", p.index, o.StepID)
		}
	}
	t.event(eventSkippedByHand, p, "", "", o.Reason)
	return t.decide(flow.Input{Kind: flow.InputSkip, Outcome: flow.Outcome{
		Step: p.step, Index: p.index, End: &flow.End{Result: o.Result, Reason: wire.Plain(o.Reason)},
	}})
}

// findWait finds the wait that a command answers, and checks that it may be answered.
func (t *task) findWait(o *command) (stepRef, error) {
	p, err := t.find(o)
	if err != nil {
		return p, err
	}
	step := &t.template.Steps[p.step]
	if step.Action != flow.ActionWait {
		return p, processor.Reject(rejectedStatus, "step %s is not a wait", o.StepID)
	}
	switch {
	case step.ForEach() && p.index == noIndex:
		return p, processor.Reject(rejectedInvalid, "is required: step %s has for_each",
			o.StepID).WithDetails([]byte("index"))
	case !step.ForEach() && p.index != noIndex:
		return p, processor.Reject(rejectedInvalid, "must not be set: step %s has no for_each",
			o.StepID).WithDetails([]byte("index"))
	}
	row, found, err := flows.GetWait(t.Ctx, t.flows.store, t.key.Namespace, t.runID, o.StepID, int32(p.index))
	switch {
	case err != nil:
		return p, err
	case !found || row.Status != flows.StepRunning || t.state.Run.StatusOf(p.step) != flow.Running:
		return p, processor.Reject(rejectedStatus, "step %s is not waiting", o.StepID)
	}
	if err := o.checkAssignee(&row); err != nil {
		return p, err
	}
	switch {
	case o.Token == "" && step.Source.GetWait().GetKind() != progressorv1.WaitAction_KIND_HUMAN:
		return p, processor.Reject(rejectedInvalid, "is required: step %s waits for an external answer",
			o.StepID).WithDetails([]byte("token"))
	case o.Token != row.Token && o.Token != "":
		if subtle.ConstantTimeCompare([]byte(o.Token), []byte(row.Token)) != 1 {
			return p, processor.Reject(rejectedStatus, "the token belongs to an earlier attempt or to another wait")
		}
	case row.DueTime != nil && !row.DueTime.After(t.now):
		return p, processor.Reject(rejectedStatus, "the wait was due at %s", row.DueTime.UTC().Format(time.RFC3339))
	}
	return p, nil
}

func (t *task) complete(o *command) error {
	p, err := t.findWait(o)
	if err != nil {
		return err
	}
	if t.state.Run.Cause == flow.ByCancel && o.Outcome != stepCancelled {
		return processor.Reject(rejectedStatus,
			"the run was cancelled: the only outcome that it still accepts is cancelled")
	}
	e := &flow.End{Worker: wire.Plain(o.Worker)}
	outcome := flow.Outcome{Step: p.step, Index: p.index, Round: t.state.Run.Round, End: e}
	switch o.Outcome {
	case stepSucceeded:
		result, err := wire.Value(o.Result)
		if err != nil {
			return err
		}
		if problems := t.template.Steps[p.step].CheckAnswer(orNull(result)); len(problems) > 0 {
			var wrong *process.InvalidError
			errors.As(invalid(problems), &wrong)
			return processor.Reject(rejectedInvalid, "%s", wrong.Message).WithDetails([]byte(wrong.Field))
		}
		outcome.Status, e.Result = flow.Succeeded, o.Result
	case stepFailed:
		if e.Failure, err = wire.Failure(o.Failure); err != nil {
			return err
		}
		outcome.Status = flow.Failed
	default:
		outcome.Status, e.Reason = flow.Cancelled, wire.Plain(o.Reason)
		t.event(eventCancelAcknowledged, p, "", "", o.Reason)
	}
	return t.decide(flow.Input{Kind: flow.InputEnd, Outcome: outcome})
}

func (t *task) report(o *command) error {
	p, err := t.findWait(o)
	if err != nil {
		return err
	}
	r := &flows.Report{
		RunID: t.runID, StepID: o.StepID, Index: int32(p.index), Progress: o.Progress,
		Claims: o.Claims, Worker: wire.Plain(o.Worker),
	}
	if o.Due > 0 {
		r.Due = t.now.Add(o.Due)
		t.state.Run.SetDeadline(p.step, p.index, r.Due)
	}
	t.AddEffects(r)
	a := reply{Directive: int32(progressorv1.LeaseDirective_DIRECTIVE_CONTINUE)}
	if t.state.Run.Cause == flow.ByCancel {
		a.Directive, a.Reason = int32(progressorv1.LeaseDirective_DIRECTIVE_CANCEL), t.state.Cancel
	}
	t.reply = &a
	return nil
}

// statusName formats the status of a run for messages.
func statusName(s flows.Status) string {
	if s == flows.Active || s == flows.CancelRequested {
		return "active"
	}
	return string(s)
}

// statusOf returns the status of a step as messages and events show it.
func statusOf(status flow.StepStatus) flows.StepStatus {
	switch status {
	case flow.Running:
		return flows.StepRunning
	case flow.Succeeded:
		return flows.StepSucceeded
	case flow.Failed, flow.Ignored:
		return flows.StepFailed
	case flow.Skipped, flow.ByHand:
		return flows.StepSkipped
	case flow.Cancelled:
		return flows.StepCancelled
	}
	return flows.StepPending
}
