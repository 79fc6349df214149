package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
)

// state is the stored state of a run's process.
type state struct {
	Type    string    `json:"type"`
	Version int32     `json:"version"`
	Stored  int64     `json:"stored"` // when the version was stored; see templateKey
	Created time.Time `json:"created"`
	Scope   string    `json:"scope,omitempty"`
	ScopeID string    `json:"scope_id,omitempty"`
	Key     string    `json:"key,omitempty"` // the dedupe key that it holds or waits for
	// Payload is the payload of the run. A large payload is not kept here, but read from flow_runs
	// when it is needed.
	Payload json.RawMessage `json:"payload,omitempty"`
	Large   bool            `json:"large,omitempty"`
	Blocked string          `json:"blocked,omitempty"` // id of the run that it waits for
	Cancel  string          `json:"cancel,omitempty"`  // why it was asked to end
	Timer   time.Time       `json:"timer,omitzero"`    // value of the default timer
	Began   time.Time       `json:"began,omitzero"`    // when the first step began; zero if no end has told yet
	Written time.Time       `json:"written,omitzero"`  // when the row of the run was last written for a step alone
	Trace   string          `json:"trace,omitempty"`   // trace context of the request that started the run
	Run     *flow.State     `json:"run"`
}

// maxKeptPayload is the longest payload that is stored in each state, in bytes.
const maxKeptPayload = 1 << 10

const noIndex = flow.NoIndex

// place identifies a step or an item.
type place struct{ step, index int }

// task is one task of a run's process, with all its consequences.
type task struct {
	flows    *Flows
	ctx      context.Context
	request  *progressorv1.ProcessRequest
	attempt  *engine.Attempt
	now      time.Time
	key      process.Key
	runID    string
	state    *state
	template *template
	decision *flow.Decision
	before   priorRun

	created *flows.NewRun // set for an INIT task
	cancels bool          // a command to end the run was received
	by      process.Actor
	answer  *answered
	failure []byte // failure of the run if no step has it, as JSON
	made    []byte // result of the run if its template defines it, as JSON

	ends     map[place]*end
	attempts map[place]attemptFacts // of the jobs that end in this task
	begun    map[place]*begun
	rows     map[place]*flows.StepChange
	order    []place
	values   map[int]flow.Ended
	payload  *structpb.Value
	events   []*storage.JobEvent
	messages []storage.Message
	failed   []failedJob // whose ends this task handles
	removes  bool

	endsSuspended []string // ids of steps whose suspended processes are to be ended

	// fault is the error of a failed read. The consequences, such as the failure of a step that
	// needs the value, are not stored. The task is retried.
	fault error
}

// priorRun is what a task knows of its run before the task changes it.
type priorRun struct {
	row   flows.Change
	shown string // see shownStatus; "" if the task creates the run
	steps string // status letters of the steps before the decision
}

// faulted records a failed read.
func (t *task) faulted(err error) error {
	if err != nil {
		t.fault = err
	}
	return err
}

// end describes how a step or an item ended.
type end struct {
	result  []byte // JSON; nil means null
	failure *progressorv1.Failure
	worker  string // who answered a wait
	reason  string
}

// process runs a task of a run.
func (f *Flows) process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	response, err := f.decide(ctx, r)
	if errors.Is(err, process.ErrUnavailable) { // nothing was decided: retry, because a failure would break the run
		err = &processor.UnreachableError{Err: err}
	}
	return response, err
}

func (f *Flows) decide(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	a := engine.AttemptOf(ctx)
	key := process.Key{Namespace: r.GetProcess().GetNamespace(), ProcessID: r.GetProcess().GetProcessId()}
	t := &task{
		flows: f, ctx: ctx, request: r, attempt: a, now: a.Now().UTC().Truncate(time.Microsecond), key: key, runID: key.ProcessID[len(process.FlowPrefix):],
		ends: map[place]*end{}, attempts: map[place]attemptFacts{}, begun: map[place]*begun{}, rows: map[place]*flows.StepChange{}, values: map[int]flow.Ended{},
	}
	if r.GetType() == progressorv1.TaskType_TASK_TYPE_INIT {
		if err := t.create(); err != nil || t.removes {
			return t.gone(err)
		}
		return t.done()
	}
	if err := t.read(); err != nil {
		return nil, err
	}
	response, err := t.handle(r)
	if t.fault != nil {
		return nil, &processor.UnreachableError{Err: t.fault}
	}
	return response, err
}

// handle executes a task of a run that exists.
func (t *task) handle(r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	var err error
	switch r.GetType() {
	case progressorv1.TaskType_TASK_TYPE_CALL:
		err = t.carryOut()
	case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
		t.state.Timer = time.Time{}
		err = t.tick()
	case progressorv1.TaskType_TASK_TYPE_NOTIFY:
		err = t.notified()
	case progressorv1.TaskType_TASK_TYPE_CANCEL:
		t.state.Cancel, t.cancels = string(r.GetArgs()), true
		err = t.decision.Abort()
	default:
		err = processor.Fail(processor.ReasonNotHandled, "a run does not accept tasks of type %s", r.GetType()).NonRetryable()
	}
	if err != nil {
		return nil, err
	}
	return t.done()
}

// gone returns the response of a run that does not start.
func (t *task) gone(err error) (*progressorv1.ProcessResponse, error) {
	if err != nil {
		return nil, err
	}
	return processor.Result().JSONResponse(t.answer).Remove().Done()
}

func (t *task) read() error {
	t.state = &state{}
	err := engine.DecodeState(t.request.GetProcess().GetAuxState(), t.state)
	if err == nil && t.state.Run == nil {
		err = errors.New("it has no steps")
	}
	if err == nil && t.state.Run.IsNewer() {
		err = engine.NewerState(fmt.Sprintf("version %d", t.state.Run.Version))
	}
	if engine.IsNewerState(err) {
		return err
	}
	if err != nil {
		return processor.Fail(processor.ReasonBadState, "the state of the run cannot be read: %w", err).NonRetryable()
	}
	if t.template, err = t.flows.templateOfRun(t.ctx, t.key.Namespace, t.state); err != nil {
		return err
	}
	if err := t.state.Run.Fits(t.template.plan); err != nil {
		return processor.Fail(processor.ReasonBadState, "%w", err).NonRetryable()
	}
	t.decide()
	t.before.row = t.change()
	t.before.shown = t.shownStatus(t.before.row.Status)
	return nil
}

func (t *task) decide() {
	t.before.steps = t.state.Run.Steps
	t.decision = flow.Decide(t.template.plan, t.state.Run, t, t.now)
}

// create stores a run, and begins it unless it has to wait.
func (t *task) create() error {
	var o command
	if err := json.Unmarshal(t.request.GetArgs(), &o); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	if o.Method != methodStart {
		return processor.Reject(processor.ReasonBadArgs, "the first command of a run must be %s", methodStart)
	}
	t.by = process.Actor{Name: o.Actor, Source: o.Source}
	var err error
	if o.Invalid != "" {
		t.reject(outcomeInvalid, "", "%s", o.Invalid)
		return nil
	}
	if t.template, err = t.flows.templateToStart(t.ctx, t.key, &o); errors.Is(err, process.ErrTemplateNotFound) {
		t.reject(outcomeNotFound, "", "%s", noTemplate(o.Type, o.Version))
		return nil
	} else if err != nil {
		return err
	}
	payload, err := valueOf(o.Payload)
	if err != nil {
		return err
	}
	if o.Parent != "" || o.CronID != "" { // a run from a run or a cron was not checked before
		if t.checked(&o, payload); t.removes {
			return nil
		}
	}
	t.payload = orNull(payload)
	t.state = &state{
		Type: o.Type, Version: t.template.Source.GetVersion(), Stored: t.template.stored, Created: t.now, Scope: o.Scope, ScopeID: o.ScopeID, Payload: o.Payload,
		Run: flow.NewState(t.template.plan),
	}
	if asked := t.request.GetContext(); tracing.OfText(asked).IsValid() {
		t.state.Trace = string(asked)
	}
	if len(o.Payload) > maxKeptPayload {
		t.state.Payload, t.state.Large = nil, true
	}
	t.created = &flows.NewRun{
		TemplateType: o.Type, RunTime: o.RunTime, FireTime: o.FireTime, Scope: o.Scope, ScopeID: o.ScopeID,
		CronID: o.CronID, ParentRunID: o.Parent, RepeatOf: o.RepeatOf, Payload: o.Payload,
	}
	if started, err := t.enter(payload); err != nil || !started {
		return err
	}
	t.answer = &answered{Outcome: outcomeStarted, Request: o.Request}
	t.decide()
	switch {
	case t.state.Blocked != "":
	case o.RunTime.After(t.now):
		t.state.Run.RunTime = o.RunTime
	default:
		return t.decision.Start()
	}
	return nil
}

// checked rejects a run that its template does not allow to start, or whose payload violates the
// schema.
func (t *task) checked(o *command, payload *structpb.Value) {
	problems := t.template.CheckPayload(payload)
	switch {
	case !t.template.enabled:
		t.reject(outcomeDisabled, "", "template %s is disabled", o.Type)
	case o.CronID != "" && !t.template.Schedulable():
		t.reject(outcomeDisabled, "", "%s", notSchedulable(o.Type))
	case len(problems) > 0:
		t.reject(outcomeInvalid, "", "%s", invalid(problems))
	}
}

// enter requests the dedupe key of the run. started reports whether the run may be stored.
func (t *task) enter(payload *structpb.Value) (started bool, err error) {
	s := t.template.scope(t.key.Namespace, "", t.runID)
	if !s.Alone && !s.Once {
		return true, nil
	}
	s.DedupeKey = t.template.DedupeKey(t.state.Scope, t.state.ScopeID, payload)
	if s.DedupeKey == "" {
		return true, nil
	}
	t.created.DedupeKey = s.DedupeKey
	holder, err := flows.Enter(t.ctx, t.flows.store, s)
	switch {
	case err != nil:
		return false, err
	case holder.Done != "":
		t.reject(outcomeDone, holder.Done, "run %s of the same scope has succeeded, and its template is not repeatable", holder.Done)
		return false, nil
	case holder.RunID != "" && t.template.rejectsDuplicates():
		t.reject(outcomeExists, holder.RunID, "run %s of the same scope has not ended", holder.RunID)
		return false, nil
	}
	if s.Alone {
		t.state.Key = s.DedupeKey
	}
	if holder.RunID != "" {
		t.state.Blocked = holder.RunID
		if t.template.Concurrency() == progressorv1.ScopePolicy_SCOPE_POLICY_CANCEL_SAME_SCOPE {
			t.sendCommand(holder.RunID, &command{Method: methodCancel, Reason: "run " + t.runID + " of the same scope replaces it"})
		}
	}
	return true, nil
}

// reject answers that the run does not start. Its process is removed.
func (t *task) reject(outcome, holder, format string, args ...any) {
	t.answer, t.removes = &answered{Outcome: outcome, Holder: holder, Message: fmt.Sprintf(format, args...)}, true
}

// sendCommand sends a command to another run of the namespace.
func (t *task) sendCommand(runID string, o *command) {
	t.messages = append(t.messages, commandTo(keyOf(t.key.Namespace, runID), o))
}

// commandTo returns the message with a command to a run.
func commandTo(key process.Key, o *command) storage.Message {
	args, _ := encode(o) // cannot fail: plain fields
	return storage.Message{Kind: storage.MessageNotify, Target: key, Args: args}
}

// tick handles everything that is due.
func (t *task) tick() error {
	s := t.state.Run
	if s.Mode == flow.ModeEnded {
		return nil // it was reopened, and has not received a command yet
	}
	if err := t.startClock(); err != nil {
		return err
	}
	looked := map[int]bool{}
	for _, due := range s.DueNow(t.now) {
		var err error
		switch {
		case due.Index == noIndex:
			err = t.endDue(place{due.Step, noIndex})
		case !looked[due.Step]:
			looked[due.Step] = true
			err = t.endDueItems(due.Step)
		}
		if err != nil {
			return err
		}
	}
	return t.decision.Tick()
}

// startClock moves the deadline of a run that would exceed its timeout now, if its first step began
// later than the clock was set, or has not begun because no worker has taken a job yet.
func (t *task) startClock() error {
	s, timeout := t.state.Run, t.template.plan.Timeout
	if s.Mode != flow.ModeRunning || s.Deadline.IsZero() || s.Deadline.After(t.now) {
		return nil
	}
	first, err := flows.FirstStart(t.ctx, t.flows.store, t.key.Namespace, t.runID, s.Deadline.Add(-timeout))
	if err != nil {
		return t.faulted(err)
	}
	if first.IsZero() {
		first = t.now
	}
	s.Deadline = first.UTC().Add(timeout)
	return nil
}

// maxDueItems limits the number of due items that one task ends.
const maxDueItems = 500

// endDueItems ends the due items of a step, and sets the deadline of the next ones.
func (t *task) endDueItems(step int) error {
	source := t.template.Steps[step].Source
	items, err := flows.DueItems(
		t.ctx, t.flows.store, t.key.Namespace, t.runID, source.GetStepId(), source.GetTimeout().AsDuration(), maxDueItems+1)
	if err != nil {
		return t.faulted(err)
	}
	t.state.Run.ClearDeadline(step)
	due := 0
	for ; due < len(items); due++ {
		if at := items[due].Due; due == maxDueItems || at.After(t.now) {
			t.state.Run.SetDeadline(step, int(items[due].Index), at)
			break
		}
	}
	for _, item := range items[:due] {
		if err := t.endDue(place{step, int(item.Index)}); err != nil {
			return err
		}
	}
	return nil
}

// endDue ends a step or an item that is due.
func (t *task) endDue(p place) error {
	if t.decision.Status(p.step) != flow.Open {
		return nil // it has ended with an earlier one
	}
	o := flow.Outcome{Step: p.step, Index: p.index, Round: t.state.Run.Round, Status: flow.Succeeded}
	switch t.template.Steps[p.step].Action {
	case flow.ActionWait:
		o.Status = t.overdue(p)
	case flow.ActionProcess, flow.ActionRun:
		o.Status, o.Overdue = flow.Failed, true
		timeout := t.template.Steps[p.step].Source.GetTimeout().AsDuration()
		t.ends[p] = failed(process.ReasonTimeout, "it did not end within "+durations.Exact(timeout))
	case flow.ActionJob, flow.ActionDelay:
	}
	_, err := t.decision.Ended(o)
	return err
}

// overdue ends a wait that is due.
func (t *task) overdue(p place) flow.StepStatus {
	w := t.template.Steps[p.step].Source.GetWait()
	switch w.GetDueAction() {
	case progressorv1.WaitAction_DUE_ACTION_SKIP:
		t.ends[p] = &end{reason: "no answer arrived in time"}
		return flow.Skipped
	case progressorv1.WaitAction_DUE_ACTION_SUCCEED:
		text, _ := resultJSON("due_result", w.GetDueResult()) // cannot fail: it was checked with the template
		t.ends[p] = &end{result: text}
		return flow.Succeeded
	}
	t.ends[p] = &end{failure: &progressorv1.Failure{Reason: process.ReasonTimeout, Message: "no answer arrived within " + durations.Exact(w.GetDue().AsDuration())}}
	return flow.Failed
}

func (t *task) passedTimeout() string {
	return "the run passed its timeout of " + durations.Exact(t.template.plan.Timeout)
}
