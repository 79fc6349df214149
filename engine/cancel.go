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

// CancelParams is a request that a process ends.
type CancelParams struct {
	Key    process.Key
	Reason string         // handed to the processor
	Grace  *time.Duration // how long it may take; nil: process.DefaultCancelGrace
	Actor  process.Actor
}

// CancelProcess asks a process to end, and answers when the request is stored. One in INIT or RUNNING gets a CANCEL task, which goes
// before everything that waits; when the grace is over the engine ends it by itself. One in ERROR or SUSPENDED ends at once.
func (e *Engine) CancelProcess(ctx context.Context, p CancelParams) (*progressorv1.Process, error) {
	c := storage.Cancel{Key: p.Key, Reason: p.Reason, Context: e.traces.keep(ctx, p.Key.ProcessID, nil), Grace: process.DefaultCancelGrace}
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
			e.cancelled(p.Key)
		case !state.Busy:
			e.calls.wake()
		default:
			e.attempts.cancelJob(p.Key)
		}
		return nil
	})
}

// errCancelled is why an attempt of this node ends whose process was CANCELLED: nobody can store its result.
var errCancelled = errors.New("the process was cancelled")

// errCancelRequested is the cause of the context of an attempt whose job was asked to end.
var errCancelRequested = errors.New("the job was cancelled")

// acknowledged returns the end of an attempt that stopped because its job was asked to end.
func acknowledged(end attemptEnd) attemptEnd {
	none := ""
	LeaseAnswer{Acknowledged: &none}.into(&end)
	end.err = nil
	return end
}

// cancelled tells everybody of this node whom the end of a process concerns.
func (e *Engine) cancelled(key process.Key) {
	e.attempts.cancelOf(key, errCancelled)
	e.waiters.recheck(key)
	e.watchers.recheck(key)
}

// overdueBatch is how many cancels past their grace one pass ends.
const overdueBatch = 200

// endOverdueCancels ends processes whose cancel is past its grace. Every node does so: of two that find the same the first one wins.
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
				e.log.Warn("process cancelled past the grace", "namespace", key.Namespace, "process_id", key.ProcessID)
				e.cancelled(key)
			}
		})
	}
	ends.Wait()
	return errors.Join(errs...)
}

// endOverdueCancel ends a process whose cancel has no grace. If that fails, the next pass of endOverdueCancels ends it.
func (e *Engine) endOverdueCancel(key process.Key) {
	if ended, err := e.store.EndOverdueCancel(key); err == nil && ended {
		e.cancelled(key)
	}
}

// extended is the step timeout, or the longer one that the kind of the process has for this attempt.
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
		e.log.WarnContext(ctx, "timeout of an attempt not extended", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID, "error", err)
		return ns.stepTimeout
	}
	return longer
}

// errGraceOver ends a CANCEL task: its process is CANCELLED with it.
var errGraceOver = errors.New(process.GraceExpiredMessage)

// timeoutOf is how long an attempt may take. graceful: that is the grace of a cancel, and not the step timeout.
func (e *Engine) timeoutOf(ctx context.Context, ns *namespace, c *storage.Claim) (timeout time.Duration, graceful bool) {
	if c.TaskType != process.TaskCancel {
		if job, err := storage.JobOf(c.Job); err == nil && job != nil {
			return job.Timeout(), false
		}
		return e.extended(ctx, ns, c), false
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	left, err := e.store.CancelGrace(ctx, process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID})
	if err != nil {
		e.log.WarnContext(ctx, "grace of a cancel not read", "namespace", c.Namespace, "process_id", c.ProcessID, "task_id", c.TaskID, "error", err)
		return ns.stepTimeout, false // the collector ends the process in time, whatever this attempt does
	}
	return min(left, ns.stepTimeout), left <= ns.stepTimeout
}
