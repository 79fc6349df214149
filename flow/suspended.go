package flow

import (
	"slices"
	"time"
)

// checkAgain is the minimum time before the first check for suspended processes. The minimum time
// between two later checks is ten times as long.
const checkAgain = time.Second

// checkLater schedules a check of whether the processes of a step that was asked to end are
// suspended. A suspended process would handle the cancel only after it is resumed.
func (d *Decision) checkLater(step int, after time.Duration) {
	if s := d.State; d.plan.Steps[step].Process && s.CheckAsked.IsZero() {
		s.CheckAsked = d.facts.Now.Add(max(after, checkAgain))
	}
}

// checkAsked ends suspended processes of open steps that were asked to end, and schedules the next
// check.
func (d *Decision) checkAsked() {
	s := d.State
	s.CheckAsked = time.Time{}
	for step := range d.statuses {
		each := s.Each[step]
		asked := slices.Contains(s.Asked, step) || each != nil && each.Stopped
		if asked && d.Status(step) == Running && d.plan.Steps[step].Process {
			d.effect(Effect{Kind: EffectEndSuspended, Step: step, Index: NoIndex})
			d.checkLater(step, max(d.plan.Grace, 10*checkAgain))
		}
	}
}
