package flows

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
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
	// No step is RUNNING, so the run ends as soon as it has been notified that its jobs have ended.
	return f.Get(ctx, r.GetNamespace(), r.GetRunId(), cancelWait)
}

// repairBroken repairs the process of a run if it is in ERROR, so that the run accepts commands.
func (f *Flows) repairBroken(ctx context.Context, key process.Key, by process.Actor) error {
	row, err := flows.Get(ctx, f.store, key.Namespace, key.ProcessID[len(process.FlowPrefix):])
	if err != nil || row.ProcessStatus != process.StatusError {
		return nil //nolint:nilerr // the command reports it
	}
	_, err = f.engine.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
	return err
}

// cancelWait is how long a cancel waits for the end of a run whose open jobs no worker has taken.
// Messages end these jobs within milliseconds.
const cancelWait = 2 * time.Second

// requestCancel asks the job, process or run of a step or an item to end. The run itself ends waits
// and delays.
func (t *task) requestCancel(p stepRef, reason string) {
	s := &t.template.Steps[p.step]
	if s.ForEach() && p.index == noIndex {
		return
	}
	id, reason := t.workID(t.origin(p, false)), cmp.Or(reason, t.cancelReason())
	if s.Action != flow.ActionWait && s.Action != flow.ActionDelay {
		t.event(eventCancelRequested, p, "", "", reason)
	}
	cancel := storage.Message{Kind: storage.MessageCancel, Reason: reason}
	switch s.Action {
	case flow.ActionJob:
		namespace := cmp.Or(s.Source.GetJob().GetNamespace(), t.key.Namespace)
		cancel.Target = process.Key{Namespace: namespace, ProcessID: process.StepPrefix + id}
	case flow.ActionProcess:
		namespace := cmp.Or(s.Source.GetProcess().GetNamespace(), t.key.Namespace)
		cancel.Target = process.Key{Namespace: namespace, ProcessID: id}
		grace := t.template.Grace()
		cancel.Grace = &grace
	case flow.ActionRun:
		t.sendCommand(id, &command{Method: methodCancel, Reason: reason})
		return
	case flow.ActionWait, flow.ActionDelay:
		return
	}
	t.messages = append(t.messages, cancel)
}

// cancelEvent adds an event that reports how the cancel of a job or process of a step ended: its
// worker stopped, or its grace period expired.
func (t *task) cancelEvent(p stepRef, child *progressorv1.ChildEnd) error {
	kind, worker, err := flows.CancelOutcome(t.Ctx, t.flows.store, keyOfChild(child))
	if err != nil {
		return readError(err)
	}
	if kind != "" {
		t.event(kind, p, "", "", "").WorkerID = worker
	}
	return nil
}

// endSuspended cancels processes that an operator has suspended although their steps were asked to
// end. Otherwise, the run would wait until they are resumed. They become CANCELLED immediately, as
// with CancelProcess, and their ends are reported to the run as usual.
func (t *task) endSuspended() error {
	if len(t.endsSuspended) == 0 {
		return nil
	}
	keys, err := flows.SuspendedProcesses(t.Ctx, t.flows.store, t.key.Namespace, t.runID, t.endsSuspended)
	if err != nil {
		return readError(err)
	}
	for _, key := range keys {
		_, err := t.flows.engine.CancelProcess(t.Ctx, engine.CancelParams{
			Key: key, Reason: t.cancelReason(), Actor: t.asActor(key.Namespace),
		})
		if err != nil && !errors.Is(err, process.ErrProcessNotFound) && !ended(err) {
			return readError(err)
		}
	}
	return nil
}

// asActor returns the run as the actor of a command. The details of the audit entry contain the ID
// of the run only in the namespace of the run, so that an erasure of the run finds it.
func (t *task) asActor(namespace string) process.Actor {
	actor := process.Actor{Name: "run"}
	if namespace == t.key.Namespace {
		actor.Via = t.key.ProcessID
	}
	return actor
}

// ended reports whether a command was rejected because its process has the wrong status.
func ended(err error) bool {
	_, rejected := errors.AsType[*process.WrongStatusError](err)
	return rejected
}
