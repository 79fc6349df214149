package durable

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// task is an attempt at a task of a process that runs a function.
type task struct {
	*run
	result *processor.ResultBuilder
	began  time.Time
	yields bool // the engine has asked to end the task soon
	defers bool // the task is a call that waits for a reply
	early  bool // the journal contains the results of early steps of this task
}

func (t *task) process() (*progressorv1.ProcessResponse, error) {
	kind := t.request.GetType()
	if kind == progressorv1.TaskType_TASK_TYPE_INIT {
		return t.start()
	}
	if kind == progressorv1.TaskType_TASK_TYPE_REPAIR && len(t.journal.entries) == 0 {
		if _, ok := isByStep(t.request.GetArgs()); ok {
			return nil, processor.Reject(processor.ReasonBadArgs,
				"%s: the function has not started, so it has no steps: repair it with its args", repairField)
		}
		return t.start()
	}
	if len(t.journal.entries) == 0 {
		return nil, processor.Fail(ReasonJournal, "the function was not started").NonRetryable()
	}
	switch kind {
	case progressorv1.TaskType_TASK_TYPE_CALL, progressorv1.TaskType_TASK_TYPE_NOTIFY:
		return t.called()
	case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
		return t.timeout()
	case progressorv1.TaskType_TASK_TYPE_CANCEL:
		return t.cancel()
	case progressorv1.TaskType_TASK_TYPE_REPAIR:
		return t.repair()
	default:
		return nil, processor.Fail(processor.ReasonNotHandled, "a durable function does not handle %s", kind).
			NonRetryable()
	}
}

// start starts the function. It runs until its first wait, or until a step that is not an early
// step.
func (t *task) start() (*progressorv1.ProcessResponse, error) {
	if err := t.program.check(t.request); err != nil {
		return nil, err
	}
	if n := len(t.request.GetArgs()); n > maxValueBytes {
		return nil, processor.Reject(processor.ReasonBadArgs, "the args have %d bytes, at most %d are allowed", n,
			maxValueBytes)
	}
	t.journal.origin = t.request.GetTaskId()
	t.addStart(t.request.GetArgs())
	if failed, err := t.advanceOn(nil); failed != nil || err != nil {
		return failed, err
	}
	if steps := t.runnable(); t.mayRunEarly(steps) {
		ended, err := t.runEarly(steps)
		if err != nil {
			return nil, err
		}
		if t.early = ended; ended {
			return t.advanceAndFinish(nil)
		}
	}
	return t.finish(nil)
}

func (t *task) addStart(input json.RawMessage) {
	t.journal.add(entry{Kind: kindStart, Name: t.program.name, Value: input, Versions: t.program.versions})
	if len(t.program.versions) > 0 {
		versions := map[string]any{}
		for name, version := range t.program.versions {
			versions[name] = version
		}
		t.effects.metadata = t.mergeMetadata(map[string]any{"versions": versions})
	}
}

// keptEffects contains what a task stores even if the function fails afterwards.
type keptEffects struct {
	entries []entry
	effects effects
}

func (t *task) keep() keptEffects {
	kept := t.effects
	kept.timers, kept.unset = maps.Clone(kept.timers), maps.Clone(kept.unset)
	kept.commands, kept.replies = slices.Clone(kept.commands), slices.Clone(kept.replies)
	for step := range t.due { // its timer has fired
		if !t.journal.has(kindStep, step) {
			kept.setTimer(retryTimer+step, 0)
		}
	}
	return keptEffects{entries: slices.Clone(t.journal.unsaved()), effects: kept}
}

// advanceAndFinish runs the function after the task has added entries, and returns the result of
// the task.
func (t *task) advanceAndFinish(response []byte) (*progressorv1.ProcessResponse, error) {
	if failed, err := t.advanceOn(response); failed != nil || err != nil {
		return failed, err
	}
	return t.finish(response)
}

// advanceOn runs the function after the task has added entries: a request, or the results of steps.
// If the function then fails, advanceOn returns a result that stores the entries nevertheless. The
// function fails again in the next task, which changes nothing, so a repair can continue it.
func (t *task) advanceOn(response []byte) (failed *progressorv1.ProcessResponse, err error) {
	kept := t.keep()
	if err = t.advance(); err == nil || t.ctx.Err() != nil {
		return nil, err
	}
	addEvents(t.result, kept.entries)
	kept.effects.addTo(t.result)
	return t.result.Response(response).SetTimerAfter(0).Done()
}

// called accepts a call or the end of a child. It does not run steps, because a CALL that fails is
// not retried.
func (t *task) called() (*progressorv1.ProcessResponse, error) {
	if t.request.GetChild() != nil {
		return t.childEnded()
	}
	name, args, err := parseCall(t.request.GetArgs())
	if err != nil {
		return nil, processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	if name != "" && t.journal.ended() != nil {
		return nil, processor.Reject(ReasonNotOpen, "call %q: the function has ended", name)
	}
	if err := t.advance(); err != nil {
		return nil, err
	}
	if name == "" {
		return t.finish(nil)
	}
	q, ok := t.queues[name]
	if !ok || t.returned != nil {
		return nil, processor.Reject(ReasonNotOpen, "the function does not take the call %q now (it takes: %s)",
			name, strings.Join(slices.Sorted(maps.Keys(t.queues)), ", "))
	}
	if t.tooManyCalls(q) {
		return nil, processor.Reject(ReasonTooMany, "the function has not taken earlier calls yet: try again later")
	}
	var response []byte
	if failed := t.bodyAlone("Accept of call "+name, func() { response, err = q.accept(args) }); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	accepted := entry{Kind: kindCall, Name: name, Value: args}
	if t.defers = q.deferred; t.defers {
		accepted.Task = t.request.GetTaskId()
		t.result.DeferResponse()
	}
	t.journal.add(accepted)
	return t.advanceAndFinish(response)
}

// parseCall splits args such as {"pay":{"amount":200}}. The name is empty for {}, which only wakes
// the function.
func parseCall(text []byte) (name string, args json.RawMessage, err error) {
	var calls map[string]json.RawMessage
	if json.Unmarshal(text, &calls) != nil || calls == nil || len(calls) > 1 {
		return "", nil, errors.New(`the args must be an object with one field, the name of the call, as in {"pay":{}}`)
	}
	for name, args = range calls {
		if name == "" {
			return "", nil, errors.New("the name of the call must not be empty")
		}
		if len(args) > maxValueBytes {
			return "", nil, errors.New("the args are too large")
		}
	}
	return name, args, nil
}

// timeout records that a timer fired, or runs steps.
func (t *task) timeout() (*progressorv1.ProcessResponse, error) {
	name := t.request.GetTimerName()
	if step, ok := strings.CutPrefix(name, retryTimer); ok {
		t.due[step] = true
	} else if t.journal.has(kindTimer, name) && !t.journal.has(kindFired, name) {
		t.journal.add(entry{Kind: kindFired, Name: name})
	}
	if err := t.advance(); err != nil {
		return nil, err
	}
	for t.returned == nil && t.journal.ended() == nil {
		steps := t.runnable()
		if len(steps) == 0 && !t.isFlushing() {
			break
		}
		// the entries that a step depends on must be stored before the step has an effect
		if len(t.journal.unsaved()) > 0 {
			if stored, err := t.checkpoint(); err != nil {
				return nil, err
			} else if !stored || t.yields {
				break
			}
		}
		if err := t.runSteps(steps); err != nil {
			return t.stepsFailed(err)
		}
		if failed, err := t.advanceOn(nil); failed != nil || err != nil {
			return failed, err
		}
	}
	return t.finish(nil)
}

// stepsFailed ends a task with a step that panicked or misused an operation. The result stores the
// results of the steps that ran at the same time. If there are none, stepsFailed returns err.
func (t *task) stepsFailed(err error) (*progressorv1.ProcessResponse, error) {
	if len(t.journal.unsaved()) == 0 {
		return nil, err
	}
	t.scheduleSteps()
	return t.done(nil)
}

// repair continues a function after a failure that was not an error of the function. If the
// function had ended with an error, it starts again. A repair by step continues it in both cases.
func (t *task) repair() (*progressorv1.ProcessResponse, error) {
	if request, ok := isByStep(t.request.GetArgs()); ok {
		return t.repairSteps(request)
	}
	if t.journal.ended() == nil {
		if len(t.request.GetArgs()) > 0 {
			return nil, processor.Reject(processor.ReasonBadArgs,
				"the function has not ended: a repair without args continues it, and one by step changes its steps")
		}
		return t.result.SetTimerAfter(0).Done()
	}
	input := t.journal.entries[0].Value
	if len(t.request.GetArgs()) > 0 {
		if err := t.program.check(t.request); err != nil {
			return nil, err
		}
		input = t.request.GetArgs()
	}
	if err := t.advance(); err != nil { // to know which calls the function has taken
		return nil, err
	}
	return t.restart(input)
}

// restart begins a new history. The function starts in the next task.
func (t *task) restart(input json.RawMessage) (*progressorv1.ProcessResponse, error) {
	kept := t.untakenCalls()
	t.rejectOpen(kept)
	for _, name := range slices.Concat(t.journal.pendingTimers(), t.journal.pendingRetries()) {
		t.effects.unsetTimer(name)
	}
	clear(t.effects.timers)
	old := t.journal
	t.journal = newJournal(old.first)
	t.addStart(input)
	for _, e := range kept {
		t.journal.add(e)
	}
	addEvents(t.result, t.journal.entries)
	t.effects.addTo(t.result)
	return t.result.RestartHistory().SetTimerAfter(0).Done()
}

// finish returns the result of the task, after the function has run as far as it can.
func (t *task) finish(response []byte) (*progressorv1.ProcessResponse, error) {
	if t.journal.ended() != nil {
		return t.finishFailed(response)
	}
	if t.returned == nil {
		t.scheduleSteps()
		return t.done(response)
	}
	err := t.returned.err
	_, cause := causeOf(err)
	if r, ok := errors.AsType[*processor.RejectionError](cause); ok && t.isFresh() {
		return nil, bounded(r)
	}
	if again, ok := restartOf(err); ok {
		if t.early { // the keys of the steps after the restart depend on the stored steps
			t.result.SetTimerAfter(0)
			return t.done(response)
		}
		input, bad := encode(again.input)
		if bad == nil {
			t.result.Response(response)
			return t.restart(input)
		}
		err = processor.Fail(ReasonBadValue, "the input of Restart %w", bad)
	}
	name := t.journal.entries[0].Name
	switch {
	case err == nil && (response != nil || t.defers): // this task answers a call, and the next one returns the value
	case err == nil:
		t.rejectOpen(nil)
		t.journal.add(entry{Kind: kindEnd, Name: name, Value: t.returned.value})
		t.result.Complete()
		return t.done(t.returned.value)
	default:
		t.journal.add(entry{Kind: kindFail, Name: name, Error: recorded(err)})
	}
	t.result.SetTimerAfter(0)
	return t.done(response)
}

// isFresh reports whether a rejection removes the process: this is its first task, and no step has
// run.
func (t *task) isFresh() bool {
	return t.request.GetType() == progressorv1.TaskType_TASK_TYPE_INIT && !t.early
}

// scheduleSteps sets the timers of the tasks that run the steps for which the function waits.
func (t *task) scheduleSteps() {
	for _, step := range t.steps() {
		if t.due[step.name] { // only the task of this timer may run it
			t.effects.setTimer(retryTimer+step.name, 0)
		}
	}
	for _, step := range t.runnable() {
		if !t.due[step.name] {
			t.result.SetTimerAfter(0)
		}
	}
	if t.isFlushing() {
		t.result.SetTimerAfter(0)
	}
}

// isFlushing reports whether the function waits until its new entries are stored.
func (t *task) isFlushing() bool {
	return slices.ContainsFunc(t.branches, func(b *branch) bool { return b.wait != nil && b.wait.flush })
}

func (t *task) done(response []byte) (*progressorv1.ProcessResponse, error) {
	addEvents(t.result, t.journal.unsaved())
	t.effects.addTo(t.result)
	return t.result.Response(response).Done()
}

func addEvents(result *processor.ResultBuilder, entries []entry) {
	for _, e := range entries {
		result.Event(e.encode())
	}
}

// mergeMetadata returns the metadata of the process with these fields. A nil field is removed.
func (r *run) mergeMetadata(fields map[string]any) map[string]any {
	merged := r.effects.metadata
	if merged == nil {
		merged = r.request.GetProcess().GetMetadata().AsMap()
	}
	merged = maps.Clone(merged)
	maps.Copy(merged, fields)
	maps.DeleteFunc(merged, func(_ string, v any) bool { return v == nil })
	return merged
}
