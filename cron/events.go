package cron

import (
	"fmt"
	"slices"
	"time"
)

// Ended handles the end of a run: SUCCESS, FAILED, TIMEOUT or CANCELLED. It has no effect if the
// run has already ended, or was cancelled because another run replaced it. Queued runs may start,
// and failures may pause the cron.
func (c Cron) Ended(state State, fire time.Time, status Status, ended, now time.Time) Step {
	d := c.begin(state, now)
	if d.forget(fire) {
		d.ends(fire, status, ended)
		d.startQueued()
	}
	return d.finish()
}

// maxEarlier limits the number of earlier runs in the state, which take about 9 KB. The state keeps
// the newest of them.
const maxEarlier = 100

// RemoveQueued removes a fire from the queue, so that it never starts. It reports whether the fire
// was in the queue. The fires behind it may start.
func (c Cron) RemoveQueued(state State, fire, now time.Time) (Step, bool) {
	d := c.begin(state, now)
	waiting := len(d.s.Queue)
	d.s.Queue = slices.DeleteFunc(d.s.Queue, func(w Wait) bool { return w.Fire.Equal(fire) })
	withdrawn := len(d.s.Queue) < waiting
	if withdrawn {
		d.startQueued()
	}
	return d.finish(), withdrawn
}

// Refused handles a run that its target refused to start, because another run has the same scope.
// Its fire becomes SKIPPED_CONCURRENCY. The fire does not count for max_fires, and the run before
// it becomes the previous run again.
func (c Cron) Refused(state State, fire time.Time, now time.Time) Step {
	d := c.begin(state, now)
	if d.forget(fire) {
		d.refused(fire)
		d.startQueued()
	}
	return d.finish()
}

func (d *decider) refused(fire time.Time) {
	run := d.s.Started(fire)
	if run == nil {
		return
	}
	if !run.Manual {
		d.s.Runs--
	}
	if run != d.s.Previous {
		d.s.Earlier = slices.DeleteFunc(d.s.Earlier, func(r Run) bool { return r.Fire.Equal(fire) })
		return
	}
	d.s.Previous = nil
	if n := len(d.s.Earlier); n > 0 {
		before := d.s.Earlier[n-1]
		d.s.Previous, d.s.Earlier = &before, d.s.Earlier[:n-1]
	}
}

// pruneEarlier removes ended runs that can no longer become the previous run, because a newer run
// has also ended.
func (d *decider) pruneEarlier() {
	ended := d.s.Previous.Status != Running
	for i := len(d.s.Earlier) - 1; i >= 0; i-- {
		switch {
		case d.s.Earlier[i].Status == Running:
		case ended:
			d.s.Earlier = slices.Delete(d.s.Earlier, i, i+1)
		default:
			ended = true
		}
	}
	if n := len(d.s.Earlier); n > maxEarlier {
		d.s.Earlier = d.s.Earlier[n-maxEarlier:]
	}
}

func (d *decider) ends(fire time.Time, status Status, ended time.Time) {
	if run := d.s.Started(fire); run != nil {
		run.Status, run.Ended = status, ended
		d.pruneEarlier()
	}
	if !status.failed() {
		d.s.Failures = 0
		d.s.Trial = time.Time{}
		return
	}
	d.s.Failures++
	threshold := d.Policy.PauseAfterFailures
	switch {
	case threshold == 0 || d.s.Failures < threshold:
	case d.Policy.Failure == FailureHalfOpen:
		d.s.Trial = later(d.s.Trial, ended)
	case !d.s.Paused:
		d.s.Paused = true
		d.step.Pause = fmt.Sprintf("paused after %d failures in a row; the run of %s ended %s", d.s.Failures,
			text(fire), status)
	}
}

// Trigger starts a manual run, even if the cron is paused. Overlap and concurrency apply, but the
// run is not skipped because of a failure, and does not count for max_fires. overlap may be
// OverlapActionDefault, the action of the policy. The fire time of the run is now, but never a
// whole second, because whole seconds belong to the schedule.
func (c Cron) Trigger(state State, overlap OverlapAction, now time.Time) Step {
	d := c.begin(state, now)
	d.startQueued()
	fire := later(now.UTC().Truncate(time.Microsecond), d.s.Manual.Add(time.Microsecond))
	if fire.Nanosecond() == 0 {
		fire = fire.Add(time.Microsecond)
	}
	d.s.Manual = fire
	d.decide(fire, d.action(overlap), true)
	return d.finish()
}

func (d *decider) action(overlap OverlapAction) OverlapAction {
	if overlap == OverlapActionDefault {
		return d.Policy.Overlap
	}
	return overlap
}

// Backfill decides the past fire times in [from, to) by the rules of Trigger. It includes times
// before the cron was created, and skips times for which inLedger returns true. It creates at most
// 1,000 rows. rest is the time at which to continue, or zero if the backfill is complete.
func (c Cron) Backfill(
	state State, from, to time.Time, inLedger func(time.Time) bool, overlap OverlapAction, now time.Time,
) (step Step, rest time.Time) {
	d := c.begin(state, now)
	d.startQueued()
	rest = d.past(from, to, inLedger, maxDecided, func(fire time.Time) { d.decide(fire, d.action(overlap), true) })
	return d.finish(), rest
}

// StartPast starts runs for at most limit of the fire times that Backfill would decide, oldest
// first. The policies do not apply to these runs, and the state does not count them. rest is the
// time at which to continue, or zero if there are no more fire times.
func (c Cron) StartPast(
	state State, from, to time.Time, inLedger func(time.Time) bool, limit int, now time.Time,
) (step Step, rest time.Time) {
	d := c.begin(state, now)
	rest = d.past(from, to, inLedger, limit, func(fire time.Time) {
		d.step.Fires = append(d.step.Fires,
			Fire{Time: fire, Decision: Fired, Attempt: 1, Status: Running, Manual: true, Count: 1})
	})
	return d.finish(), rest
}

// past calls decide for past fire times without a row, until the step has limit rows.
func (d *decider) past(
	from, to time.Time, inLedger func(time.Time) bool, limit int, decide func(fire time.Time),
) (rest time.Time) {
	to = time.Unix(min(ceilSecond(to), d.now.Unix()+1), 0).UTC()
	end := to
	for fire := range d.Schedule.Past().Between(from, to) {
		if len(d.step.Fires) == limit {
			rest, end = fire, fire
			break
		}
		if !inLedger(fire) {
			decide(fire)
		}
	}
	d.backfilled(Range{From: from, To: end})
	return rest
}

// backfilled stores the decided times that Tick must skip.
func (d *decider) backfilled(r Range) {
	if !r.To.After(d.s.Decided) || !r.From.Before(r.To) {
		return
	}
	if n := len(d.s.Backfills); n > 0 && d.s.Backfills[n-1].To.Equal(r.From) {
		d.s.Backfills[n-1].To = r.To
		return
	}
	d.s.Backfills = append(d.s.Backfills, r)
}

// Pause stops fires until Resume. Current runs continue, and queued runs stay.
func (c Cron) Pause(state State, now time.Time) Step {
	d := c.begin(state, now)
	d.s.Paused = true
	return d.finish()
}

// Resume ends a pause, and resets the failures before it. The misfire policy decides which fire
// times of the pause fire; with skipMissed, all of them are MISSED.
func (c Cron) Resume(state State, skipMissed bool, now time.Time) Step {
	d := c.begin(state, now)
	if d.s.Paused {
		d.s.Paused, d.s.Failures, d.s.Trial = false, 0, time.Time{}
		if skipMissed {
			d.s.SkipUntil = now
		}
	}
	d.startQueued()
	d.tick()
	return d.finish()
}

// Waiting returns the number of due fire times that are not decided yet, up to limit. A Resume
// would decide them.
func (c Cron) Waiting(state State, now time.Time, limit int) int {
	n := 0
	for range c.begin(state, now).pending(now) {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// TrialFrom returns when an open circuit (FailureHalfOpen) lets a trial run; earlier fires are
// skipped. It is zero if the circuit is closed.
func (c Cron) TrialFrom(state State) time.Time { return c.begin(state, state.Decided).trialFrom() }

// Upcoming returns the next n fire times within max_fires, including due ones, as if the cron were
// not paused.
func (c Cron) Upcoming(state State, n int) []time.Time {
	if limit := c.Schedule.spec.MaxFires; limit > 0 {
		n = int(min(int64(n), limit-state.Runs))
	}
	var list []time.Time
	if n <= 0 {
		return list
	}
	for fire := range c.begin(state, state.Decided).pending(time.Unix(lastInstant, 0)) {
		if list = append(list, fire); len(list) == n {
			break
		}
	}
	return list
}
