package cron

import (
	"fmt"
	"slices"
	"time"
)

// Ended tells that a run ended: SUCCESS, FAILED, TIMEOUT or CANCELLED. The end of a run that was asked to cancel in favor of
// another, and a second end, change nothing. What waits may start, and failures may pause the cron.
func (c Cron) Ended(state State, fire time.Time, status Status, ended, now time.Time) Step {
	d := c.begin(state, now)
	if d.forget(fire) {
		d.ends(fire, status, ended)
		d.startQueued()
	}
	return d.finish()
}

// maxEarlier bounds how many runs are remembered that were the run before: 9 KB of a state. One that is forgotten is taken for none.
const maxEarlier = 100

// Refused tells that a run was found not to start, after all: another one does what it would have done. Its fire is SKIPPED_CONCURRENCY
// then. It counts for nothing, not for max_fires either, and the run before is the one that it was without it.
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
	if run != d.s.Before {
		d.s.Earlier = slices.DeleteFunc(d.s.Earlier, func(r Run) bool { return r.Fire.Equal(fire) })
		return
	}
	d.s.Before = nil
	if n := len(d.s.Earlier); n > 0 {
		before := d.s.Earlier[n-1]
		d.s.Before, d.s.Earlier = &before, d.s.Earlier[:n-1]
	}
}

// passOver forgets the runs that have ended and can be the run before no more, because a newer one has ended too.
func (d *decider) passOver() {
	ended := d.s.Before.Status != Running
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
		d.passOver()
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
		d.step.Pause = fmt.Sprintf("paused after %d failures in a row; the run of %s ended %s", d.s.Failures, text(fire), status)
	}
}

// Trigger starts a run by a person's order, on a paused cron too: it goes through overlap and concurrency, but is not skipped
// for a failure, and does not count for max_fires. overlap may be OverlapActionDefault: the policy's. Its fire time is now,
// but never a whole second: those are the schedule's.
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

// Backfill decides the fire times from from on and before to that have come, those before the cron was made too, and of which
// inLedger does not know a row, as Trigger does. It makes at most 1,000 rows: rest is where to go on, zero when it is through.
func (c Cron) Backfill(state State, from, to time.Time, inLedger func(time.Time) bool, overlap OverlapAction, now time.Time) (step Step, rest time.Time) {
	d := c.begin(state, now)
	d.startQueued()
	to = time.Unix(min(ceilSecond(to), now.Unix()+1), 0).UTC()
	end := to
	for fire := range d.Schedule.Past().Between(from, to) {
		if len(d.step.Fires) == maxDecided {
			rest, end = fire, fire
			break
		}
		if !inLedger(fire) {
			d.decide(fire, d.action(overlap), true)
		}
	}
	d.backfilled(Range{From: from, To: end})
	return d.finish(), rest
}

// backfilled keeps what Tick must pass over.
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

// Pause lets nothing fire until Resume. What runs goes on, what waits stays.
func (c Cron) Pause(state State, now time.Time) Step {
	d := c.begin(state, now)
	d.s.Paused = true
	return d.finish()
}

// Resume ends a pause, and forgets the failures before it. What was missed goes through the misfire policy, as if nobody had
// looked; with skipMissed all of it is MISSED.
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

// Waiting is how many fire times have come and are not decided, up to limit: what a Resume would find.
func (c Cron) Waiting(state State, now time.Time, limit int) int {
	n := 0
	for range c.begin(state, now).pending(now) {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// TrialFrom is from when on an open circuit (FailureHalfOpen) lets a trial run, fires before it are skipped; zero: it is closed.
func (c Cron) TrialFrom(state State) time.Time { return c.begin(state, state.Decided).trialFrom() }

// Upcoming lists the next n fire times that no run of max_fires has used up, due or not, as if the cron were not paused.
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
