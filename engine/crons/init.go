package crons

import (
	"cmp"
	"context"
	"errors"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// startedKey returns the key of the user's process that a run with RUN_END_INIT starts.
func startedKey(run process.Key, w *work, target *progressorv1.StartProcessTarget) process.Key {
	return process.Key{
		Namespace: cmp.Or(target.GetNamespace(), run.Namespace), ProcessID: attemptID(w.CronID, w.Fire, w.Rerun),
	}
}

// start starts a process, once per run, and waits for the end of its INIT task. It returns nil if
// the task has not ended, or if the run was asked to end in the meantime.
func (c *Crons) start(
	ctx context.Context, run process.Key, w *work, target *progressorv1.StartProcessTarget,
) (*outcome, error) {
	metadata, err := wire.JSON(runMetadata(w.CronID, w.Fire, w.Attempt, target.GetMetadata()))
	if err != nil {
		return nil, err
	}
	key := startedKey(run, w, target)
	answer, err := c.engine.Start(ctx, engine.StartParams{
		Key: key, Args: target.GetArgs(), Metadata: metadata, IdempotencyKey: run.ProcessID, Accepted: true,
	})
	return c.taskEnd(ctx, run, key, answer, err)
}

// cancelStarted cancels the process that a run has started. The process is not a child of the run,
// so nothing else cancels it. target is nil if there is no such process.
func (c *Crons) cancelStarted(
	ctx context.Context, run process.Key, w *work, target *progressorv1.StartProcessTarget,
) error {
	if target == nil {
		return nil
	}
	_, err := c.engine.CancelProcess(ctx, engine.CancelParams{
		Key: startedKey(run, w, target), Reason: "its run was cancelled",
		Actor: process.Actor{Name: ProcessID(w.CronID)},
	})
	var status *process.WrongStatusError
	if errors.Is(err, process.ErrProcessNotFound) || errors.Is(err, process.ErrNamespaceNotFound) ||
		errors.Is(err, process.ErrNamespaceDeleting) || errors.As(err, &status) {
		return nil // the process never existed, or has ended
	}
	return err
}
