package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// Answer is what a request is answered with.
type Answer struct {
	ProcessID string
	TaskID    int64
	Response  []byte
}

// TaskError says what became of a task, where that is not a response. Exactly one of Failure, Rejection, Cancelled, Lost,
// WaitTimeout and Draining is set.
type TaskError struct {
	Key           process.Key
	TaskID        int64
	Failure       *progressorv1.Failure   // the task failed for good
	Rejection     *progressorv1.Rejection // the processor said no
	Cancelled     bool                    // the task ended with its process, or with what broke it
	Lost          bool                    // a failover of the database lost the task: nothing of it is stored
	WaitTimeout   bool                    // the wait is over; the task goes on
	Draining      bool                    // the node stops before the wait is over; the task goes on, and another node can be asked
	ProcessStatus process.Status          // "": not known
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
	case e.Lost:
		return task + " was lost by a failover of the database: nothing of it is stored"
	case e.Draining:
		return task + " goes on, the node that waited for it stops"
	default:
		return task + " goes on, the wait for it is over: AwaitTask can wait for it again"
	}
}

// errorOf is the error that an answer stands for; nil for a response.
func (a answer) errorOf(key process.Key, taskID int64) error {
	err := &TaskError{Key: key, TaskID: taskID, Failure: a.failure, Rejection: a.rejection}
	switch {
	case a.lost:
		err.Lost = true
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

// request is what Start, Call and Repair have in common.
type request struct {
	ns       *namespace
	method   string // of the fingerprint
	accepted bool
	timeout  time.Duration
	internal bool // it is for the engine's own processor: neither a pause of its namespace nor the want of a processor holds it
	call     storage.Call
}

// accept takes a place if there is one to take, has the request stored, and runs it or leaves it waiting. prepare stores it.
func (e *Engine) accept(ctx context.Context, r *request, taskType process.TaskType, canRun bool, prepare func() (storage.Prepared, error)) (Answer, error) {
	if err := e.admit(r.ns.requests); err != nil {
		return Answer{}, err
	}
	defer e.leave(r.ns.requests)
	p, err := e.prepare(ctx, r, taskType, canRun, prepare)
	if err != nil {
		return Answer{}, err
	}
	return e.settle(ctx, r, p)
}

// prepare stores a request, in a place if it can run. The place, and a number in the crew, are left only to a captured one.
func (e *Engine) prepare(ctx context.Context, r *request, taskType process.TaskType, canRun bool, store func() (storage.Prepared, error)) (storage.Prepared, error) {
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
	if canRun && (ns.servable() || r.internal) && e.isConnected() {
		// A request that need not run now, or must wait for its process anyway, is stored and waits if it gets no slot.
		if r.accepted {
			r.call.Capture = ns.slots.tryTakeIdle()
		} else if e.attempts.runs(r.call.Key) {
			r.call.Capture = ns.slots.tryTake()
		} else if r.call.Capture = ns.slots.take(ctx); !r.call.Capture {
			if err := e.addToBacklog(ctx, ns); err != nil {
				return storage.Prepared{}, err
			}
		}
	}
	if wait := r.wait(); r.call.Capture && !r.accepted && wait >= minRequestWait && !ns.slots.contended() {
		r.call.MayWait = func() bool { return ctx.Err() == nil && !e.draining.Load() && !ns.slots.contended() }
		r.call.Here = func() bool { return e.attempts.runs(r.call.Key) }
	}
	began := time.Now()
	p, err := store()
	ns.metrics.prepared(taskType, began)
	if captured = err == nil && p.Outcome == storage.Captured; captured {
		ns.usage.stored(began)
	}
	if r.call.Capture && !captured {
		ns.slots.release(fresh)
	}
	if err == nil && p.Outcome == storage.Overloaded {
		e.metrics.refused.WithLabelValues("waiting").Inc()
	}
	return p, err
}

// settle answers a request by what it met.
func (e *Engine) settle(ctx context.Context, r *request, p storage.Prepared) (Answer, error) {
	key := process.Key{Namespace: r.call.Key.Namespace, ProcessID: p.ProcessID}
	ans := Answer{ProcessID: p.ProcessID, TaskID: p.TaskID}
	ref := storage.TaskRef{Key: key, TaskID: p.TaskID}
	e.store.Saw(p.TaskID, 0)
	switch p.Outcome {
	case storage.Captured:
		var wt *waiter
		if !r.accepted {
			wt = e.waiters.register(ref, false)
		}
		asked := e.traces.asked(ctx, key.ProcessID, r.call.Context)
		e.runners.Go(func() { e.run(r.ns, p.Claim, origin{asked: asked, release: func() { r.ns.slots.release(fresh) }}) })
		if r.accepted {
			return ans, nil
		}
		return e.await(ctx, r, ans, wt)
	case storage.Placed:
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

// refusal is the error of a request of which nothing was stored.
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
		return &process.OverloadError{Bound: fmt.Sprintf("as many requests wait in the process as max_waiting of the namespace allows, %d", max(1, r.call.MaxWaiting))}
	case storage.Repairing:
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: "another repair of it is under way"}
	case storage.Unsettled:
		return &process.OverloadError{Bound: "tasks that waited in the process when it failed are still being cancelled"}
	case storage.IsJob:
		reason := "it is a job, which takes no calls"
		if r.method == methodRepair || r.method == methodSimpleRepair {
			reason = "it is a job: RetryJob runs it again"
		}
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: reason}
	case storage.Refused:
		reason := "it takes no calls"
		if r.method == methodRepair || r.method == methodSimpleRepair {
			reason = "only a process in ERROR can be repaired"
		} else if p.Status == process.StatusError {
			reason = "it takes no calls until it is repaired"
		}
		return &process.WrongStatusError{Key: key, Status: p.Status, Reason: reason}
	}
	return fmt.Errorf("%s: unknown outcome %q", key, p.Outcome)
}

// minRequestWait is the shortest wait of which a part may go by before a call is stored: lines take 100 ms at the most.
const minRequestWait = time.Second

// wait is how long a request is to be waited for.
func (r *request) wait() time.Duration {
	if r.timeout > 0 {
		return r.timeout
	}
	return r.ns.stepTimeout
}

// await waits for the answer of a task, at most as long as the request says, and as its caller does.
func (e *Engine) await(ctx context.Context, r *request, ans Answer, wt *waiter) (Answer, error) {
	a, err := e.waitFor(ctx, wt, r.wait())
	if err != nil {
		return ans, err
	}
	ans.Response = a.response
	return ans, a.errorOf(wt.ref.Key, wt.ref.TaskID)
}

// waitFor waits for one answer. Where the wait and the attempt that runs here end at the same moment, the task's end is the answer.
func (e *Engine) waitFor(ctx context.Context, wt *waiter, timeout time.Duration) (answer, error) {
	answers := wt.answers
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var over error = &TaskError{Key: wt.ref.Key, TaskID: wt.ref.TaskID, WaitTimeout: true}
	select {
	case a := <-answers:
		return a, nil
	case <-timer.C:
		e.outlast(ctx, wt.ref, timeout, answers)
	case <-ctx.Done():
	case <-e.waiters.done:
		over = &TaskError{Key: wt.ref.Key, TaskID: wt.ref.TaskID, Draining: true}
	}
	e.waiters.forget(wt)
	select {
	case a := <-answers:
		return a, nil
	default:
		return answer{}, over
	}
}

// The methods that fingerprints tell apart. A NOTIFY is a call: the same key and args get its answer.
const (
	methodStart        = "start"
	methodCall         = "call"
	methodRepair       = "repair"
	methodSimpleRepair = "repair simple"
)

// newProcessID is the id of a process whose client leaves the choice to the engine: UUIDv7, so that new rows stand side by side.
func newProcessID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}
