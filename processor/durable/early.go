package durable

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The INIT task runs the first steps of the function itself if they take at most maxStartWait, so
// that a short function needs only one task. Steps that take longer continue while the result of
// the INIT task is stored. The next task, which runs in the same program, waits for them.
const maxStartWait = 2 * time.Millisecond

// maxEarly is the maximum number of early steps of a function.
const maxEarly = 1000

// earlySteps are the steps that INIT tasks have begun, by their keys (see keyOf). A step is removed
// when its INIT task or another task takes its result, or at its deadline.
type earlySteps struct {
	mu    sync.Mutex
	byKey map[string]*earlyStep
}

// earlyStep is a step that an INIT task has begun.
type earlyStep struct {
	cancel context.CancelFunc
	keep   func() bool   // prevents its removal from earlySteps at its deadline
	ended  chan struct{} // closed when the body has ended; then the following fields do not change
	value  any
	err    error
	ok     bool // the body has returned: it did not panic or misuse an operation
}

// mayRunEarly reports whether this task may run steps as early steps. It must be the first attempt
// at an INIT task: a second attempt may follow a crash that the body of a step caused. The next
// task must run in this program. Only the args of the start may be unstored, because a step must
// not depend on anything that a crash could change.
func (t *task) mayRunEarly(steps []*stepRun) bool {
	if len(steps) == 0 || t.returned != nil || t.request.GetType() != progressorv1.TaskType_TASK_TYPE_INIT ||
		t.request.GetAttempt() > 1 || len(t.journal.entries) > 1 || !processor.NextRunsHere(t.ctx) {
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
// the next task runs it again, and fails if it does so again. The error is that of the context.
func (t *task) runEarly(steps []*stepRun) (ended bool, err error) {
	begun := t.beginEarly(steps)
	if begun == nil {
		return false, nil
	}
	timeout := time.NewTimer(maxStartWait)
	defer timeout.Stop()
	for _, early := range begun {
		select {
		case <-early.ended:
			if !early.ok {
				return false, nil
			}
		case <-timeout.C:
			return false, nil
		case <-t.ctx.Done():
			for _, step := range steps {
				t.cancelEarly(step)
			}
			return false, t.ctx.Err()
		}
	}
	for i, step := range steps {
		t.takeEarly(step)
		begun[i].cancel()
		t.stepEnded(step, begun[i].value, begun[i].err)
	}
	return true, nil
}

// beginEarly begins steps. It returns nil if the function has too many early steps.
func (t *task) beginEarly(steps []*stepRun) []*earlyStep {
	all := t.program.early
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.byKey)+len(steps) > maxEarly {
		return nil
	}
	begun := make([]*earlyStep, len(steps))
	for i, step := range steps {
		ctx, cancel := t.earlyContext(step.name)
		early := &earlyStep{cancel: cancel, ended: make(chan struct{})}
		key := t.keyOf("", step.name)
		early.keep = context.AfterFunc(ctx, func() { all.remove(key, early) })
		begun[i], all.byKey[key] = early, early
		t.body("the body of step "+step.name, func() {
			early.value, early.err = step.body(ctx)
			early.ok = true
		}, func() { close(early.ended) })
	}
	return begun
}

// earlyContext returns the context of an early step. It is like that of stepContext, but it does
// not end with the attempt.
func (t *task) earlyContext(name string) (context.Context, context.CancelFunc) {
	ctx, cancel := t.stepContext("", name)
	defer cancel()
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

func (s *earlySteps) remove(key string, early *earlyStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key] == early {
		delete(s.byKey, key)
	}
}

// takeEarly returns the early step that an INIT task has begun for this step, or nil. The caller
// must cancel it when it has the result.
func (r *run) takeEarly(step *stepRun) *earlyStep {
	all := r.program.early
	all.mu.Lock()
	defer all.mu.Unlock()
	key := r.keyOf("", step.name)
	early := all.byKey[key]
	if early != nil {
		early.keep()
		delete(all.byKey, key)
	}
	return early
}

// cancelEarly cancels an early step and waits until its body has ended.
func (r *run) cancelEarly(step *stepRun) {
	if early := r.takeEarly(step); early != nil {
		early.cancel()
		<-early.ended
	}
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
