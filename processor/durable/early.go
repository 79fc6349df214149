package durable

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The INIT task runs the first steps of the function itself if they take at most maxStartWait, so
// that a short function needs only one task. Steps that take longer continue while the result of
// the INIT task is stored. The next task, which runs in the same program, waits for them.
const maxStartWait = 2 * time.Millisecond

// earlySteps are the steps that an INIT task has begun and whose results no task has taken, by
// name. processor.Kept keeps them for the next task.
type earlySteps map[string]*earlyStep

// earlyStep is a step that an INIT task has begun.
type earlyStep struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the body has ended; then the following fields do not change
	value  any
	err    error
	ok     bool // the body has returned: it did not panic or misuse an operation
}

// mayRunEarly reports whether this task may run steps as early steps. It must be the first attempt
// at an INIT task: a second attempt may follow a crash that the body of a step caused. The next
// task must follow in this program. A step must not depend on anything that a crash could change,
// so only the args of the start may be unstored.
func (t *task) mayRunEarly(steps []*stepRun) bool {
	if len(steps) == 0 || t.returned != nil || t.request.GetType() != progressorv1.TaskType_TASK_TYPE_INIT ||
		t.request.GetAttempt() > 1 || len(t.journal.entries) > 1 || len(t.program.versions) > 0 ||
		!processor.KeptOf(t.ctx).Keeps() {
		return false
	}
	for _, step := range steps {
		if step.settle != nil { // a Tx must not commit if its process is rejected
			return false
		}
	}
	_, hasDeadline := t.ctx.Deadline()
	return hasDeadline
}

// runEarly begins steps. If all of them end in time, it adds their results to the journal and
// returns true. Otherwise the next task waits for them. If a body panics or misuses an operation,
// the next task runs the body again, and fails if the body does the same again. The error is that
// of the context.
func (t *task) runEarly(steps []*stepRun) (ended bool, err error) {
	begun := earlySteps{}
	for _, step := range steps {
		begun[step.name] = t.beginEarly(step)
	}
	timeout := time.NewTimer(maxStartWait)
	defer timeout.Stop()
	for _, step := range steps {
		early := begun[step.name]
		select {
		case <-early.ended:
			if early.ok {
				continue
			}
		case <-timeout.C:
		case <-t.ctx.Done():
			begun.drop()
			return false, t.ctx.Err()
		}
		processor.KeptOf(t.ctx).Keep(begun, begun.drop)
		return false, nil
	}
	for _, step := range steps {
		early := begun[step.name]
		early.cancel()
		t.stepEnded(step, early.value, early.err)
	}
	return true, nil
}

// beginEarly begins a step. Its context is like that of stepContext, but it does not end with the
// attempt.
func (t *task) beginEarly(step *stepRun) *earlyStep {
	ctx, cancel := t.stepContext("", step.name)
	defer cancel()
	deadline, _ := ctx.Deadline()
	early := &earlyStep{ended: make(chan struct{})}
	ctx, early.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	t.body("the body of step "+step.name, func() {
		early.value, early.err = step.body(ctx)
		early.ok = true
	}, func() { close(early.ended) })
	return early
}

// drop cancels all steps and waits until their bodies have ended. Their results are lost.
func (s earlySteps) drop() {
	for _, early := range s {
		early.cancel()
	}
	for _, early := range s {
		<-early.ended
	}
	clear(s)
}

// takeEarly returns the early step that an INIT task has begun for this step, or nil. The caller
// must wait for it.
func (r *run) takeEarly(step *stepRun) *earlyStep {
	begun, _ := processor.KeptOf(r.ctx).Value().(earlySteps)
	early := begun[step.name]
	delete(begun, step.name)
	return early
}

// wait returns the result of an early step. If its body has panicked or misused an operation, wait
// returns the result of body.
func (s *earlyStep) wait(ctx context.Context, body func(context.Context) (any, error)) (any, error) {
	defer s.cancel()
	defer context.AfterFunc(ctx, s.cancel)()
	<-s.ended
	if !s.ok {
		return body(ctx)
	}
	return s.value, s.err
}
