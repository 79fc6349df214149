package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// AwaitParams identifies a task by its ID or by the idempotency key of its request.
type AwaitParams struct {
	Key            process.Key
	TaskID         int64
	IdempotencyKey string
	Timeout        time.Duration // 0 returns the task immediately
}

// AwaitTask waits for the end of a task. After the timeout it returns the task in its current
// status.
func (e *Engine) AwaitTask(ctx context.Context, p AwaitParams) (*progressorv1.Task, error) {
	enter := e.enter
	if p.Timeout > 0 {
		enter = e.enterWaiting
	}
	share, err := enter(ctx, p.Key.Namespace)
	if err != nil {
		return nil, err
	}
	defer e.leave(share)
	return e.awaitTask(ctx, p)
}

// awaitTask is AwaitTask for a request that was admitted.
func (e *Engine) awaitTask(ctx context.Context, p AwaitParams) (*progressorv1.Task, error) {
	taskID := p.TaskID
	if p.IdempotencyKey != "" {
		var err error
		if taskID, err = e.taskOfKey(ctx, p); err != nil {
			return nil, err
		}
	}
	wt := e.waiters.register(storage.TaskRef{Key: p.Key, TaskID: taskID}, false)
	defer e.waiters.forget(wt)
	ended := wt.ended
	task, err := e.task(ctx, p.Key, taskID)
	if err != nil || p.Timeout <= 0 || task.GetFinishedTime() != nil {
		return task, err
	}
	timer := time.NewTimer(p.Timeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		e.awaitTie(ctx, wt.ref, p.Timeout, ended)
	case <-ctx.Done():
		return nil, fmt.Errorf("await task %d of %s: %w", taskID, p.Key, ctx.Err())
	case <-e.waiters.done:
	}
	return e.task(ctx, p.Key, taskID)
}

// By default, the timeout of a wait equals the step timeout. If the processor does not answer, both
// expire at the same time. Without these constants, the client would get one of the two errors at
// random.
const (
	// tiePortion defines the last part of the wait: a tenth. An attempt that expires in this part
	// counts as expired together with the wait.
	tiePortion = 10
	maxTie     = 250 * time.Millisecond // upper limit of that part
	tieWait    = time.Second            // time for the end of the attempt to be stored
)

// awaitTie waits a little longer if the timeout of a wait and the attempt on this node expire
// together. If the task ends in this time, awaitTie leaves its end in the channel ended.
func (e *Engine) awaitTie(ctx context.Context, ref storage.TaskRef, waited time.Duration, ended chan taskEnd) {
	began, runs := e.attempts.beganOf(ref)
	ns, known := e.registry.all()[ref.Key.Namespace]
	if !runs || !known {
		return
	}
	left := time.Until(began.Add(ns.stepTimeout))
	// the attempt ends later, or its processor ignores the deadline
	if left > min(waited/tiePortion, maxTie) || left < -tieWait {
		return
	}
	timer := time.NewTimer(max(left, 0) + tieWait)
	defer timer.Stop()
	select {
	case a := <-ended:
		ended <- a // the channel holds one end and is filled once
	case <-timer.C:
	case <-ctx.Done():
	case <-e.waiters.done:
	}
}

// taskOfKey returns the task of an idempotent request. The scope of the key is the process, or the
// namespace if the engine chose the process ID.
func (e *Engine) taskOfKey(ctx context.Context, p AwaitParams) (int64, error) {
	requests, err := e.store.ReadRequests(ctx, process.RequestID(p.Key.Namespace, p.Key.ProcessID, p.IdempotencyKey),
		process.RequestID(p.Key.Namespace, "", p.IdempotencyKey))
	if err != nil {
		return 0, err
	}
	for _, r := range requests {
		if r.ProcessID == p.Key.ProcessID && r.TaskID != 0 {
			return r.TaskID, nil
		}
	}
	return 0, fmt.Errorf("key %q of %s: %w", p.IdempotencyKey, p.Key, process.ErrTaskNotFound)
}

func (e *Engine) task(ctx context.Context, key process.Key, taskID int64) (*progressorv1.Task, error) {
	row, err := e.store.GetTask(ctx, key, taskID)
	if errors.Is(err, process.ErrTaskNotFound) {
		return nil, fmt.Errorf("task %d of %s: %w", taskID, key, err)
	}
	if err != nil {
		return nil, err
	}
	return wire.Task(&row, nil)
}
