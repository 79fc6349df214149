package flows

import (
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
)

// A job of a step that has failed for good is in ERROR, as any job, and stands in the lists of what needs an operator. Its run is what he takes up, and
// once that has done the step again, or has gone on without it, nothing is left to be done about the job: so the run asks it to end.

// failedJob is a job that has failed for good, with the step that it did.
type failedJob struct {
	place
	key process.Key
}

// failedWith is the job that broke with the end of a child, if that did a step.
func (t *task) failedWith(p place, child *progressorv1.ChildEnd, undo bool) (j failedJob, ok bool) {
	ok = child.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR && !undo && t.template.Steps[p.step].Action == flow.ActionJob
	return failedJob{p, process.Key{Namespace: child.GetNamespace(), ProcessID: child.GetProcessId()}}, ok
}

// letGo asks a job that has failed to end.
func (t *task) letGo(key process.Key, reason string) {
	t.messages = append(t.messages, storage.Message{Kind: storage.MessageCancel, Target: key, Reason: reason})
}

// letGoFailed asks the jobs to end that have failed and count no more: of steps that are done again, or whose failure is ignored, and all of a run that
// is at an end which nobody has to look at. The jobs of a run that is FAILED or EXPIRED stay: it can be taken up.
func (t *task) letGoFailed(now flows.Status) error {
	again := map[int]bool{}
	reads := false
	for n := range t.decision.Effects {
		if e := &t.decision.Effects[n]; e.Kind == flow.EffectReset && e.Index == noIndex {
			again[e.Step] = true
			reads = reads || flow.StepStatus(t.were[e.Step]) == flow.Failed || t.template.Steps[e.Step].ForEach()
		}
	}
	ended := (now == flows.Succeeded || now == flows.Cancelled) && t.before.Status != now
	counts := func(step int) (reason string) {
		switch {
		case again[step]:
			return "its step is done again"
		case t.decision.Status(step) == flow.Ignored:
			return "its run goes on: the failure of its step is ignored"
		case ended:
			return "its run is " + string(now)
		}
		return ""
	}
	for _, j := range t.failed {
		if reason := counts(j.step); reason != "" {
			t.letGo(j.key, reason)
		}
	}
	for step, each := range t.state.Run.Each {
		reads = reads || ended && (each.Failed > 0 || t.template.Steps[step].Source.GetIgnoreFailure())
	}
	for _, l := range t.were {
		reads = reads || ended && flow.StepStatus(l) == flow.Failed
	}
	if !reads || t.created != nil {
		return nil
	}
	rows, err := flows.FailedJobs(t.ctx, t.flows.store, t.key.Namespace, t.runID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		reason := "its step is in the template no more"
		if step, ok := t.template.Index(row.StepID); ok {
			reason = counts(step)
		}
		if reason != "" {
			t.letGo(process.Key{Namespace: row.ProcessNamespace, ProcessID: row.ProcessID}, reason)
		}
	}
	return nil
}
