package flows

import (
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
)

// If the job of a step fails permanently, it is in ERROR like any other job, and is listed for
// operators. Operators retry the run, not the job. Once the run has repeated the step or has
// continued without it, the job no longer needs an operator, so the run asks the job to end.

// failedJob is a job that failed permanently, together with its step.
type failedJob struct {
	step int
	key  process.Key
}

// isFailedJob reports whether child is the job of a step and has failed. It ignores compensations.
func (t *task) isFailedJob(child *childEnd, o *flow.Outcome) bool {
	return child.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR && !o.Undo &&
		t.template.Steps[o.Step].Action == flow.ActionJob
}

// cancelLateJob handles the end of a child that came too late for its step. If the child is a
// failed job, cancelLateJob asks the job to end.
func (t *task) cancelLateJob(child *childEnd, o *flow.Outcome) {
	if t.isFailedJob(child, o) {
		t.cancelFailedJob(keyOfChild(child.ChildEnd), "its run continued without it")
	}
}

func keyOfChild(child *progressorv1.ChildEnd) process.Key {
	return process.Key{Namespace: child.GetNamespace(), ProcessID: child.GetProcessId()}
}

// cancelFailedJob asks a failed job to end.
func (t *task) cancelFailedJob(key process.Key, reason string) {
	t.messages = append(t.messages, storage.Message{Kind: storage.MessageCancel, Target: key, Reason: reason})
}

// cancelFailedJobs cancels the failed jobs that need no operator: those of steps that run again,
// whose failure is ignored, or that are no longer in the template. If the run is SUCCEEDED or
// CANCELLED, it cancels all failed jobs of the run. The jobs of a run that is FAILED or EXPIRED
// stay, because an operator may retry the run.
func (t *task) cancelFailedJobs(now flows.Status) error {
	again := map[int]bool{}
	reads := false
	for n := range t.decision.Effects {
		if e := &t.decision.Effects[n]; e.Kind == flow.EffectReset && e.Index == noIndex {
			again[e.Step] = true
			reads = reads || flow.StepStatus(t.before.steps[e.Step]) == flow.Failed ||
				t.template.Steps[e.Step].ForEach()
		}
	}
	ended := (now == flows.Succeeded || now == flows.Cancelled) && t.before.row.Status != now
	reasonFor := func(step int) (reason string) {
		switch {
		case again[step]:
			return "its step runs again"
		case t.decision.Status(step) == flow.Ignored:
			return "its run continues: the failure of its step is ignored"
		case ended:
			return "its run is " + string(now)
		}
		return ""
	}
	for _, j := range t.failed {
		if reason := reasonFor(j.step); reason != "" {
			t.cancelFailedJob(j.key, reason)
		}
	}
	for step, each := range t.state.Run.Each {
		reads = reads || ended && (each.Failed > 0 || t.template.Steps[step].Source.GetIgnoreFailure())
	}
	for _, status := range t.before.steps {
		reads = reads || ended && flow.StepStatus(status) == flow.Failed
	}
	if !reads || t.created != nil {
		return nil
	}
	rows, err := flows.FailedJobs(t.Ctx, t.flows.store, t.key.Namespace, t.runID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		reason := "its step is no longer in the template"
		if step, ok := t.template.Index(row.StepID); ok {
			reason = reasonFor(step)
		}
		if reason != "" {
			t.cancelFailedJob(process.Key{Namespace: row.ProcessNamespace, ProcessID: row.ProcessID}, reason)
		}
	}
	return nil
}
