package flows

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
)

// Cancel asks a run to end.
func (f *Flows) Cancel(
	ctx context.Context, r *progressorv1.CancelRunRequest, by process.Actor,
) (*progressorv1.Run, error) {
	if r.GetForce() {
		if err := f.repairBroken(ctx, keyOf(r.GetNamespace(), r.GetRunId()), by); err != nil {
			return nil, err
		}
	}
	o := &command{Method: methodCancel, Reason: r.GetReason(), Force: r.GetForce()}
	run, err := f.changed(ctx, r.GetNamespace(), r.GetRunId(), o, by)
	if status, ok := errors.AsType[*StatusError](err); ok {
		status.Cancel = true
	}
	runs := func(s *progressorv1.Step) bool {
		return s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_RUNNING
	}
	if err != nil || run.GetStatus() != progressorv1.RunStatus_RUN_STATUS_CANCEL_REQUESTED ||
		slices.ContainsFunc(run.GetSteps(), runs) {
		return run, err
	}
	// No worker has anything of it: it is CANCELLED at once.
	return f.Get(ctx, r.GetNamespace(), r.GetRunId(), cancelWait)
}

// repairBroken repairs the process of a run that is in ERROR, so that the run accepts commands.
func (f *Flows) repairBroken(ctx context.Context, key process.Key, by process.Actor) error {
	row, err := flows.Get(ctx, f.store, key.Namespace, key.ProcessID[len(process.FlowPrefix):])
	if err != nil || row.ProcessStatus != process.StatusError {
		return nil //nolint:nilerr // the command tells of it
	}
	_, err = f.engine.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
	return err
}

// cancelWait is how long a cancel waits for the jobs of a run that no worker has taken. They end by messages, which
// takes milliseconds.
const cancelWait = 2 * time.Second
