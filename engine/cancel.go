package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// CancelParams is a request to cancel a process.
type CancelParams struct {
	Key    process.Key
	Reason string         // passed to the processor
	Grace  *time.Duration // nil means process.DefaultCancelGrace
	Actor  process.Actor
}

// CancelProcess requests the end of a process and returns when the request is stored. A process in
// INIT or RUNNING gets a CANCEL task, which runs before all waiting tasks. When the grace period is
// over, the engine ends the process. A process in ERROR or SUSPENDED ends immediately.
func (e *Engine) CancelProcess(ctx context.Context, p CancelParams) (*progressorv1.Process, error) {
	c := storage.Cancel{
		Key: p.Key, Reason: p.Reason, Context: e.traces.keep(ctx, p.Key.ProcessID, nil),
		Grace: process.DefaultCancelGrace,
	}
	if p.Grace != nil {
		c.Grace = *p.Grace
	}
	return e.runCommand(ctx, p.Key, func() error {
		state, err := e.store.CancelProcess(c, p.Actor)
		if err == nil && !state.Ended && c.Grace <= 0 {
			state.Ended, err = e.store.EndOverdueCancel(p.Key)
		}
		switch {
		case err != nil:
			return err
		case state.Ended:
			e.afterCancel(p.Key)
		case !state.Busy:
			e.calls.wake()
		default:
			e.attempts.cancelRequested(p.Key)
		}
		return nil
	})
}

// errCancelled cancels the attempts of a process that is CANCELLED. Their results cannot be stored.
var errCancelled = errors.New("the process was cancelled")

// errCancelRequested cancels the attempt of a process whose cancel was requested. See
// Kind.CancelsAttempts.
var errCancelRequested = errors.New("the job was cancelled")

// acknowledged returns the end of an attempt that stopped because of errCancelRequested.
func acknowledged(end attemptEnd) attemptEnd {
	none := ""
	LeaseAnswer{Acknowledged: &none}.into(&end)
	end.err = nil
	return end
}

// afterCancel cancels the attempts of a process that has ended, and notifies its waiters and
// watchers.
func (e *Engine) afterCancel(key process.Key) {
	e.attempts.cancelOf(key, errCancelled)
	e.waiters.recheck(key)
	e.watchers.recheck(key)
}

// overdueBatch is the maximum number of overdue cancels that one pass ends.
const overdueBatch = 200

// endOverdueCancels ends processes whose grace period is over. Every node does this. If two nodes
// find the same process, the first one ends it.
func (e *Engine) endOverdueCancels(ctx context.Context) error {
	keys, err := e.store.ListOverdueCancels(ctx, overdueBatch)
	if err != nil {
		return err
	}
	errs := make([]error, len(keys))
	var ends sync.WaitGroup
	for n, key := range keys {
		ends.Go(func() {
			var ended bool
			if ended, errs[n] = e.store.EndOverdueCancel(key); ended {
				e.log.Warn("process cancelled after its grace period", "namespace", key.Namespace, "process_id",
					key.ProcessID)
				e.afterCancel(key)
			}
		})
	}
	ends.Wait()
	return errors.Join(errs...)
}

// endOverdueCancel ends a process whose cancel has no grace period. If that fails, the next pass of
// endOverdueCancels ends it.
func (e *Engine) endOverdueCancel(key process.Key) {
	if ended, err := e.store.EndOverdueCancel(key); err == nil && ended {
		e.afterCancel(key)
	}
}

// extended returns the step timeout, or the timeout that the kind of the process defines for this
// attempt, if that is longer. It also stores a longer timeout. If the timeout cannot be stored,
// extended returns the step timeout.
func (e *Engine) extended(ctx context.Context, ns *namespace, c *storage.Claim) time.Duration {
	timeout := e.kinds[c.Kind].Timeout
	if timeout == nil || c.TaskType != process.TaskTimeout {
		return ns.stepTimeout
	}
	longer := timeout(c)
	if longer <= ns.stepTimeout {
		return ns.stepTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := e.store.ExtendAttempt(ctx, c, longer); err != nil {
		e.log.WarnContext(ctx, "cannot extend the timeout of an attempt", "namespace", c.Namespace, "process_id",
			c.ProcessID, "task_id", c.TaskID, "error", err)
		return ns.stepTimeout
	}
	return longer
}

// errGraceOver ends the attempt of a CANCEL task whose grace period is over. The process of the
// task becomes CANCELLED.
var errGraceOver = errors.New(process.GraceExpiredMessage)

// timeoutOf returns how long an attempt may take. graceful is true if the limit is the grace period
// of a cancel, not the step timeout.
func (e *Engine) timeoutOf(
	ctx context.Context, ns *namespace, c *storage.Claim,
) (timeout time.Duration, graceful bool) {
	if c.TaskType != process.TaskCancel {
		if describe := e.kinds[c.Kind].Describe; describe != nil {
			if _, timeout, ok := describe(c); ok {
				return timeout, false
			}
		}
		return e.extended(ctx, ns, c), false
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	left, err := e.store.CancelGrace(ctx, process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID})
	if err != nil {
		e.log.WarnContext(ctx, "cannot read the grace period of a cancel", "namespace", c.Namespace, "process_id",
			c.ProcessID, "task_id", c.TaskID, "error", err)
		return ns.stepTimeout, false // the collector ends the process when the grace period is over
	}
	return min(left, ns.stepTimeout), left <= ns.stepTimeout
}
