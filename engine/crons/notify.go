package crons

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A run repeatedly checks whether the task that it has created has ended. Each check waits up to
// taskWait and uses a slot. Between two checks, the run sleeps for a part of the time that it has
// waited so far, because the response of the task may be deferred for days.
const (
	taskWait     = 5 * time.Second
	sleepPortion = 20
	maxSleep     = time.Minute
)

// sleepAfter returns how long a run sleeps after it has waited for the given time.
func sleepAfter(waited time.Duration) time.Duration {
	return min(max(waited, 0)/sleepPortion, maxSleep)
}

// notify sends a NOTIFY task to a process, once per run, and waits for the end of the task. It
// returns nil if the task has not ended, or if the run was asked to end in the meantime.
func (c *Crons) notify(
	ctx context.Context, run process.Key, target *progressorv1.NotifyProcessTarget,
) (*outcome, error) {
	key := process.Key{Namespace: cmp.Or(target.GetNamespace(), run.Namespace), ProcessID: target.GetProcessId()}
	answer, err := c.engine.Call(ctx, engine.CallParams{
		Key: key, Args: target.GetArgs(), IdempotencyKey: run.ProcessID, Accepted: true,
	})
	return c.taskEnd(ctx, run, key, answer, err)
}

// taskEnd waits for the end of a task that a run has created. err is the error of the creation.
// taskEnd returns a nil outcome if the task has not ended, or if the run was asked to end in the
// meantime.
func (c *Crons) taskEnd(ctx context.Context, run, key process.Key, answer engine.Answer, err error) (*outcome, error) {
	var task *progressorv1.Task
	cancelled := make(chan struct{})
	if err == nil {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		go c.watchCancel(waiting, run, cancelled, cancel)
		task, err = c.engine.AwaitTask(waiting, engine.AwaitParams{Key: key, TaskID: answer.TaskID, Timeout: taskWait})
	}
	asked := false
	select {
	case <-cancelled:
		asked = true
	default:
	}
	var status *process.WrongStatusError
	var o outcome
	switch {
	case asked && err != nil:
		return nil, nil //nolint:nilnil // the CANCEL task runs next
	case errors.Is(err, process.ErrProcessNotFound), errors.Is(err, process.ErrProcessExists),
		errors.Is(err, process.ErrTaskNotFound), errors.Is(err, process.ErrNamespaceNotFound),
		errors.Is(err, process.ErrNamespaceDeleting), errors.As(err, &status):
		o = failed("%s", err)
	case err != nil:
		return nil, err
	case task.GetFinishedTime() == nil:
		return nil, nil
	case task.GetStatus() == progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		o, err = c.cancelledTask(ctx, key)
		return &o, err
	case timedOut(task.GetFailure()):
		o = outcome{cron.Timeout, task.GetFailure().GetMessage()}
	case task.GetFailure() != nil:
		o = failed("%s", cmp.Or(task.GetFailure().GetMessage(), task.GetFailure().GetReason()))
	case task.GetRejection() != nil:
		o = failed("rejected: %s", cmp.Or(task.GetRejection().GetMessage(), task.GetRejection().GetReason()))
	default:
		o.Status = cron.Success
	}
	return &o, nil
}

// cancelledTask returns the outcome of a run whose task was cancelled. The run has failed if the
// process has failed or was removed.
func (c *Crons) cancelledTask(ctx context.Context, key process.Key) (outcome, error) {
	p, err := c.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	switch {
	case errors.Is(err, process.ErrProcessNotFound), errors.Is(err, process.ErrNamespaceNotFound):
		return failed("the process was removed"), nil
	case err != nil:
		return outcome{}, err
	case p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
		return failed("the task was cancelled, because the process is in ERROR: %s", p.GetDetail()), nil
	}
	return outcome{cron.Cancelled, "the task was cancelled"}, nil
}
