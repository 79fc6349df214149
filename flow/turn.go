package flow

import (
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// turn is the next action of a pending step.
type turn byte

const (
	notYet turn = iota
	begin
	skip
)

// turnOf returns the next action of a pending step.
func (d *Decision) turnOf(step int) turn {
	p := &d.plan.Steps[step]
	var ended, succeeded, failed, skipped int
	for _, dep := range p.Deps {
		switch status := d.Status(dep); {
		case !d.isResolved(dep):
			continue
		case status.isSuccess():
			succeeded++
		case status == Failed || status == Cancelled:
			failed++
		default:
			skipped++
		}
		ended++
	}
	all := ended == len(p.Deps)
	if p.Join == progressorv1.JoinRule_JOIN_RULE_ALL_ENDED {
		return when(all && (!d.plan.Linear || d.allEnded(step)), begin)
	}
	switch {
	case d.plan.Linear:
		return when(d.previousSucceeded(step), begin)
	case p.Join == progressorv1.JoinRule_JOIN_RULE_ANY_SUCCEEDED && len(p.Deps) > 0:
		if succeeded > 0 {
			return begin
		}
		return when(all && failed == 0, skip)
	case p.Join == progressorv1.JoinRule_JOIN_RULE_ALL_SUCCEEDED:
		if skipped > 0 {
			return skip
		}
		return when(succeeded == len(p.Deps), begin)
	case !all || failed > 0:
		return notYet
	case succeeded == 0 && len(p.Deps) > 0:
		return skip
	}
	return begin
}

// previousSucceeded reports whether all steps before a step of a linear template have ended, and
// none of them failed or was cancelled. It checks all of them, because an operator may skip a later
// step while an earlier one runs.
func (d *Decision) previousSucceeded(step int) bool {
	for before := range step {
		if status := d.Status(before); !status.ended() || status == Failed || status == Cancelled {
			return false
		}
	}
	return true
}

// allEnded reports whether all steps before a step of a linear template have ended. It checks all
// of them, because an operator may skip the previous step while an earlier one runs.
func (d *Decision) allEnded(step int) bool {
	for before := range step {
		if !d.Status(before).ended() {
			return false
		}
	}
	return true
}

// isResolved reports whether a step of a graph and all steps on which it depends have ended. With
// the join rule ANY_SUCCEEDED, one dependency that succeeded is enough. After a retry, a step stays
// done even if its dependencies failed or were undone and have to run again. Without this check,
// later steps would begin before those dependencies.
func (d *Decision) isResolved(step int) bool {
	if !d.Status(step).ended() {
		return false
	}
	if d.plan.Linear || d.resolved[step] {
		return true
	}
	if fell, ok := d.unresolved[step]; ok && fell == d.endCount {
		return false
	}
	p := &d.plan.Steps[step]
	all, one := true, false
	for _, dep := range p.Deps {
		switch {
		case !d.isResolved(dep):
			all = false
		case d.Status(dep).isSuccess():
			one = true
		}
		if !all && p.Join != progressorv1.JoinRule_JOIN_RULE_ANY_SUCCEEDED {
			break
		}
	}
	if all || one && p.Join == progressorv1.JoinRule_JOIN_RULE_ANY_SUCCEEDED {
		d.resolved[step] = true // until the next reset
		return true
	}
	if d.unresolved == nil {
		d.unresolved = map[int]int{}
	}
	d.unresolved[step] = d.endCount
	return false
}

// follow adds to d.check the steps that may be ready after a step has ended.
func (d *Decision) follow(step int) {
	d.endCount++
	if !d.plan.Linear {
		d.below(step, nil)
		return
	}
	for next := step + 1; next < len(d.statuses); next++ {
		if !d.Status(next).ended() {
			d.check = append(d.check, next)
			return
		}
	}
}

// below adds to d.check the steps that depend on a step. It also follows dependents that have
// ended, because they stay done after a retry.
func (d *Decision) below(step int, seen map[int]bool) {
	for _, next := range d.plan.Steps[step].Dependents {
		if !d.Status(next).ended() {
			d.check = append(d.check, next)
		} else if !seen[next] {
			if seen == nil {
				seen = map[int]bool{}
			}
			seen[next] = true
			d.below(next, seen)
		}
	}
}

func when(holds bool, t turn) turn {
	if holds {
		return t
	}
	return notYet
}

// work begins or skips the steps that are ready.
func (d *Decision) work() {
	for len(d.check) > 0 {
		step := d.check[0]
		d.check = d.check[1:]
		switch d.Status(step) {
		case Running:
			if d.State.Each[step] != nil {
				d.beginItems(step)
			}
		case Pending:
			d.checkStep(step)
		}
	}
}

func (d *Decision) checkStep(step int) {
	s, p := d.State, &d.plan.Steps[step]
	cleans := s.Mode == ModeStopping && s.Cause != ByCancel && d.final() &&
		p.Join == progressorv1.JoinRule_JOIN_RULE_ALL_ENDED
	if s.Mode != ModeRunning && !cleans {
		return
	}
	switch d.turnOf(step) {
	case notYet:
	case skip:
		d.endStep(Outcome{Step: step, Index: NoIndex, Status: Skipped, Reason: "none of its dependencies succeeded"})
	case begin:
		if d.starts >= startsAtOnce {
			s.More = true
			return
		}
		if p.Conditional {
			holds, err := d.facts.Rules.Condition(d, step)
			switch {
			case d.lacks(err):
				d.starts++ // so that the number of missing facts is also limited
				return
			case err != nil:
				d.fail(step, NoIndex, err)
				return
			case !holds:
				d.endStep(Outcome{Step: step, Index: NoIndex, Status: Skipped, Reason: "its condition is false"})
				return
			}
		}
		d.begin(step)
	}
}

// fail fails a step or an item with an error of its template, such as a condition that cannot be
// evaluated or results that are too large.
func (d *Decision) fail(step, index int, err error) {
	d.endStepOrItem(Outcome{Step: step, Index: index, Round: d.State.Round, Status: Failed, End: &End{Err: err}})
}

func (d *Decision) begin(step int) {
	p, s := &d.plan.Steps[step], d.State
	if !p.Each {
		d.statuses[step] = byte(Running)
		d.startWork(step, NoIndex)
		return
	}
	d.starts++
	items, err := d.facts.Rules.Items(d, step)
	if d.lacks(err) {
		return
	}
	d.statuses[step] = byte(Running)
	d.effect(Effect{Kind: EffectBegin, Step: step, Index: NoIndex})
	if err != nil {
		d.fail(step, NoIndex, err)
		return
	}
	if s.Each == nil {
		s.Each = map[int]*Each{}
	}
	if each := s.Each[step]; each != nil {
		d.match(step, each, items)
	} else {
		s.Each[step] = &Each{Count: len(items)}
		if s.Round > 1 {
			d.effect(Effect{Kind: EffectDropItems, Step: step, Index: NoIndex})
		}
	}
	d.beginItems(step)
}

// startWork begins the work of a step or an item.
func (d *Decision) startWork(step, index int) {
	work, due, err := d.facts.Rules.Begin(d, step, index)
	d.starts++
	d.effect(Effect{Kind: EffectBegin, Step: step, Index: index, Due: due, Work: work})
	switch {
	case d.lacks(err):
	case err != nil:
		d.fail(step, index, err)
	case !due.IsZero():
		d.State.SetDeadline(step, index, due)
	}
}

// checkComplete begins the next phase of the run if the attempt or the compensation is complete.
func (d *Decision) checkComplete() {
	s := d.State
	if s.Mode != ModeRunning && s.Mode != ModeStopping && s.Mode != ModeCompensating || s.More || len(d.Missing) > 0 {
		return
	}
	var bad, failed, pending bool
	for step := range d.statuses {
		switch d.Status(step) {
		case Running:
			return
		case Failed:
			failed = true
		case Cancelled:
			bad = true
		case Pending:
			pending = true
		}
	}
	switch {
	case s.Mode == ModeCompensating:
	case s.Mode == ModeRunning && pending:
		return
	case s.Mode == ModeRunning:
		if d.succeed(); s.Mode == ModeEnded || d.backOff() {
			return
		}
	case d.backOff():
		return
	case s.Cause == ByCancel && !bad && !failed:
		if d.succeed(); s.Mode == ModeEnded {
			return
		}
	case s.Cause == ByCancel && !bad:
		s.Cause = ByFailure
	}
	d.compensate()
}

// succeed ends a run whose steps have succeeded. If its result cannot be computed, the run fails as
// if a step had failed.
func (d *Decision) succeed() {
	result, err := d.facts.Rules.Result(d)
	if d.lacks(err) || err == nil {
		d.Result = result
		d.finish("succeeded")
		return
	}
	d.State.Cause, d.State.BadResult = ByFailure, err.Error()
	d.mode(ModeStopping)
}

// backOff begins the pause before the next attempt of a run that failed. It reports whether there
// is a next attempt.
func (d *Decision) backOff() bool {
	s := d.State
	if s.Cause != ByFailure || d.final() {
		return false
	}
	s.BackoffUntil = d.facts.Now.Add(d.plan.Backoff(s.Attempt + 1))
	d.reset()
	d.mode(ModeResting)
	return true
}

// compensate undoes the steps one by one, the last one first, then ends the run.
func (d *Decision) compensate() {
	s := d.State
	for s.Undoing == nil && len(s.Done) > 0 {
		step := s.Done[len(s.Done)-1]
		s.Done = s.Done[:len(s.Done)-1]
		d.mode(ModeCompensating)
		work, err := d.facts.Rules.Undo(d, step)
		if err != nil && !d.lacks(err) {
			d.undone(step, Failed, "it could not start: "+err.Error())
			continue
		}
		s.Undoing = &step
		d.effect(Effect{Kind: EffectCompensate, Step: step, Index: NoIndex, Work: work})
	}
	if s.Undoing != nil {
		return
	}
	d.finish(s.stopped())
}

// stopped returns the status of a run that was stopped. A run that failed because a worker was lost
// is expired.
func (s *State) stopped() Cause {
	if s.Cause == ByFailure && s.Lost {
		return ByTime
	}
	return s.Cause
}

// undone records the end of a compensation. After a retry, a step that succeeded runs again only if
// it was undone.
func (d *Decision) undone(step int, status StepStatus, reason string) {
	d.effect(Effect{Kind: EffectCompensated, Step: step, Index: NoIndex, Status: status, Reason: reason})
	if status == Succeeded {
		d.State.Undone = append(d.State.Undone, step)
	} else {
		d.State.Left = append(d.State.Left, step)
	}
}

func (d *Decision) finish(status Cause) {
	s := d.State
	s.Status, s.Deadlines, s.More, s.Asked = status, nil, false, nil
	s.Deadline, s.Grace, s.BackoffUntil, s.CheckAsked = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	d.mode(ModeEnded)
}
