package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// origin is where a claim comes from.
type origin struct {
	asked   *trace.SpanContext // of its request, see traces; nil if there is none
	scanned bool               // a scan claimed it
	release func()             // returns its slot
}

// run runs a claim and the tasks that follow it in the same process, or from a run to its step and back. Then it
// returns the slot. The caller has taken the slot and has entered the claim into the crew.
func (e *Engine) run(ns *namespace, c *storage.Claim, from origin) {
	defer e.active.leave()
	defer from.release()
	var known *knownHistory
	for step := 1; ; step++ {
		ns = e.current(ns)
		next, history, ok := e.step(ns, c, known, from, step)
		if !ok {
			return
		}
		c, known, from.asked = next, history, nil
	}
}

// current is a namespace as it is now: it may have been put anew, or paused, since an attempt began.
func (e *Engine) current(ns *namespace) *namespace {
	if current, ok := e.registry.all()[ns.name]; ok {
		return current
	}
	return ns
}

// step makes one attempt and stores its result. It returns the next task to run here: of the process, of the run whose
// step it was, or of a step that begins.
func (e *Engine) step(
	ns *namespace, c *storage.Claim, known *knownHistory, from origin, step int,
) (*storage.Claim, *knownHistory, bool) {
	ctx, cancel := context.WithCancelCause(e.doing)
	defer cancel(nil)
	e.store.Saw(c.TaskID, c.FencingToken)
	if !e.attempts.begin(c, cancel) {
		return nil, nil, false
	}
	defer e.attempts.end(c)
	ctx, span := e.traces.begin(ctx, ns, c, from.asked)
	d, history, given := e.decided(ctx, ns, c, known)
	ns = e.current(ns)
	d.completion.StepTimeout = ns.stepTimeout
	d.completion.GoesOn = !given && !e.draining.Load() && e.isConnected() && !ns.paused && (step < maxSteps || !ns.slots.contended())
	d.completion.StartsOn = d.completion.GoesOn && ns.servable() && !ns.pulled()
	d.completion.Promote = d.completion.GoesOn && e.kinds[c.Kind].Admit == nil
	sendAlong(span, d.completion.Messages)
	if from.scanned {
		e.backlog.begin(c)
		defer e.backlog.end(c)
	}
	saved, err := e.save(ns, c, d)
	endSpan(span, d, time.Time{}, err)
	if err != nil || saved.Next == nil {
		return nil, nil, false
	}
	if saved.Next.ProcessID != c.ProcessID {
		return saved.Next, nil, true // the run whose step has ended, or a step that the run has begun
	}
	return following(c, &d.completion, saved.Next), history.with(&d.completion, saved.Next), true
}

// decided makes the attempt and decides what follows from it. given: it was not made, and its task is given back. A panic, which only
// a fault of the engine or an odd row can cause here, ends this one task.
//
// While a processor works, nothing large stands in the frames above it: what decides is in functions of its own. A thousand attempts that wait for
// processors had stacks of 16 KiB, and have ones of 8.
func (e *Engine) decided(ctx context.Context, ns *namespace, c *storage.Claim, known *knownHistory) (d *decision, history *knownHistory, given bool) {
	ns = e.effectiveConfig(ns, c.Kind)
	defer func() {
		if v := recover(); v != nil {
			e.log.ErrorContext(ctx, "attempt panicked", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID, "panic", v, "stack", string(debug.Stack()))
			d, history, given = e.conclude(ns, c, nil, nil, processor.Fail(process.ReasonPanic, "the engine panicked: %v", v)), nil, false
		}
	}()
	began := time.Now()
	own := e.internalAttempt(c)
	response, history, err := e.attempt(own.in(ctx), ns, c, known)
	if !errors.Is(err, errNotAdmitted) {
		ns.metrics.processed(c.TaskType, began)
		now := time.Now()
		e.minuteStats.processed(now, now.Sub(began))
	}
	interrupted := context.Cause(ctx) != nil && (err != nil || response.GetFailure() != nil)
	if interrupted && errors.Is(context.Cause(ctx), errCancelRequested) {
		return decide(acknowledged(attemptEnd{claim: c, kind: e.kinds[c.Kind]})), history, false
	}
	if interrupted || errors.Is(err, errGivenBack) {
		// Not the processor's doing: the node stops, lost its heartbeat, or cannot serve the namespace.
		return e.givenBack(c, err), history, true
	}
	return e.conclude(e.effectiveConfig(e.current(ns), c.Kind), c, own, response, err), history, false
}

// conclude decides about an attempt that was made.
//
//go:noinline
func (e *Engine) conclude(ns *namespace, c *storage.Claim, own *Attempt, response *progressorv1.ProcessResponse, err error) *decision {
	d := decide(attemptEnd{claim: c, response: response, err: err, retry: ns.retry, random: rand.Float64(), kind: e.kinds[c.Kind]})
	own.goWith(d)
	return d
}

// givenBack gives the task of an attempt back that was not made.
//
//go:noinline
func (e *Engine) givenBack(c *storage.Claim, err error) *decision {
	d := &decision{completion: releaseCompletion(c, e.kinds[c.Kind])}
	d.completion.RetryAfter = pauseOf(err, c.RetryInterval)
	return d
}

// save stores a decision and tells everybody whom it concerns. Where PostgreSQL takes it from nobody, d becomes what was stored instead. An error
// was logged.
func (e *Engine) save(ns *namespace, c *storage.Claim, d *decision) (storage.Saved, error) {
	began := time.Now()
	key := d.completion.Key
	saved, err := e.store.SaveResult(&d.completion)
	if err != nil && !errors.Is(err, process.ErrFenced) && !errors.Is(err, process.ErrUnavailable) && d.completion.Outcome != storage.Retry {
		// PostgreSQL takes the result from nobody: an answer that passed every check here. The task fails, by name.
		e.log.ErrorContext(e.traces.of(c), "result cannot be stored", "namespace", key.Namespace, "process_id", key.ProcessID, "task_id", c.TaskID, "error", err)
		failed := decide(attemptEnd{claim: c, err: &processor.BadResponseError{Err: fmt.Errorf("the result cannot be stored: %w", err)}, kind: e.kinds[c.Kind], workerID: d.workerID})
		failed.completion.StepTimeout, failed.completion.Leased = d.completion.StepTimeout, d.completion.Leased
		*d = *failed
		saved, err = e.store.SaveResult(&d.completion)
	}
	ns.usage.stored(began)
	switch {
	case errors.Is(err, process.ErrFenced):
		ns.metrics.stale.Inc()
		e.log.InfoContext(e.traces.of(c), "late result refused: the attempt is over", "namespace", key.Namespace, "process_id", key.ProcessID, "task_id", c.TaskID, "fencing_token", c.FencingToken)
		e.waiters.recheck(key)
		return saved, err
	case err != nil && e.doing.Err() != nil:
		return saved, err // the drain is over and its task was given back
	case err != nil:
		e.log.ErrorContext(e.traces.of(c), "result not stored", "namespace", key.Namespace, "process_id", key.ProcessID, "task_id", c.TaskID, "error", err)
		e.waiters.recheck(key)
		return saved, err
	}
	ns.metrics.completed(&d.completion, saved, began)
	for _, then := range d.stored {
		then()
	}
	if stored := e.kinds[c.Kind].Stored; stored != nil {
		stored(c, &d.completion, saved.Now)
	}
	e.minuteStats.stored(time.Now())
	e.announce(c, d, &saved)
	return saved, nil
}

// announce wakes who waits for what was stored.
func (e *Engine) announce(c *storage.Claim, d *decision, saved *storage.Saved) {
	if d.completion.Outcome != storage.Retry && !saved.Lost { // of a lost answer only the database knows what became of the process
		e.waiters.deliver(storage.TaskRef{Key: d.completion.Key, TaskID: c.TaskID}, answerOf(d, saved))
	}
	for _, id := range saved.Cancelled {
		e.waiters.deliver(storage.TaskRef{Key: d.completion.Key, TaskID: id}, answer{status: process.TaskStatusCancelled})
	}
	if d.completion.Outcome == storage.Removed || d.completion.Outcome == storage.Rejected && c.TaskType == process.TaskInit || saved.Lost {
		e.waiters.recheck(d.completion.Key)
		e.removals.Store(true)
	}
	e.notifyWatchers(c, d, saved)
	if saved.Deferred {
		e.wakeAll()
	}
	if saved.TimerDelay >= 0 && (saved.Next == nil || saved.TimerDelay > 0) {
		e.timers.alarm(c.Namespace, saved.TimerDelay)
	}
	if len(d.completion.NamedTimers) > 0 {
		e.timers.alarm(c.Namespace, 0) // a scan says how far off they are by the database's clock
	}
	if next := saved.Next; next != nil && next.TaskType.Timer() {
		e.timerLate(next.RunningTime.Sub(next.ScheduledTime))
	}
	if d.completion.Outcome == storage.Retry {
		switch {
		case d.completion.RetryAfter == 0:
			e.calls.wake()
		case !d.completion.Uncounted: // a kind that this node does not know is for others: it must not be the first each time
			e.timers.alarm(c.Namespace, d.completion.RetryAfter)
		}
	}
	if c.TaskType == process.TaskRepair && d.completion.Outcome == storage.Finished {
		e.timers.alarm(c.Namespace, 0) // timers may be due that the error had cancelled
	}
}

// notifyWatchers hands out the events of what was stored; of a change of status the database tells.
func (e *Engine) notifyWatchers(c *storage.Claim, d *decision, saved *storage.Saved) {
	switch outcome := d.completion.Outcome; {
	case saved.Now.IsZero() || saved.Status != c.Status || outcome == storage.Removed:
		e.watchers.recheck(d.completion.Key)
	case outcome == storage.Finished:
		e.watchers.stored(&d.completion, saved.Now)
	}
}

// attempt asks the processor. A request that surely never reached it is made again by the retry policy while the step timeout
// lasts, where nobody else would repeat it: the task keeps its place in the order of its process.
func (e *Engine) attempt(ctx context.Context, ns *namespace, c *storage.Claim, known *knownHistory) (*progressorv1.ProcessResponse, *knownHistory, error) {
	if c.TaskType == process.TaskRemove {
		return nil, nil, nil
	}
	if !e.admits(c) {
		return nil, nil, errNotAdmitted
	}
	if ns.processor == nil {
		return nil, nil, errGivenBack
	}
	timeout, graceful := e.timeoutOf(ctx, ns, c)
	if graceful && timeout <= 0 {
		return nil, nil, errGraceOver
	}
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	history, err := e.historyOf(ns, c, known)
	if err != nil {
		if errors.Is(err, errGivenBack) {
			e.pause(ctx, unreadablePause) // the next attempt would fail as well
		}
		return nil, nil, err
	}
	request, err := wire.Request(c, history.events, history.asked, deadline)
	if err != nil {
		return nil, history, fmt.Errorf("request of %s/%s: %w", c.Namespace, c.ProcessID, err)
	}
	defer ns.usage.processed(ns.usage.begin())
	for try := int32(1); ; try++ {
		response, err := ns.processor.Process(ctx, request)
		e.reached(ns, err)
		if graceful && errors.Is(ctx.Err(), context.DeadlineExceeded) && (err != nil || response.GetFailure() != nil) {
			return nil, history, errGraceOver
		}
		if err == nil || !processor.Unreachable(err) || c.TaskType.RetriedOnFailure() {
			return response, history, err
		}
		wait, again := ns.retry.Next(try, process.ReasonUnavailable, false, rand.Float64())
		if !again && c.Kind == storage.JobKind {
			// A job waits for a busy processor as it would for a free worker: as long as its timeout allows.
			wait, again = ns.retry.Interval(try, rand.Float64()), true
		}
		if !again {
			return nil, history, err
		}
		e.attempts.unreached(c, try, err)
		trace.SpanFromContext(ctx).AddEvent("processor not reached")
		select {
		case <-ctx.Done():
			return nil, history, err
		case <-e.drained:
			return nil, history, errGivenBack // it has not reached its processor: another node may try at once
		case <-time.After(wait):
			if ctx.Err() != nil { // both at the same moment: nothing has reached it, and nothing will
				return nil, history, err
			}
			// The namespace may have another processor by now, or none.
			if ns = e.effectiveConfig(e.current(ns), c.Kind); ns.processor == nil {
				return nil, history, errGivenBack
			}
		}
	}
}

// unreadablePause is how long an attempt waits before it is given back because its history cannot be read.
const unreadablePause = 200 * time.Millisecond

// pause waits until d has passed, ctx ends or the node drains.
func (e *Engine) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-e.drained:
	case <-time.After(d):
	}
}

// reached logs that a processor is away, or is there again: once, not for each of its tasks.
func (e *Engine) reached(ns *namespace, err error) {
	if ns.away == nil {
		return
	}
	switch away := processor.Unreachable(err); {
	case away && ns.away.CompareAndSwap(false, true):
		e.log.Warn("processor not reached; its tasks are tried again by the retry policy", "namespace", ns.name, "error", err)
	case !away && ns.away.Load() && ns.away.CompareAndSwap(true, false):
		e.log.Info("processor reached again", "namespace", ns.name)
	}
}

// following is the next claim of the process: what storage promoted, with the process as the completion has left it.
func following(c *storage.Claim, done *storage.Completion, next *storage.Claim) *storage.Claim {
	next.PreviousStatus, next.StatusChangedTime, next.CreatedTime, next.Kind = c.PreviousStatus, c.StatusChangedTime, c.CreatedTime, c.Kind
	if next.Status != c.Status {
		next.PreviousStatus, next.StatusChangedTime = string(c.Status), next.RunningTime
	}
	next.AuxState, next.Metadata, next.LastEventID = c.AuxState, c.Metadata, c.LastEventID
	if done.Outcome == storage.Finished {
		next.LastEventID += int64(len(done.Events))
		if done.AuxState != nil {
			next.AuxState = done.AuxState
		}
		if done.Metadata != nil {
			next.Metadata = done.Metadata
		}
	}
	return next
}

// adopt runs claims of this node that came out of a commit whose answer was lost.
func (e *Engine) adopt(claims []storage.Claim) {
	for n := range claims {
		c := &claims[n]
		ns, ok := e.registry.all()[c.Namespace]
		if !ok || e.attempts.known(attemptOf(c)) || !e.active.join() {
			continue
		}
		ns.slots.force(stored)
		ns.metrics.adopted.Inc()
		e.log.InfoContext(e.traces.of(c), "task adopted", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID)
		e.runners.Go(func() { e.run(ns, c, origin{release: func() { ns.slots.release(stored) }}) })
	}
}
