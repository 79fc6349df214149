package durable

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// finishFailed cancels the children of a function that has ended with an error, and undoes its
// steps. Without checkpoints, each undo takes one task. After the last one, the process ends.
func (t *task) finishFailed(response []byte) (*progressorv1.ProcessResponse, error) {
	if t.journal.ended().Kind == kindFail && t.cancelChildren("the parent has failed") {
		t.result.SetTimerAfter(0)
		return t.done(response)
	}
	pending := t.pendingUndos()
	if len(pending) > 0 {
		if len(t.journal.unsaved()) == 0 && t.request.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			if err := t.undoSome(pending); err != nil {
				return nil, err
			}
		}
		t.result.SetTimerAfter(0)
		return t.done(response)
	}
	failed := t.journal.ended()
	if failed.Kind == kindEnd || failed.Error.Rejected {
		t.rejectOpen(nil)
		t.result.Complete()
		return t.done(failed.encode()) // a parent that is a function finds the reason in it
	}
	return nil, processor.Fail(failed.Error.Reason, "%s", failed.Error.Message).NonRetryable()
}

// undoSome undoes steps. It stops if it cannot store one undo before the next begins.
func (t *task) undoSome(names []string) error {
	for n, name := range names {
		if n > 0 {
			if stored, err := t.checkpoint(); err != nil || !stored || t.yields {
				return err
			}
		}
		if err := t.undo(name); err != nil {
			return err
		}
	}
	return nil
}

// cancel undoes all steps in one task, because a CANCEL has only one result. If the attempt is
// lost, the next one repeats the undos that no checkpoint has stored.
func (t *task) cancel() (*progressorv1.ProcessResponse, error) {
	if err := t.advance(); err != nil {
		return nil, err
	}
	clear(t.effects.timers) // the process ends
	clear(t.effects.unset)
	if err := t.settleSteps(); err != nil {
		return nil, err
	}
	for n, name := range t.pendingUndos() {
		if n > 0 || len(t.journal.unsaved()) > 0 {
			if _, err := t.checkpoint(); err != nil {
				return nil, err
			}
		}
		if err := t.undo(name); err != nil {
			return nil, err
		}
	}
	t.cancelChildren("the parent was cancelled")
	return t.done(nil)
}

// settleSteps finds the steps with an Undo whose bodies have ended, but whose results no attempt
// has stored. It adds them to the journal, so that they are undone. These are early steps, and
// steps of Tx whose attempt was lost after the commit. Other steps of Tx can no longer commit.
func (t *task) settleSteps() error {
	for _, b := range t.branches {
		if b.wait == nil || b.wait.step == nil || !b.wait.step.undo {
			continue
		}
		step := b.wait.step
		settle := step.settle
		if early := t.takeEarly(step); early != nil {
			settle = func(cancelled error) (any, error) {
				return early.wait(t.ctx, func(context.Context) (any, error) { return nil, cancelled })
			}
		}
		if settle == nil {
			continue
		}
		if err := t.bodyAlone("the end of step "+step.name, func() {
			value, err := settle(errCancelled)
			if err != nil {
				return
			}
			text, err := encodeValue(value)
			if err != nil {
				return
			}
			step.adopt(text)
			t.journal.add(entry{Kind: kindStep, Name: step.name, Value: text, Undo: true})
		}); err != nil {
			return err
		}
	}
	return nil
}

// pendingUndos returns the completed steps that must be undone, newest first. The function must
// have run before.
func (r *run) pendingUndos() []string {
	var names []string
	for _, e := range slices.Backward(r.journal.entries) {
		_, known := r.undoOf(e.Name)
		if e.Kind == kindStep && e.Error == nil && !e.Skipped && (e.Undo || known) && !r.journal.has(kindUndo, e.Name) {
			names = append(names, e.Name)
		}
	}
	if r.journal.repaired {
		slices.SortStableFunc(names, func(a, b string) int {
			return r.order.place(kindStep, b) - r.order.place(kindStep, a)
		})
	}
	return names
}

func (r *run) setUndo(step string, f undo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undos[step] = f
}

func (r *run) undoOf(step string) (undo, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.undos[step]
	return f, ok
}

// undo undoes a step and adds an entry.
func (r *run) undo(name string) error {
	f, ok := r.undoOf(name)
	if !ok {
		return processor.Fail(ReasonJournal, "step %s must be undone, but the function no longer contains it, "+
			"or it has no Undo", name).NonRetryable()
	}
	ctx, cancel := r.stepContext("undo:", name)
	defer cancel()
	var err error
	if failed := r.bodyAlone("Undo of step "+name, func() { err = f(ctx) }); failed != nil {
		return failed
	}
	if err != nil {
		failure := processor.FailureOf(err)
		return processor.Fail(failure.GetReason(), "undo of step %s: %s", name, failure.GetMessage())
	}
	r.journal.add(entry{Kind: kindUndo, Name: name})
	return nil
}
