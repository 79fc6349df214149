package flows

import (
	"cmp"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// attemptFacts are facts about the last attempt of a job.
type attemptFacts struct {
	worker  string
	started time.Time // zero if unknown
	taken   bool      // a worker or a node took the job at least once
}

// isJob reports whether a job does the work of a step or an item. A step with for_each does no work
// itself, only its items do.
func (t *task) isJob(p stepRef) bool {
	s := &t.template.Steps[p.step]
	return s.Action == flow.ActionJob && s.ForEach() == (p.index != noIndex)
}

// setAttempt sets the facts about the last attempt of a job that has ended. It reads them if they
// are not known. It does nothing if child is not a job.
func (t *task) setAttempt(p stepRef, child *childEnd) error {
	if !strings.HasPrefix(child.GetProcessId(), process.StepPrefix) {
		return nil
	}
	if t.attempts[p] = child.attempt; !child.attempt.started.IsZero() {
		return nil
	}
	return t.readAttempts(map[stepRef]process.Key{p: keyOfChild(child.ChildEnd)})
}

// readAttempts reads the facts about the last attempts of jobs, and sets them in t.attempts. It
// assumes that a job that was removed had been taken.
func (t *task) readAttempts(jobsOf map[stepRef]process.Key) error {
	if len(jobsOf) == 0 {
		return nil
	}
	refs := make([]stepRef, 0, len(jobsOf))
	keys := make([]process.Key, 0, len(jobsOf))
	for p, key := range jobsOf {
		refs, keys = append(refs, p), append(keys, key)
	}
	rows, err := jobs.Get(t.Ctx, t.flows.store, keys...)
	if err != nil {
		return readError(err)
	}
	for n, row := range rows {
		facts := attemptFacts{taken: true}
		if row != nil {
			facts.worker = row.WorkerID
			facts.taken = row.WorkerID != "" || row.RunningTime != nil || len(row.Failures) > 0
			if row.RunningTime != nil {
				facts.started = row.RunningTime.UTC()
			}
		}
		t.attempts[refs[n]] = facts
	}
	return nil
}

// readOpenAttempts reads the facts about the last attempts of jobs that have not ended although
// their steps end in this task: the steps were skipped, or the run ends without them.
func (t *task) readOpenAttempts() error {
	open := map[stepRef]process.Key{}
	for n := range t.decision.Effects {
		e := &t.decision.Effects[n]
		if e.Kind != flow.EffectEnd || e.Index != noIndex || flow.StepStatus(t.before.steps[e.Step]) != flow.Running {
			continue
		}
		p := stepRef{e.Step, noIndex}
		if _, known := t.attempts[p]; known || !t.isJob(p) {
			continue
		}
		namespace := cmp.Or(t.template.Steps[e.Step].Source.GetJob().GetNamespace(), t.key.Namespace)
		open[p] = process.Key{Namespace: namespace, ProcessID: process.StepPrefix + t.workID(t.origin(p, false))}
	}
	return t.readAttempts(open)
}

// setBegan records when a step began. The run began with its first step.
func (t *task) setBegan(at time.Time) {
	if began := t.state.Began; !at.IsZero() && (began.IsZero() || at.Before(began)) {
		t.state.Began = at
	}
}
