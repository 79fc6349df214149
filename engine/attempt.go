package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// responseBudget is the maximum total size in bytes of the large responses of processors on a node,
// from their arrival until their results are stored.
const responseBudget = 64 << 20

// origin describes where a claim comes from.
type origin struct {
	asked   *trace.SpanContext // span of the request (see traces), or nil
	scanned bool               // the claim comes from a scan
	release func()             // releases the slot
}

// run runs a claim and the claims that follow it on this node: next tasks of the process, jobs of
// the flow run, and the flow run itself. Then it releases the slot. The caller must have taken the
// slot and called enter of the active counter.
func (e *Engine) run(ns *namespace, c *storage.Claim, from origin) {
	defer e.active.leave()
	defer from.release()
	t, ok := turn{claim: c}, true
	for n := 1; ok; n++ {
		ns = e.current(ns)
		t, ok = e.runNext(ns, t, from, n)
		from.asked = nil
	}
}

// current returns the current configuration of a namespace. The namespace may have been updated or
// paused since the attempt began.
func (e *Engine) current(ns *namespace) *namespace {
	if current, ok := e.registry.all()[ns.name]; ok {
		return current
	}
	return ns
}

// runNext makes one attempt and stores its result. n counts the attempts in this slot. It returns
// the next task to run on this node: a task of the same process, of the run to which the finished
// step belongs, or of a step that begins.
func (e *Engine) runNext(ns *namespace, t turn, from origin, n int) (next turn, ok bool) {
	c := t.claim
	ctx, cancel := context.WithCancelCause(e.doing)
	defer cancel(nil)
	park := e.parking.begin(ns, &t)
	if t.kept != nil {
		ctx = processor.WithKept(ctx, t.kept)
	}
	defer func() {
		if next.kept == nil {
			t.kept.Drop()
		}
	}()
	e.store.RecordNumbers(c.TaskID, c.FencingToken)
	if !e.attempts.begin(c, cancel) {
		return turn{}, false
	}
	defer e.attempts.end(c)
	if MayCheckpoint(c) { // checkpoints change the claim, which other goroutines read
		own := *c
		c, t.claim = &own, &own
	}
	held := e.responses.Of(ns.name)
	defer held.Release()
	ctx, span := e.traces.begin(budget.In(ctx, held), ns, c, from.asked)
	began := time.Now()
	d, history, released := e.attemptAndDecide(ctx, ns, &t)
	ns = e.current(ns)
	d.completion.StepTimeout = ns.stepTimeout
	d.completion.MayContinue = !released && !e.draining.Load() && e.isConnected() && !ns.paused &&
		(n < maxConsecutive || !ns.slots.contended())
	// A step whose job name is paused must not begin here.
	d.completion.MayStartStep = d.completion.MayContinue && ns.servable() && !ns.pulled() && !e.hasPausedNames(ns.name)
	d.completion.Promote = d.completion.MayContinue && e.kinds[c.Kind].Admit == nil
	sendAlong(span, d.completion.Messages)
	if from.scanned {
		e.backlog.begin(c)
		defer e.backlog.end(c)
	}
	ahead, storing := e.advance(ctx, ns, &t, d, began), time.Now()
	d.park = park
	saved, err := e.save(ns, c, d)
	t.kept = park.kept
	endSpan(span, d, time.Time{}, err)
	if err == nil && ahead != nil {
		e.afterAdvance(ns, t.run, ahead, &saved, storing)
	}
	switch {
	case err != nil || saved.Next == nil:
		return turn{}, false
	case saved.Advanced: // a step that the run started
		return turn{claim: saved.Next, run: waitingRunOf(t.run.claim, ahead, &saved)}, true
	case saved.Next.ProcessID != c.ProcessID: // the run whose step has ended, or a step that the run started
		return turn{claim: saved.Next, run: waitingRunOf(c, d, &saved)}, true
	}
	following, stale := followingClaim(c, &d.completion, saved.Next)
	return turn{
		claim: following, known: history.with(&d.completion, following), stale: stale, kept: t.kept,
		config: t.config,
	}, true
}

// attemptAndDecide makes the attempt and decides the result. released is true if the task is
// released, because the attempt was not made or was interrupted. A panic here is due to a defect of
// the engine or a corrupt row, and fails only this task.
//
// The functions that decide are not inlined, so that the frames above a waiting processor stay
// small. This halved the stacks of 1,000 waiting attempts from 16 KiB to 8 KiB.
func (e *Engine) attemptAndDecide(
	ctx context.Context, ns *namespace, t *turn,
) (d *decision, history *knownHistory, released bool) {
	c := t.claim
	ns = e.effectiveConfig(ns, c.Kind)
	defer func() {
		if v := recover(); v != nil {
			e.log.ErrorContext(ctx, "attempt panicked", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id",
				c.TaskID, "panic", v, "stack", string(debug.Stack()))
			d, history, released = e.conclude(ns, c, nil, nil,
				processor.Fail(process.ReasonPanic, "the engine panicked: %v", v)), nil, false
		}
	}()
	began := time.Now()
	own := e.internalAttempt(c)
	response, history, err := e.attempt(own.in(ctx), ns, t)
	if !errors.Is(err, errNotAdmitted) {
		ns.metrics.processed(c.TaskType, began)
		now := time.Now()
		e.minuteStats.processed(now, now.Sub(began))
	}
	interrupted := context.Cause(ctx) != nil && (err != nil || response.GetFailure() != nil)
	if interrupted && errors.Is(context.Cause(ctx), errCancelRequested) {
		return decide(acknowledged(attemptEnd{claim: c, kind: e.kinds[c.Kind]})), history, false
	}
	if interrupted || errors.Is(err, errReleased) {
		// The processor is not the cause: the node is stopping, has lost its heartbeat, or cannot
		// serve the namespace.
		return e.releaseDecision(c, err), history, true
	}
	return e.conclude(e.effectiveConfig(e.current(ns), c.Kind), c, own, response, err), history, false
}

// conclude decides the result of an attempt that was made.
//
//go:noinline
func (e *Engine) conclude(
	ns *namespace, c *storage.Claim, own *Attempt, response *progressorv1.ProcessResponse, err error,
) *decision {
	d := decide(attemptEnd{
		claim: c, response: response, err: err, retry: ns.retry, random: rand.Float64(), kind: e.kinds[c.Kind],
		messages: e.kindMessage,
	})
	own.addTo(d)
	return d
}

// releaseDecision returns the decision that releases the task of an attempt because of err.
//
//go:noinline
func (e *Engine) releaseDecision(c *storage.Claim, err error) *decision {
	end := End{Claim: c}
	paused, unreached := errors.AsType[*pausedError](err)
	if unreached {
		end.Unreached = paused.cause
	}
	d := &decision{completion: releaseCompletion(end, e.kinds[c.Kind])}
	d.completion.RetryAfter = pauseOf(err, c.RetryInterval)
	if unreached {
		d.completion.RetryAfter = paused.pause.For
		d.completion.EffectsOnEnd = append(d.completion.EffectsOnEnd, paused.pause.Effect)
		d.stored = append(d.stored, func() { e.timers.alarm(c.Namespace, paused.pause.For) })
	}
	return d
}

// save stores d and notifies waiters. If PostgreSQL rejects the result, the task is stored as
// failed and d is replaced by that failure. save logs errors.
func (e *Engine) save(ns *namespace, c *storage.Claim, d *decision) (storage.Saved, error) {
	began := time.Now()
	key := d.completion.Key
	saved, err := e.store.SaveResult(&d.completion)
	if err != nil && !errors.Is(err, process.ErrFenced) && !errors.Is(err, process.ErrUnavailable) &&
		d.completion.Outcome != storage.Retry {
		// PostgreSQL rejects the result although it passed every check here. The task fails.
		e.log.ErrorContext(e.traces.of(c), "cannot store the result", "namespace", key.Namespace, "process_id",
			key.ProcessID, "task_id", c.TaskID, "error", err)
		failed := decide(attemptEnd{
			claim: c, err: &processor.BadResponseError{Err: fmt.Errorf("the result cannot be stored: %w", err)},
			kind: e.kinds[c.Kind], workerID: d.workerID,
		})
		failed.completion.StepTimeout, failed.completion.Leased = d.completion.StepTimeout, d.completion.Leased
		failed.park = d.park
		*d = *failed
		saved, err = e.store.SaveResult(&d.completion)
	}
	ns.usage.stored(began)
	switch {
	case errors.Is(err, process.ErrFenced):
		ns.metrics.stale.Inc()
		e.log.InfoContext(e.traces.of(c), "late result rejected: the attempt has ended", "namespace", key.Namespace,
			"process_id", key.ProcessID, "task_id", c.TaskID, "fencing_token", c.FencingToken)
		e.waiters.recheck(key)
		return saved, err
	case err != nil && e.doing.Err() != nil:
		return saved, err // the drain has ended and released the task
	case err != nil:
		e.log.ErrorContext(e.traces.of(c), "result not stored", "namespace", key.Namespace, "process_id", key.ProcessID,
			"task_id", c.TaskID, "error", err)
		e.waiters.recheck(key)
		return saved, err
	}
	e.afterSave(ns, c, d, saved, began)
	return saved, nil
}

// afterSave notifies everything that depends on a stored result. began is the time at which storing
// began.
func (e *Engine) afterSave(
	ns *namespace, c *storage.Claim, d *decision, saved storage.Saved, began time.Time,
) {
	ns.metrics.completed(&d.completion, saved, began)
	for _, then := range d.stored {
		then()
	}
	if stored := e.kinds[c.Kind].Stored; stored != nil {
		stored(c, &d.completion, saved.Now)
	}
	e.minuteStats.stored(time.Now())
	d.park.settle(e.parking, c, &d.completion, &saved) // before a client that waits can call again
	e.announce(c, d, &saved)
}

// announce notifies the clients that wait for the stored result.
func (e *Engine) announce(c *storage.Claim, d *decision, saved *storage.Saved) {
	// After a lost commit, only the database knows the status of the process.
	if d.completion.Outcome != storage.Retry && !saved.ResponseLost {
		e.notices.ended()
		if !d.completion.DeferResponse {
			e.waiters.deliver(storage.TaskRef{Key: d.completion.Key, TaskID: c.TaskID}, taskEndOf(d, saved))
		}
	}
	if len(d.completion.Replies) > 0 {
		e.waiters.recheck(d.completion.Key) // only the database knows which of the tasks were open
	}
	for _, id := range saved.Cancelled {
		e.waiters.deliver(storage.TaskRef{Key: d.completion.Key, TaskID: id},
			taskEnd{status: process.TaskStatusCancelled})
	}
	if d.completion.Outcome == storage.Removed ||
		d.completion.Outcome == storage.Rejected && c.TaskType == process.TaskInit || saved.ResponseLost {
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
		e.timers.alarm(c.Namespace, 0) // the next scan reads the delays, which depend on the clock of the database
	}
	if next := saved.Next; next != nil && next.TaskType.Timer() {
		e.timerLate(next.RunningTime.Sub(next.ScheduledTime))
	}
	if d.completion.Outcome == storage.Retry {
		switch {
		case d.completion.RetryAfter == 0:
			e.calls.wake()
		// a task whose kind this node does not know is left to other nodes
		case !d.completion.Uncounted:
			e.timers.alarm(c.Namespace, d.completion.RetryAfter)
		}
	}
	if c.TaskType == process.TaskRepair && d.completion.Outcome == storage.Finished {
		e.timers.alarm(c.Namespace, 0) // timers that the error had cancelled may be due
	}
}

// notifyWatchers sends the stored events to watchers, which read changes of the status from the
// database.
func (e *Engine) notifyWatchers(c *storage.Claim, d *decision, saved *storage.Saved) {
	switch outcome := d.completion.Outcome; {
	case saved.Now.IsZero() || saved.Status != c.Status || outcome == storage.Removed:
		e.watchers.recheck(d.completion.Key)
	case outcome == storage.Finished:
		e.watchers.stored(&d.completion, saved.Now)
	}
}

// attempt calls the processor. If the request certainly did not reach the processor and the task
// type has no retries of its own, attempt repeats the call by the retry policy until the timeout.
// This preserves the order of tasks. If Kind.Pause is set, Pause decides what happens instead.
func (e *Engine) attempt(
	ctx context.Context, ns *namespace, t *turn,
) (*progressorv1.ProcessResponse, *knownHistory, error) {
	c := t.claim
	if c.TaskType == process.TaskRemove {
		return nil, nil, nil
	}
	if !e.Admits(c) {
		return nil, nil, errNotAdmitted
	}
	if ns.processor == nil || t.stale {
		return nil, nil, errReleased
	}
	timeout, graceful := e.timeoutOf(ctx, ns, c)
	if graceful && timeout <= 0 {
		return nil, nil, errGraceOver
	}
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	sent := &sentRequest{deadline: deadline}
	if err := e.requestOf(ctx, ns, t, sent); err != nil {
		return nil, sent.history, err
	}
	defer ns.usage.processed(ns.usage.begin())
	for try := int32(1); ; try++ {
		AttemptOf(ctx).reset()
		response, err := e.callWithHistory(ctx, ns, t, sent)
		history := sent.history
		e.logReach(ns, err)
		if graceful && errors.Is(ctx.Err(), context.DeadlineExceeded) && (err != nil || response.GetFailure() != nil) {
			return nil, history, errGraceOver
		}
		if err == nil || !processor.Unreachable(err) || c.TaskType.RetriedOnFailure() {
			return response, history, err
		}
		if pause := e.kinds[c.Kind].Pause; pause != nil {
			return nil, history, e.paused(ctx, ns, c, err)
		}
		wait, again := ns.retry.Next(try, process.ReasonUnavailable, false, rand.Float64())
		if !again {
			return nil, history, err
		}
		e.attempts.unreached(c, try, err)
		t.kept.Drop()
		trace.SpanFromContext(ctx).AddEvent("processor not reached")
		select {
		case <-ctx.Done():
			return nil, history, err
		case <-e.drained:
			// the request has not reached the processor, so another node may try immediately
			return nil, history, errReleased
		case <-time.After(wait):
			// the deadline passed at the same time: the request did not and will not reach the
			// processor
			if ctx.Err() != nil {
				return nil, history, err
			}
			// The processor of the namespace may have been changed or removed.
			if ns = e.effectiveConfig(e.current(ns), c.Kind); ns.processor == nil {
				return nil, history, errReleased
			}
		}
	}
}

// sentRequest is the request of an attempt.
type sentRequest struct {
	request  *progressorv1.ProcessRequest
	history  *knownHistory // the history in it
	deadline time.Time
}

// callWithHistory calls the processor. If the request has no history, and the processor does not
// have the process in memory, it calls the processor again, with the history. If the processor is
// unreachable, only the next call of callWithHistory sends the history.
func (e *Engine) callWithHistory(
	ctx context.Context, ns *namespace, t *turn, sent *sentRequest,
) (*progressorv1.ProcessResponse, error) {
	response, err := e.callProcessor(ctx, ns, t.claim, sent.request, sent.history)
	again, unreached := t.kept.Repeats(), processor.Unreachable(err)
	if !again && (!unreached || !t.kept.OmitsHistory()) {
		return response, err
	}
	t.kept.Drop()
	if readErr := e.requestOf(ctx, ns, t, sent); readErr != nil {
		return nil, readErr
	}
	if !again {
		return response, err
	}
	return e.callProcessor(ctx, ns, t.claim, sent.request, sent.history)
}

// requestOf sets the request of an attempt and its history in sent. If the database is unavailable,
// requestOf waits a moment before it returns an error.
func (e *Engine) requestOf(ctx context.Context, ns *namespace, t *turn, sent *sentRequest) (err error) {
	sent.history, err = e.historyOf(ns, t)
	if err == nil {
		sent.request, err = e.request(t.claim, sent.history.events, sent.history.asked, sent.deadline)
	}
	if errors.Is(err, errReleased) {
		e.pause(ctx, unreadablePause) // the next attempt would probably fail as well
	}
	return err
}

// pausedError reports that a processor was not reached, and that the task waits without a slot.
type pausedError struct {
	pause Pause
	cause string
}

func (e *pausedError) Error() string { return "the processor was not reached: " + e.cause }

// Is reports whether target is the error of a released task.
func (e *pausedError) Is(target error) bool { return target == errReleased }

// paused returns the end of an attempt whose processor was not reached. The kind decides whether
// the task waits without a slot or fails with err.
func (e *Engine) paused(ctx context.Context, ns *namespace, c *storage.Claim, err error) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	cause := causeOf(err)
	pause, ok, pauseErr := e.kinds[c.Kind].Pause(limit, c, ns.retry, cause)
	switch {
	case pauseErr != nil:
		e.log.WarnContext(ctx, "cannot read how long a task has waited for its processor", "namespace", c.Namespace,
			"process_id", c.ProcessID, "task_id", c.TaskID, "error", pauseErr)
		e.pause(ctx, unreadablePause) // the next try would probably fail as well
		return errReleased
	case !ok:
		return err
	}
	return &pausedError{pause, cause}
}

// unreadablePause is how long an attempt waits before its task is released because the database
// could not be read.
const unreadablePause = 200 * time.Millisecond

// pause waits until d has passed, ctx is cancelled or the node drains.
func (e *Engine) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-e.drained:
	case <-time.After(d):
	}
}

// logReach logs once when a processor becomes unreachable and once when it is reachable again.
func (e *Engine) logReach(ns *namespace, err error) {
	if ns.unreachable == nil {
		return
	}
	switch unreachable := processor.Unreachable(err); {
	case unreachable && ns.unreachable.CompareAndSwap(false, true):
		e.log.Warn("processor not reached; its tasks are retried by the retry policy", "namespace", ns.name, "error",
			logText(err))
	case !unreachable && ns.unreachable.Load() && ns.unreachable.CompareAndSwap(true, false):
		e.log.Info("processor reached again", "namespace", ns.name)
	}
}

// logText returns the text of an error for the log. It adds the addresses of network errors, which
// the error text omits because users of the namespace see it.
func logText(err error) string {
	if network, ok := errors.AsType[interface {
		error
		Detail() string
	}](err); ok {
		return err.Error() + ": " + network.Detail()
	}
	return err.Error()
}

// adopt runs claims of this node that were committed although the response of the commit was lost.
func (e *Engine) adopt(claims []storage.Claim) {
	for n := range claims {
		c := &claims[n]
		ns, ok := e.registry.all()[c.Namespace]
		if !ok || e.attempts.known(attemptOf(c)) || !e.active.join() {
			continue
		}
		ns.slots.force(stored)
		ns.metrics.adopted.Inc()
		e.log.InfoContext(e.traces.of(c), "task adopted", "namespace", c.Namespace, "process_id", c.ProcessID,
			"task_id", c.TaskID)
		e.runners.Go(func() { e.run(ns, c, origin{release: func() { ns.slots.release(stored) }}) })
	}
}
