package cron

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Tick decides the due fire times. Call it at Next of the previous step; earlier and later calls
// are allowed.
func (c Cron) Tick(state State, now time.Time) Step {
	d := c.begin(state, now)
	d.startQueued()
	d.tick()
	return d.finish()
}

func (d *decider) tick() {
	if d.s.Paused || d.NamespacePaused || d.reachedMaxFires() {
		return
	}
	newest, ok := d.newestDue()
	if !ok {
		return
	}
	if !d.miss(d.keepFrom(newest), newest) {
		d.more = true
		return
	}
	for fire := range d.pending(newest) {
		if d.reachedMaxFires() {
			return
		}
		if len(d.step.Fires) >= maxDecided {
			d.more = true
			return
		}
		d.decide(fire, d.Policy.Overlap, false)
		d.decided(fire)
	}
}

// decided advances the end of the decided fire times.
func (d *decider) decided(fire time.Time) {
	d.s.Decided = fire
	d.s.Backfills = slices.DeleteFunc(d.s.Backfills, func(r Range) bool { return !r.To.After(fire) })
}

// pending returns the fire times without a row up to a time, oldest first; pendingBack returns
// those before a time, newest first.
func (d *decider) pending(upTo time.Time) iter.Seq[time.Time] {
	return d.withoutBackfills(d.Schedule.Between(time.Unix(d.s.Decided.Unix()+1, 0), upTo.Add(1)))
}

func (d *decider) pendingBack(before time.Time) iter.Seq[time.Time] {
	return d.withoutBackfills(d.Schedule.Backward(before, time.Unix(d.s.Decided.Unix()+1, 0)))
}

func (d *decider) withoutBackfills(fires iter.Seq[time.Time]) iter.Seq[time.Time] {
	if len(d.s.Backfills) == 0 {
		return fires
	}
	backfills := slices.Clone(d.s.Backfills)
	return func(yield func(time.Time) bool) {
		for fire := range fires {
			within := func(r Range) bool { return !fire.Before(r.From) && fire.Before(r.To) }
			if !slices.ContainsFunc(backfills, within) && !yield(fire) {
				return
			}
		}
	}
}

// newestDue returns the newest due fire time without a row.
func (d *decider) newestDue() (time.Time, bool) {
	for fire := range d.pendingBack(d.now.Add(1)) {
		if !d.Schedule.Due(d.Key, fire).After(d.now) {
			return fire, true
		}
	}
	return time.Time{}, false
}

// keepFrom returns the first fire time that the policies decide. Earlier fire times are missed.
func (d *decider) keepFrom(newest time.Time) time.Time {
	var keep time.Time
	if !d.s.SkipUntil.IsZero() {
		keep = d.s.SkipUntil.Add(1)
	}
	if d.Policy.CatchUpWindow > 0 {
		cutoff := d.now.Add(-d.Policy.CatchUpWindow)
		// Jitter may delay a fire time from before the cutoff.
		if last, ok := d.Schedule.Prev(cutoff); ok && !d.Schedule.Due(d.Key, last).Before(cutoff) {
			cutoff = last
		}
		keep = later(keep, cutoff)
	}
	switch d.Policy.Misfire {
	case MisfireFireNow:
		keep = later(keep, d.newestThatStart(newest))
	case MisfireSkip:
		keep = later(keep, newest)
		if d.late(newest) > d.Policy.MisfireThreshold {
			keep = later(keep, newest.Add(1))
		}
	case MisfireCatchUpLimited:
		left := d.Policy.CatchUpLimit
		for fire := range d.pendingBack(newest.Add(1)) {
			if left--; left <= 0 {
				keep = later(keep, fire)
				break
			}
		}
	}
	return keep
}

// newestThatStart returns the oldest of the newest fire times that can start or be queued now.
// Earlier fire times are missed. It returns zero if none or all can start.
func (d *decider) newestThatStart(newest time.Time) time.Time {
	left := d.room()
	if left <= 0 || left == math.MaxInt {
		return time.Time{}
	}
	for fire := range d.pendingBack(newest.Add(1)) {
		if left--; left == 0 {
			return fire
		}
	}
	return time.Time{}
}

// room returns how many consecutive fire times can start or be queued now. It includes a fire time
// before them that is skipped because of a failure. MaxInt means all.
func (d *decider) room() int {
	room, fires := d.startable()
	failure := d.failure(false)
	switch {
	case room == 0:
		return 0
	case d.overlapsBuffered(): // it waits, regardless of failures
	case failure.decision != 0 && !failure.usesUpFailure:
		return 0
	case failure.trial && fires && d.Policy.Overlap != OverlapActionBufferOne:
		room = 1 // only the trial; a buffered run waits for it
	}
	if limit := d.Schedule.spec.MaxFires; limit > 0 {
		room = int(min(int64(room), limit-d.s.Runs))
	}
	if failure.usesUpFailure && room != math.MaxInt {
		room++
	}
	return room
}

func (d *decider) overlapsBuffered() bool {
	return d.Policy.Overlap == OverlapActionBufferOne && d.overlaps()
}

// startable returns how many consecutive fire times can start or be queued under the policies for
// overlap and concurrency. fires is true if the first of them starts.
func (d *decider) startable() (n int, fires bool) {
	running, limit := len(d.s.Running), int(d.Policy.MaxConcurrency)
	overlap := d.Policy.Overlap
	if overlap == OverlapActionCancelPrev && d.overlaps() {
		running--
	}
	fires = running < limit
	queue := 0
	if d.Policy.Concurrency == ConcurrencyQueue {
		queue = max(int(d.Policy.QueueLimit)-len(d.s.Queue), 0)
	}
	buffer := 0
	if overlap == OverlapActionBufferOne && len(d.s.Queue) == 0 {
		buffer = 1
	}
	switch {
	case overlap == OverlapActionParallel && len(d.s.Running) >= int(min(d.Policy.MaxOverlap, MaxRuns)):
		return 0, false
	case overlap == OverlapActionParallel && (fires || d.overlaps()):
		return int(min(d.Policy.MaxOverlap, MaxRuns)) - len(d.s.Running), true
	case overlap == OverlapActionCancelPrev && fires:
		return math.MaxInt, true
	case overlap == OverlapActionSkip && d.overlaps():
		return 0, false
	case overlap == OverlapActionSkip && fires:
		return 1, true
	case d.overlapsBuffered():
		return buffer, false
	case overlap == OverlapActionBufferOne && fires:
		return 1 + buffer, true
	}
	return max(limit-running, 0) + queue, fires
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (d *decider) late(fire time.Time) time.Duration { return d.now.Sub(d.Schedule.Due(d.Key, fire)) }

// miss creates the rows of the fire times before keep. It returns false if the step has no room for
// all of them.
func (d *decider) miss(keep, newest time.Time) bool {
	if !keep.After(d.s.Decided) && d.s.Old == nil {
		return true
	}
	var rows []time.Time
	for fire := range d.pendingBack(keepWithin(keep, newest)) {
		if rows = append(rows, fire); len(rows) == maxDecided {
			break
		}
	}
	slices.Reverse(rows)
	if len(rows) == maxDecided && !d.countOld(rows[0]) {
		return false
	}
	d.missOld(newest)
	for _, fire := range rows {
		if len(d.step.Fires) >= maxDecided {
			return false
		}
		d.step.Fires = append(d.step.Fires,
			Fire{Time: fire, Decision: Missed, Reason: d.missedBy(fire, newest), Status: Skipped, Count: 1})
		d.decided(fire)
	}
	return true
}

// keepWithin returns keep, but at most the moment after newest, because later fire times are not
// due yet.
func keepWithin(keep, newest time.Time) time.Time {
	if keep.After(newest) {
		return newest.Add(1)
	}
	return keep
}

// countOld counts the missed fire times before a time for their common row. It returns false if the
// step must end before all of them are counted.
func (d *decider) countOld(before time.Time) bool {
	counted, limit := 0, max(maxDecided, maxCounted/len(d.Schedule.sources))
	for fire := range d.pending(before.Add(-1)) {
		if counted == limit {
			return false
		}
		counted++
		if d.s.Old == nil {
			d.s.Old = &Range{From: fire}
		}
		d.s.Old.To = fire
		d.s.Old.Count++
		d.decided(fire)
	}
	return true
}

// missOld creates the common row of the times that countOld counted. The row has the newest of
// these times.
func (d *decider) missOld(newest time.Time) {
	old := d.s.Old
	if old == nil {
		return
	}
	d.s.Old = nil
	reason := d.missedBy(old.To, newest)
	if old.Count > 1 {
		reason += fmt.Sprintf("; %d fire times from %s to %s", old.Count, text(old.From), text(old.To))
	}
	d.step.Fires = append(d.step.Fires,
		Fire{Time: old.To, Decision: Missed, Reason: reason, Status: Skipped, Count: old.Count})
}

func (d *decider) missedBy(fire, newest time.Time) string {
	switch {
	case !fire.After(d.s.SkipUntil):
		return "paused"
	case d.Policy.CatchUpWindow > 0 && d.late(fire) > d.Policy.CatchUpWindow:
		return fmt.Sprintf("older than the catch-up window of %s", d.Policy.CatchUpWindow)
	case d.Policy.Misfire == MisfireFireNow:
		return "a newer fire time that is due replaces it"
	case d.Policy.Misfire == MisfireCatchUpLimited:
		return fmt.Sprintf("only the newest %d due fire times run", d.Policy.CatchUpLimit)
	case fire.Equal(newest):
		return fmt.Sprintf("%s late, which exceeds the misfire threshold of %s", d.late(fire),
			d.Policy.MisfireThreshold)
	}
	return "only the newest due fire time runs"
}
