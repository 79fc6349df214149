package flows

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/flows"
)

// Remove removes a run that has ended, with its steps and its jobs. It keeps the processes and runs
// that its steps have started. It may be repeated after an error.
func (f *Flows) Remove(ctx context.Context, namespace, runID string, by process.Actor) error {
	if err := f.checkEnded(ctx, namespace, runID); err != nil {
		return err
	}
	for {
		jobs, err := flows.Jobs(ctx, f.store, namespace, runID)
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			break
		}
		if err := f.engine.RemoveProcesses(ctx, namespace, jobs); err != nil {
			return err
		}
	}
	removed, err := f.engine.RemoveEnded(ctx, keyOf(namespace, runID), "RemoveRun", by)
	if err == nil && !removed { // it was removed or continued in the meantime
		err = f.checkEnded(ctx, namespace, runID)
	}
	return err
}

// checkEnded returns an error if a run does not exist or has not ended.
func (f *Flows) checkEnded(ctx context.Context, namespace, runID string) error {
	row, err := flows.Get(ctx, f.store, namespace, runID)
	if err != nil {
		return f.missing(ctx, namespace, runID, err)
	}
	if row.ProcessStatus != process.StatusCompleted && row.ProcessStatus != process.StatusCancelled {
		return &StatusError{Run: runID, Message: "it has not ended: cancel it first (CancelRun)"}
	}
	return nil
}
