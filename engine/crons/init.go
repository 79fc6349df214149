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

// startedKey is the process of a user that a run of its own starts: RUN_END_INIT.
func startedKey(run process.Key, w *work, target *progressorv1.StartProcessTarget) process.Key {
	return process.Key{Namespace: cmp.Or(target.GetNamespace(), run.Namespace), ProcessID: attemptID(w.CronID, w.Fire, w.Rerun)}
}

// start starts a process, once by the id of the run, and waits for the end of its INIT task. nil: it has not ended.
func (c *Crons) start(ctx context.Context, run process.Key, w *work, target *progressorv1.StartProcessTarget) (*outcome, error) {
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

// cancelStarted asks the process that a run has started to end, for nobody else does: it is not the run's child. target nil: there is none.
func (c *Crons) cancelStarted(ctx context.Context, run process.Key, w *work, target *progressorv1.StartProcessTarget) error {
	if target == nil {
		return nil
	}
	_, err := c.engine.CancelProcess(ctx, engine.CancelParams{Key: startedKey(run, w, target), Reason: "its run was cancelled", Actor: process.Actor{Name: ProcessID(w.CronID)}})
	var status *process.WrongStatusError
	if errors.Is(err, process.ErrProcessNotFound) || errors.Is(err, process.ErrNamespaceNotFound) || errors.As(err, &status) {
		return nil // it was never there, or has ended
	}
	return err
}
