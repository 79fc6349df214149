package flow

import (
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// defaultGrace is the grace period if the template does not define one.
const defaultGrace = 30 * time.Second

// Grace returns how long steps that were asked to end may take.
func (t *Template) Grace() time.Duration {
	policy := t.Source.GetCancelPolicy()
	switch {
	case policy.GetMode() == progressorv1.CancelPolicy_MODE_IMMEDIATE:
		return 0
	case policy.GetGrace() != nil:
		return policy.GetGrace().AsDuration()
	}
	return defaultGrace
}

// Plan returns the plan of a template. backoff returns how long a run waits before an attempt,
// starting with attempt 2.
func (t *Template) Plan(backoff func(attempt int32) time.Duration) *Plan {
	p := &Plan{
		Steps: make([]PlanStep, len(t.Steps)), Linear: t.Linear, MaxAttempts: t.MaxAttempts(), Backoff: backoff,
		Timeout: t.Source.GetTimeout().AsDuration(), Grace: t.Grace(),
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		each := s.Source.GetForEach()
		p.Steps[i] = PlanStep{
			Deps: s.DependsOn, Dependents: s.Dependents, Join: s.Join, Conditional: s.condition != nil,
			Each:       s.ForEach(),
			MaxRunning: int(each.GetMaxRunning()), MaxFailures: int(each.GetMaxFailures()), Cancelable: s.Cancelable,
			Process: s.Action == ActionProcess,
			Ignore:  s.Source.GetIgnoreFailure(), Undoable: s.Source.GetCompensation() != nil,
		}
		switch {
		case s.Action == ActionDelay:
			p.Steps[i].Waits = Delay
		case s.Action != ActionWait:
		case s.Source.GetWait().GetKind() == progressorv1.WaitAction_KIND_HUMAN:
			p.Steps[i].Waits = Human
		default:
			p.Steps[i].Waits = External
		}
	}
	return p
}
