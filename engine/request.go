package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// Answer is the result of a request.
type Answer struct {
	ProcessID string
	TaskID    int64
	Response  []byte
}

// TaskError describes how a task ended without a response, or why the wait for it ended. Exactly
// one of Failure, Rejection, Cancelled, LostByFailover, WaitTimeout and Draining is set.
type TaskError struct {
	Key            process.Key
	TaskID         int64
	Failure        *progressorv1.Failure   // the task failed permanently
	Rejection      *progressorv1.Rejection // the processor rejected the task
	Cancelled      bool                    // the task was cancelled, with its process or because the process failed
	LostByFailover bool                    // a database failover lost the task; nothing was stored
	WaitTimeout    bool                    // the wait timed out; the task continues
	Draining       bool                    // the node stops before the task ends; ask another node
	ProcessStatus  process.Status          // "" if unknown
}

func (e *TaskError) Error() string {
	task := fmt.Sprintf("task %d of %s", e.TaskID, e.Key)
	switch {
	case e.Failure != nil:
		return fmt.Sprintf("%s failed: %s: %s", task, e.Failure.GetReason(), e.Failure.GetMessage())
	case e.Rejection != nil:
		return fmt.Sprintf("%s was rejected: %s: %s", task, e.Rejection.GetReason(), e.Rejection.GetMessage())
	case e.Cancelled:
		return task + " was cancelled"
	case e.LostByFailover:
		return task + " was lost by a failover of the database: nothing was stored"
	case e.Draining:
		return task + " continues, but the node that waited for it is stopping"
	default:
		return task + " continues, but the wait is over: AwaitTask can wait for it again"
	}
}

// errorOf converts a to an error. It returns nil for a response.
func (a taskEnd) errorOf(key process.Key, taskID int64) error {
	err := &TaskError{Key: key, TaskID: taskID, Failure: a.failure, Rejection: a.rejection}
	switch {
	case a.lost:
		err.LostByFailover = true
	case a.status == process.TaskStatusCancelled:
		err.Cancelled = true
	case a.status == process.TaskStatusError:
		err.ProcessStatus = a.processStatus
		if err.Failure == nil {
			err.Failure = &progressorv1.Failure{}
		}
	case a.rejection == nil:
		return nil
	}
	return err
}

// request holds what Start, Call and Repair have in common.
type request struct {
	ns       *namespace
	method   string // part of the fingerprint
	accepted bool
	timeout  time.Duration
	internal bool // for the engine itself; runs even if the namespace is paused or has no processor
	call     storage.Call
}

// accept takes a slot if it gets one in time, stores the request by calling store, and runs the
// request or leaves it queued. canRun is false if the task cannot run now.
func (e *Engine) accept(
	ctx context.Context, r *request, taskType process.TaskType, canRun bool, store func() (storage.Prepared, error),
) (Answer, error) {
	if err := e.admit(&r.ns.shares.requests); err != nil {
		return Answer{}, err
	}
	defer e.leave(&r.ns.shares.requests)
	p, err := e.prepare(ctx, r, taskType, canRun, store)
	if err != nil {
		return Answer{}, err
	}
	return e.respond(ctx, r, p)
}

// prepare stores a request by calling store. If the request can run, prepare first takes a slot and
// enters the active counter. Both are kept only if the request was captured.
func (e *Engine) prepare(
	ctx context.Context, r *request, taskType process.TaskType, canRun bool, store func() (storage.Prepared, error),
) (storage.Prepared, error) {
	if !e.active.enter() {
		return storage.Prepared{}, errDraining
	}
	captured := false
	defer func() {
		if !captured {
			e.active.leave()
		}
	}()
	ns := r.ns
	if canRun && e.cfg.RequestsOnly {
		if err := e.boundBacklog(ctx, r); err != nil {
			return storage.Prepared{}, err
		}
	} else if canRun && (ns.servable() || r.internal) && e.isConnected() {
		if err := e.takeSlot(ctx, r); err != nil {
			return storage.Prepared{}, err
		}
	}
	if wait := r.wait(); r.call.Capture && !r.accepted && wait >= minRequestWait && ns.mayHoldSlot() {
		r.call.MayWait = func() bool { return ctx.Err() == nil && !e.draining.Load() && ns.mayHoldSlot() }
		r.call.Here = func() bool { return e.attempts.runs(r.call.Key) }
	}
	began := time.Now()
	p, err := store()
	ns.metrics.prepared(taskType, began)
	if captured = err == nil && p.Outcome == storage.Captured; captured {
		ns.usage.stored(began.Add(p.Waited))
	}
	if r.call.Capture && !captured {
		ns.slots.release(fresh)
	}
	if err == nil && p.Outcome == storage.Overloaded {
		e.metrics.refused.WithLabelValues("waiting").Inc()
	}
	return p, err
}

// takeSlot takes a slot for a request. If a client waits for the response, takeSlot may wait for a
// slot. If it gets none, the request is stored and queued, unless takeSlot returns an error because
// of overload.
func (e *Engine) takeSlot(ctx context.Context, r *request) error {
	ns := r.ns
	if r.accepted { // the request is stored and queued, and no client waits for its end
		r.call.Capture = ns.slots.tryTakeIdle()
		return nil
	}
	// A call of a process that runs here needs no slot of its own, because it gets the slot of the
	// running task. But storing the call is expensive. If the tasks wait for the database, the call
	// must wait like a call of an idle process.
	if e.attempts.runs(r.call.Key) {
		if r.call.Capture = ns.slots.tryTake(); r.call.Capture || !ns.waitsForDatabase() {
			return nil
		}
	}
	if r.call.Capture = ns.slots.take(ctx); r.call.Capture {
		return nil
	}
	return e.addToBacklog(ctx, ns)
}

// respond completes a request according to the outcome of prepare.
func (e *Engine) respond(ctx context.Context, r *request, p storage.Prepared) (Answer, error) {
	key := process.Key{Namespace: r.call.Key.Namespace, ProcessID: p.ProcessID}
	ans := Answer{ProcessID: p.ProcessID, TaskID: p.TaskID}
	ref := storage.TaskRef{Key: key, TaskID: p.TaskID}
	e.store.RecordNumbers(p.TaskID, 0)
	switch p.Outcome {
	case storage.Captured:
		var wt *waiter
		if !r.accepted {
			wt = e.waiters.register(ref, false)
		}
		asked := e.traces.asked(ctx, key.ProcessID, r.call.Context)
		e.runners.Go(func() {
			e.run(r.ns, p.Claim, origin{asked: asked, release: func() { r.ns.slots.release(fresh) }})
		})
		if r.accepted {
			return ans, nil
		}
		return e.await(ctx, r, ans, wt)
	case storage.AwaitsSlot:
		if worker := e.parking.workerOf(key); worker != "" {
			e.workers.Prefer(key.Namespace, worker)
		}
		e.calls.wake()
	case storage.Postponed, storage.Replayed:
	case storage.Repaired:
		e.timers.alarm(key.Namespace, 0)
		e.watchers.recheck(key)
		return ans, nil
	default:
		return Answer{}, refusal(r, p)
	}
	if r.accepted || p.TaskID == 0 || r.method == methodSimpleRepair {
		return ans, nil
	}
	return e.await(ctx, r, ans, e.waiters.register(ref, true))
}

// refusal returns the error for a request that was not stored.
func refusal(r *request, p storage.Prepared) error {
	key := r.call.Key
	switch p.Outcome {
	case storage.NotFound:
		return fmt.Errorf("%s: %w", key, process.ErrProcessNotFound)
	case storage.Exists:
		return fmt.Errorf("%s: %w", key, process.ErrProcessExists)
	case storage.Mismatched:
		return fmt.Errorf("key %q of %s: %w", r.call.IdempotencyKey, key, process.ErrIdempotencyMismatch)
	case storage.Overloaded:
		return &process.OverloadError{
			Bound: fmt.Sprintf("the process has reached max_waiting of its namespace: %d requests are waiting",
				max(1, r.call.MaxWaiting)),
		}
	case storage.Repairing:
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: "another repair is running"}
	case storage.Unsettled:
		return &process.OverloadError{
			Bound: "tasks that waited in the process when it failed are still being cancelled",
		}
	case storage.Uncallable:
		reason := "it is a job, which accepts no calls"
		if r.method == methodRepair || r.method == methodSimpleRepair {
			reason = "it is a job: use RetryJob"
		}
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: reason}
	case storage.Refused:
		reason := "it accepts no calls"
		if r.method == methodRepair || r.method == methodSimpleRepair {
			reason = "only a process in ERROR can be repaired"
		} else if p.Status == process.StatusError {
			reason = "it accepts no calls until it is repaired"
		}
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: reason}
	}
	return fmt.Errorf("%s: unknown outcome %q", key, p.Outcome)
}

// minRequestWait is the shortest timeout with which a call may wait in a call queue before it is
// stored. Call queues take at most 100 ms.
const minRequestWait = time.Second

// wait returns how long to wait for the response.
func (r *request) wait() time.Duration {
	if r.timeout > 0 {
		return r.timeout
	}
	return r.ns.stepTimeout
}

// await waits for the response of a task until the timeout of the request or until ctx is
// cancelled.
func (e *Engine) await(ctx context.Context, r *request, ans Answer, wt *waiter) (Answer, error) {
	a, err := e.waitFor(ctx, wt, r.wait())
	if err != nil {
		return ans, err
	}
	ans.Response = a.response
	return ans, a.errorOf(wt.ref.Key, wt.ref.TaskID)
}

// waitFor waits for the end of a task. If the timeout and the attempt on this node end at the same
// time, the end of the task takes precedence.
func (e *Engine) waitFor(ctx context.Context, wt *waiter, timeout time.Duration) (taskEnd, error) {
	ended := wt.ended
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var over error = &TaskError{Key: wt.ref.Key, TaskID: wt.ref.TaskID, WaitTimeout: true}
	select {
	case a := <-ended:
		return a, nil
	case <-timer.C:
		e.awaitTie(ctx, wt.ref, timeout, ended)
	case <-ctx.Done():
	case <-e.waiters.done:
		over = &TaskError{Key: wt.ref.Key, TaskID: wt.ref.TaskID, Draining: true}
	}
	e.waiters.forget(wt)
	select {
	case a := <-ended:
		return a, nil
	default:
		return taskEnd{}, over
	}
}

// These methods are part of fingerprints. A NOTIFY counts as a call, so a call with the same key
// and args gets the response of the NOTIFY.
const (
	methodStart        = "start"
	methodCall         = "call"
	methodRepair       = "repair"
	methodSimpleRepair = "repair simple"
)
