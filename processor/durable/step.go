package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/processor"
)

// stepMargin is how long before the end of an attempt the context of a step ends, so that its
// failure can still be stored. A step gets at least 9/10 of the remaining time.
const stepMargin = time.Second

// maxBackoff is the maximum factor by which the wait between two tries of a step grows.
const maxBackoff = 100

// StepOption configures a Step.
type StepOption interface{ apply(o *stepOptions) }

type stepOptions struct {
	tries int
	wait  time.Duration
	undo  any // an undoOption[T], or nil
}

type stepOptionFunc func(o *stepOptions)

func (f stepOptionFunc) apply(o *stepOptions) { f(o) }

// Retry lets a step that returns an error run up to tries times in total. It waits before the
// second try, twice as long before the third, and so on, at most 100 times as long. The process is
// free during the wait. Errors of processor.Reject, and non-retryable ones of processor.Fail, are
// final.
func Retry(tries int, wait time.Duration) StepOption {
	return stepOptionFunc(func(o *stepOptions) { o.tries, o.wait = tries, wait })
}

type undoOption[T any] struct {
	f func(context.Context, T) error
}

func (u undoOption[T]) apply(o *stepOptions) { o.undo = u }

// Undo sets the function that undoes the step. If the function of the process returns an error, or
// the process is cancelled, the completed steps are undone, newest first, each with the value of
// its step. An undo that returns an error is retried by the retry policy of the namespace.
func Undo[T any](f func(context.Context, T) error) StepOption { return undoOption[T]{f} }

// undo undoes a step of the journal.
type undo func(ctx context.Context) error

// stepRun is a step that is not in the journal yet.
type stepRun struct {
	name  string
	tries int
	wait  time.Duration
	undo  bool
	body  func(ctx context.Context) (any, error)

	// settle is nil unless the step is a Tx: see txStep.settle.
	settle func(failed error) (any, error)
	// adopt registers the undo of a step whose value the function has not taken.
	adopt func(value json.RawMessage)
}

// Step runs body once and returns its value, or a *StepError. Afterwards, it returns the same
// result from the journal, which contains the value as JSON. Without Retry, the body runs once.
//
// The body must end within the namespace's step_timeout. Its context ends shortly before. It may
// run again only if a crash prevents its result from being stored: use StepKey to make its effects
// idempotent.
func Step[T any](ctx Ctx, name string, body func(context.Context) (T, error), opts ...StepOption) (T, error) {
	return runStep[T](ctx, name, opts, func(step *stepRun) {
		step.body = func(ctx context.Context) (any, error) { return body(ctx) }
	})
}

// runStep returns the value of a step. If the journal does not contain it, setBody sets the body
// that returns it.
func runStep[T any](ctx Ctx, name string, opts []StepOption, setBody func(step *stepRun)) (T, error) {
	b := ctx.branch
	full := b.name(kindStep, name)
	o := stepOptions{tries: 1}
	for _, opt := range opts {
		opt.apply(&o)
	}
	undo, ok := o.undo.(undoOption[T])
	if o.undo != nil && !ok {
		b.owner.misuse("the undo of step %s takes a type that differs from the one that the step returns", full)
	}
	if o.tries < 1 || o.wait < 0 {
		b.owner.misuse("Retry of step %s: must have at least 1 try and a wait of 0 or more", full)
	}
	decoded := func(text json.RawMessage) T {
		value := decode[T](b, "the value of step "+full, text)
		if undo.f != nil {
			b.owner.setUndo(full, func(ctx context.Context) error { return undo.f(ctx, value) })
		}
		return value
	}
	e, ended := b.owner.journal.find(kindStep, full)
	if !ended {
		step := &stepRun{name: full, tries: o.tries, wait: o.wait, undo: undo.f != nil,
			adopt: func(text json.RawMessage) { decoded(text) }}
		setBody(step)
		b.await(&wait{ready: func() bool { return b.owner.journal.has(kindStep, full) }, step: step})
		e, _ = b.owner.journal.find(kindStep, full)
	}
	if e.Error != nil {
		var zero T
		failed := *e.Error
		failed.Step = full
		return zero, &failed
	}
	value := decoded(e.Value)
	if b.owner.check != nil && e.Undo && undo.f == nil && !e.Skipped && !b.owner.journal.has(kindUndo, full) {
		b.owner.check.differs(kindStep, full, "no longer has an Undo: if the function fails, it ends in ERROR")
	}
	return value, nil
}

// Run is Step for a body without a value.
func Run(ctx Ctx, name string, body func(context.Context) error, opts ...StepOption) error {
	_, err := Step(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, body(ctx) }, opts...)
	return err
}

// decode decodes a value of the journal. Fields that T does not have are ignored.
func decode[T any](b *branch, what string, text json.RawMessage) T {
	var value T
	if b.owner.check != nil && bytes.Equal(text, assumedValue) {
		return assumed[T](b.owner.check)
	}
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return value
	}
	if err := json.Unmarshal(text, &value); err != nil {
		b.owner.mismatch("%s in the journal cannot be decoded as %T", what, value)
	}
	if b.owner.check != nil {
		b.owner.check.decoded(what, text, new(T))
	}
	return value
}

// stepKey is the key of the stepBody in the context of a body.
type stepKey struct{}

// stepBody is the body of a step or undo that runs.
type stepBody struct {
	key string
	run *run
}

// StepKey returns a key for the effects of the step or undo whose body has this context. It is the
// same each time the body runs, and differs from the keys of all other steps and processes,
// including an earlier process with the same ID. A completed step that a repair runs again has a
// new key.
//
//	charge, err := bank.Charge(c, amount, bank.IdempotencyKey(durable.StepKey(c)))
//
// It returns the empty string for another context.
func StepKey(ctx context.Context) string {
	body, _ := ctx.Value(stepKey{}).(stepBody)
	return body.key
}

// keyOf returns the key of a step. The prefix of its name is empty or "undo:".
func (r *run) keyOf(prefix, name string) string {
	p := r.request.GetProcess()
	key := fmt.Sprintf("%s/%s/%d.%d/%s%s", p.GetNamespace(), p.GetProcessId(), p.GetCreatedTime().AsTime().UnixMicro(),
		r.journal.first, prefix, name) // a removed process may be created again, with the same event numbers
	if n := r.journal.reruns[name]; n > 0 { // otherwise services would return the result of the forgotten run
		key += "~" + strconv.Itoa(n+1)
	}
	return key
}

// stepContext returns the context of a body. The prefix is that of keyOf.
func (r *run) stepContext(prefix, name string) (context.Context, context.CancelFunc) {
	ctx := context.WithValue(r.ctx, stepKey{}, stepBody{r.keyOf(prefix, name), r})
	deadline, ok := r.ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(stepMargin, time.Until(deadline)/10)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// runSteps runs the bodies of steps in parallel, and adds their results to the journal. It returns
// the context's error, or the failure of a body that panicked or misused an operation. After such a
// failure, the journal contains the results of the other steps.
func (r *run) runSteps(steps []*stepRun) error {
	values, errs, ended := make([]any, len(steps)), make([]error, len(steps)), make([]bool, len(steps))
	var running sync.WaitGroup
	for i, step := range steps {
		running.Add(1)
		ctx, cancel := r.stepContext("", step.name)
		early := r.takeEarly(step)
		r.body("the body of step "+step.name, func() {
			if early != nil {
				values[i], errs[i] = early.wait(ctx, step.body)
			} else {
				values[i], errs[i] = step.body(ctx)
			}
			ended[i] = true
		}, func() {
			cancel()
			running.Done()
		})
	}
	running.Wait()
	if err := r.ctx.Err(); err != nil { // nothing can be stored, and bodies may have failed because of it
		return err
	}
	for i, step := range steps {
		if ended[i] {
			r.stepEnded(step, values[i], errs[i])
		}
	}
	return r.failure()
}

// stepEnded adds the result of a step to the journal.
func (r *run) stepEnded(step *stepRun, value any, err error) {
	var text json.RawMessage
	if err == nil {
		text, err = encodeValue(value)
	}
	if r.journal.bytes+len(text) > maxStepBytes {
		if step.settle != nil {
			return // the next task finds its result in the table
		}
		err = processor.Fail(ReasonBadValue, "the values of the steps of one task have more than %d bytes in total",
			maxStepBytes).NonRetryable()
	}
	if err == nil {
		r.journal.add(entry{Kind: kindStep, Name: step.name, Value: text, Undo: step.undo})
		return
	}
	if r.isLast(step, err) {
		r.journal.add(entry{Kind: kindStep, Name: step.name, Error: recorded(err)})
		return
	}
	wait := step.wait
	for range r.journal.tries[step.name] {
		wait = min(2*wait, maxBackoff*step.wait)
	}
	r.journal.add(entry{Kind: kindTry, Name: step.name, Error: recorded(err)})
	delete(r.due, step.name)
	r.effects.setTimer(retryTimer+step.name, wait)
}

// encodeValue encodes the value of a step. Its error is final, because another try would repeat the
// effect.
func encodeValue(value any) (json.RawMessage, error) {
	text, err := encode(value)
	if err != nil {
		return nil, processor.Fail(ReasonBadValue, "the value %w", err).NonRetryable()
	}
	return text, nil
}

// isLast reports whether a step that returned err has no more tries.
func (r *run) isLast(step *stepRun, err error) bool {
	return r.journal.tries[step.name]+1 >= step.tries || isFinal(err)
}
