package flows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
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
	Wait    json.RawMessage `json:"wait,omitempty"`    // see startFields
	Blocked string          `json:"blocked,omitempty"` // ID of the run that it waits for
	Cancel  string          `json:"cancel,omitempty"`  // why it was asked to end
	Inputs  inputs          `json:"inputs,omitempty"`
	Timer   time.Time       `json:"timer,omitzero"`   // value of the default timer
	Began   time.Time       `json:"began,omitzero"`   // when the first step began; zero until a step reports it
	Written time.Time       `json:"written,omitzero"` // last write of the run's row only because steps had changed
	Trace   string          `json:"trace,omitempty"`  // trace context of the request that started the run
	Run     *flow.State     `json:"run"`
}

// maxKeptPayload is the maximum size of a payload that is kept in the state, in bytes.
const maxKeptPayload = 1 << 10

const noIndex = flow.NoIndex

// stepRef identifies a step or an item.
type stepRef struct{ step, index int }

// basis is the input of a decision about a run. It has no access to the database, so that decisions
// depend only on facts that were loaded before.
type basis struct {
	key      process.Key
	runID    string
	now      time.Time
	state    *state
	template *template
	facts    facts
	jobs     interface { // see Jobs
		Convert(path string, r *progressorv1.EnqueueRequest) (*jobs.NewJob, error)
	}
	lists *lists
}

// task is one task of a run's process.
type task struct {
	*actor.Task
	basis
	flows    *Flows
	before   priorRun
	decision *flow.Decision

	by       process.Actor
	attempts map[stepRef]attemptFacts // facts about the jobs that end in this task
	failed   []failedJob              // failed jobs whose ends this task handles
	changes
}

// changes are the consequences of a task.
type changes struct {
	created       *flows.NewRun // set for an INIT task
	removes       bool          // the run does not start
	cancels       bool          // a command to end the run was received
	reply         *reply
	rows          map[stepRef]*flows.StepChange
	order         []stepRef // the keys of rows, in order
	events        []*jobs.Event
	messages      []storage.Message
	endsSuspended []string // IDs of steps whose suspended processes must be ended
}

// priorRun is the state of the run before the task changes it.
type priorRun struct {
	row   flows.Change
	ended bool   // the run has ended, and was reopened for a retry
	shown string // see shownStatus; "" if the task creates the run
	steps string // status letters of the steps before the decision
}

func (f *Flows) newTask(t *actor.Task) *task {
	return &task{
		Task: t, flows: f, basis: basis{
			key: t.Key, runID: t.Key.ProcessID[len(process.FlowPrefix):], now: t.Now, facts: newFacts(),
			jobs: f.jobs, lists: &f.lists,
		},
		attempts: map[stepRef]attemptFacts{}, changes: changes{rows: map[stepRef]*flows.StepChange{}},
	}
}

// read decodes the state, and reads the version of the template that the run uses.
func (t *task) read() error {
	t.state = &state{}
	err := actor.Decode(t.Request.GetProcess().GetAuxState(), t.state)
	if err == nil && t.state.Run == nil {
		err = errors.New("it has no steps")
	}
	if err == nil && t.state.Run.IsNewer() {
		err = actor.NewerState(fmt.Sprintf("version %d", t.state.Run.Version))
	}
	if err != nil {
		return actor.BadState(fmt.Errorf("the state of the run cannot be read: %w", err))
	}
	if t.template, err = t.flows.templateOfRun(t.Ctx, t.key.Namespace, t.state); err != nil {
		return err
	}
	if err := t.state.Run.Fits(t.template.plan); err != nil {
		return actor.BadState(err)
	}
	t.before.row, t.before.ended = t.change(), t.state.Run.Mode == flow.ModeEnded
	t.before.shown = t.shownStatus(t.before.row.Status)
	return t.decide() // without inputs: sets a decision without effects
}

// abort ends the run because its process is cancelled.
func (t *task) abort() error {
	t.state.Cancel, t.cancels = string(t.Request.GetArgs()), true
	return t.decide(flow.Input{Kind: flow.InputAbort})
}

// create stores a run, and begins it unless it has to wait.
func (t *task) create() error {
	var o command
	if err := json.Unmarshal(t.Request.GetArgs(), &o); err != nil {
		return processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	if o.Method != methodStart {
		return processor.Reject(processor.ReasonBadArgs, "the first command of a run must be %s", methodStart)
	}
	t.by = o.by()
	var err error
	if o.Invalid != "" {
		t.reject(outcomeInvalid, "", "%s", o.Invalid)
		return nil
	}
	if t.template, err = t.flows.templateToStart(t.Ctx, t.key, &o); errors.Is(err, process.ErrTemplateNotFound) {
		t.reject(outcomeNotFound, "", "%s", noTemplate(o.Type, o.Version))
		return nil
	} else if err != nil {
		return err
	}
	payload, err := wire.Value(o.Payload)
	if err != nil {
		return err
	}
	// a run was not checked before if another run, a cron or a process starts it
	if o.Parent != "" || o.CronID != "" || o.Unchecked {
		if t.checkStart(&o, payload); t.removes {
			return nil
		}
	}
	t.facts.payload = orNull(payload)
	t.state = &state{
		Type: o.Type, Version: t.template.Source.GetVersion(), Stored: t.template.stored, Created: t.now,
		Scope: o.Scope, ScopeID: o.ScopeID, Payload: o.Payload, Wait: o.Wait,
		Run: flow.NewState(t.template.plan),
	}
	if asked := t.Request.GetContext(); tracing.OfText(asked).IsValid() {
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
	t.reply = &reply{Outcome: outcomeStarted, Request: o.Request}
	switch {
	case t.state.Blocked != "":
	case o.RunTime.After(t.now):
		t.state.Run.RunTime = o.RunTime
	default:
		return t.decide(flow.Input{Kind: flow.InputStart})
	}
	return t.decide() // without inputs: sets a decision without effects
}

// checkStart rejects a run that its template does not allow to start, or whose payload violates the
// schema.
func (t *task) checkStart(o *command, payload *structpb.Value) {
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
	holder, err := flows.Enter(t.Ctx, t.flows.store, s)
	switch {
	case err != nil:
		return false, err
	case holder.Done != "":
		t.reject(outcomeDone, holder.Done, "run %s of the same scope has succeeded, and its template is not repeatable",
			holder.Done)
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
			t.sendCommand(holder.RunID, &command{
				Method: methodCancel, Reason: "run " + t.runID + " of the same scope replaces it",
			})
		}
	}
	return true, nil
}

// reject responds that the run does not start. The process of the run is removed.
func (t *task) reject(outcome, holder, format string, args ...any) {
	t.reply, t.removes = &reply{Outcome: outcome, Holder: holder, Message: fmt.Sprintf(format, args...)}, true
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

// tick handles everything that is due in the run.
func (t *task) tick() error {
	s := t.state.Run
	t.state.Timer = time.Time{}
	if s.Mode == flow.ModeEnded {
		return nil // the run was reopened, and has not received a command yet
	}
	if err := t.startClock(); err != nil {
		return err
	}
	var inputs []flow.Input
	read := map[int]bool{}
	for _, due := range s.DueNow(t.now) {
		switch {
		case due.Index == noIndex:
			inputs = append(inputs, t.dueEnd(stepRef{due.Step, noIndex}))
		case !read[due.Step]:
			read[due.Step] = true
			items, err := t.dueItems(due.Step)
			if err != nil {
				return err
			}
			inputs = append(inputs, items...)
		}
	}
	return t.decide(append(inputs, flow.Input{Kind: flow.InputTick})...)
}

// startClock moves the deadline of a run whose timeout would expire now. It does so if the first
// step began after the time from which the timeout was counted, or has not begun because no worker
// has taken a job yet.
func (t *task) startClock() error {
	s, timeout := t.state.Run, t.template.plan.Timeout
	if s.Mode != flow.ModeRunning || s.Deadline.IsZero() || s.Deadline.After(t.now) {
		return nil
	}
	first, err := flows.FirstStart(t.Ctx, t.flows.store, t.key.Namespace, t.runID, s.Deadline.Add(-timeout))
	if err != nil {
		return readError(err)
	}
	if first.IsZero() {
		first = t.now
	}
	s.Deadline = first.UTC().Add(timeout)
	return nil
}

// maxDueItems limits the number of due items that one task ends.
const maxDueItems = 500

// dueItems returns the ends of the due items of a step, and sets the time at which the next ones
// are due.
func (t *task) dueItems(step int) (ends []flow.Input, err error) {
	source := t.template.Steps[step].Source
	items, err := flows.DueItems(
		t.Ctx, t.flows.store, t.key.Namespace, t.runID, source.GetStepId(), source.GetTimeout().AsDuration(),
		maxDueItems+1)
	if err != nil {
		return nil, readError(err)
	}
	t.state.Run.ClearDeadline(step)
	for n, item := range items {
		if n == maxDueItems || item.Due.After(t.now) {
			t.state.Run.SetDeadline(step, int(item.Index), item.Due)
			break
		}
		ends = append(ends, t.dueEnd(stepRef{step, int(item.Index)}))
	}
	return ends, nil
}

// dueEnd returns the end of a step or an item that is due. It has no effect if an earlier end in
// this task ends the step.
func (t *task) dueEnd(p stepRef) flow.Input {
	o := flow.Outcome{Step: p.step, Index: p.index, Round: t.state.Run.Round, Status: flow.Succeeded}
	switch s := &t.template.Steps[p.step]; s.Action {
	case flow.ActionWait:
		o.Status, o.End = overdue(s.Source.GetWait())
	case flow.ActionProcess, flow.ActionRun:
		o.Status, o.Overdue = flow.Failed, true
		o.End = failed(process.ReasonTimeout,
			"it did not end within "+durations.Exact(s.Source.GetTimeout().AsDuration()))
	case flow.ActionJob, flow.ActionDelay:
	}
	return flow.Input{Kind: flow.InputEnd, Outcome: o}
}

// overdue returns the end of a wait that is due.
func overdue(w *progressorv1.WaitAction) (flow.StepStatus, *flow.End) {
	switch w.GetDueAction() {
	case progressorv1.WaitAction_DUE_ACTION_SKIP:
		return flow.Skipped, &flow.End{Reason: "no answer arrived in time"}
	case progressorv1.WaitAction_DUE_ACTION_SUCCEED:
		text, _ := resultJSON("due_result", w.GetDueResult()) // cannot fail: it was checked with the template
		return flow.Succeeded, &flow.End{Result: text}
	}
	return flow.Failed, failed(process.ReasonTimeout,
		"no answer arrived within "+durations.Exact(w.GetDue().AsDuration()))
}

func (t *task) passedTimeout() string {
	return "the run exceeded its timeout of " + durations.Exact(t.template.plan.Timeout)
}
