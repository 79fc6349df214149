package flow

import (
	"slices"
	"time"
)

// checkAgain is the time between two checks for suspended processes, and the shortest time before the first.
const checkAgain = time.Second

// checkLater has the run look after some time whether processes of a step that it has asked to end are suspended: such a
// process would take the message only when it is resumed.
func (d *Decision) checkLater(step int, after time.Duration) {
	if s := d.State; d.Plan.Steps[step].Process && s.CheckAsked.IsZero() {
		s.CheckAsked = d.Now.Add(max(after, checkAgain))
	}
}

// checkAsked ends suspended processes of steps that were asked to end and are still open, and looks again later.
func (d *Decision) checkAsked() {
	s := d.State
	s.CheckAsked = time.Time{}
	for step := range d.statuses {
		each := s.Each[step]
		asked := slices.Contains(s.Asked, step) || each != nil && each.Stopped
		if asked && d.Status(step) == Open && d.Plan.Steps[step].Process {
			d.effect(Effect{Kind: EffectEndSuspended, Step: step, Index: NoIndex})
			d.checkLater(step, max(d.Plan.Grace, 10*checkAgain))
		}
	}
}
