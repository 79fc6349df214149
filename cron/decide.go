package cron

import (
	"fmt"
	"time"
)

// Cron applies a policy, which Validate must have accepted, to the fire times of a schedule. The
// methods of Cron have no side effects: they return a Step.
type Cron struct {
	Key      string // namespace and ID; seed of the jitter
	Schedule *Schedule
	Policy   Policy
	// NamespacePaused is true while the namespace is paused. Then no fire times are decided, and
	// queued runs do not start.
	NamespacePaused bool
	Refusable       bool // the target may refuse a run after it was started; see Refused
}

// The limits of a step. A step that reaches one of them is incomplete, and its Next is the current
// time.
const (
	// maxDecided is the maximum number of rows of a step, and of missed times that get their own
	// row. Older missed times share a row.
	maxDecided = 1000
	// maxCounted, divided by the number of expressions, is the maximum number of missed times that
	// a step counts. Counting them takes about 0.1 s.
	maxCounted = 1_000_000
)

// decider processes one event of a cron and collects the Step to return.
type decider struct {
	Cron
	now  time.Time
	s    State
	step Step
	more bool // the step is incomplete
}

// begin returns a decider for an event at the time now.
func (c Cron) begin(state State, now time.Time) *decider {
	c.Policy = c.Policy.filled()
	return &decider{Cron: c, now: now, s: state.clone()}
}

// finish returns the step, with the new state and the time of the next timer.
func (d *decider) finish() Step {
	switch next, ok := d.nextFire(); {
	case !ok:
		d.step.Over = true
	case d.s.Paused:
	case d.more:
		d.step.Next = d.now
	default:
		d.step.Next = d.Schedule.Due(d.Key, next)
	}
	d.step.State = d.s
	return d.step
}

// reachedMaxFires reports whether the spec has max_fires and that many runs were started or queued.
func (d *decider) reachedMaxFires() bool {
	limit := d.Schedule.spec.MaxFires
	return limit > 0 && d.s.Runs >= limit
}

// nextFire returns the next fire time that is not decided yet, or false if there is none.
func (d *decider) nextFire() (time.Time, bool) {
	if d.reachedMaxFires() {
		return time.Time{}, false
	}
	for fire := range d.pending(time.Unix(lastInstant, 0)) {
		return fire, true
	}
	return time.Time{}, false
}

// verdict is the decision on one fire.
type verdict struct {
	decision      Decision
	reason        string
	cancel        bool // this run replaces the previous one, which is cancelled when this one starts
	usesUpFailure bool // the failure of the previous run must not cause further skips
	trial         bool // this run is the trial that an open circuit allows
	buffered      bool // queued until the previous run ends
}

// verdictFor applies the policies in this order: overlap, failure, concurrency (docs/crons.md, "How
// a fire is decided"). It does not change the state.
func (d *decider) verdictFor(overlap OverlapAction, manual bool) verdict {
	v := d.overlap(overlap)
	if v.decision != 0 {
		return v
	}
	if failure := d.failure(manual); failure.decision != 0 {
		return failure
	} else if failure.trial {
		v.trial = true
	}
	if overlap == OverlapActionParallel && d.overlaps() {
		v.decision = Fired
		return v
	}
	running := len(d.s.Running)
	if v.cancel {
		running-- // the previous run frees its slot
	}
	switch {
	case running < int(d.Policy.MaxConcurrency):
		v.decision = Fired
	case d.Policy.Concurrency != ConcurrencyQueue:
		v.decision, v.reason = SkippedConcurrency,
			fmt.Sprintf("%d of %d runs are running", running, d.Policy.MaxConcurrency)
	case len(d.s.Queue) >= int(d.Policy.QueueLimit):
		v.decision, v.reason = Dropped, fmt.Sprintf("%d of %d fires are waiting", len(d.s.Queue), d.Policy.QueueLimit)
	default:
		v.decision, v.reason = Queued, fmt.Sprintf("%d of %d runs are running", running, d.Policy.MaxConcurrency)
	}
	return v
}

// overlaps reports whether the previous run is running. A run that another one replaced does not
// count, because the replacement is the previous run.
func (d *decider) overlaps() bool { return d.s.Previous != nil && d.s.Previous.Status == Running }

// overlap applies the overlap policy. The decision is 0 if the other policies decide.
func (d *decider) overlap(action OverlapAction) verdict {
	if action == OverlapActionParallel && len(d.s.Running) >= int(min(d.Policy.MaxOverlap, MaxRuns)) {
		return verdict{decision: SkippedOverlap,
			reason: fmt.Sprintf("%d of %d overlapping runs are running", len(d.s.Running), d.Policy.MaxOverlap)}
	}
	if !d.overlaps() {
		return verdict{}
	}
	running := "the run of " + text(d.s.Previous.Fire) + " is running"
	switch action {
	case OverlapActionSkip:
		return verdict{decision: SkippedOverlap, reason: running}
	case OverlapActionCancelPrev:
		return verdict{cancel: true, reason: "replaces the run of " + text(d.s.Previous.Fire)}
	case OverlapActionBufferOne:
		if len(d.s.Queue) > 0 {
			return verdict{decision: SkippedOverlap,
				reason: running + ", and the one of " + text(d.s.Queue[0].Fire) + " waits"}
		}
		return verdict{decision: Queued, reason: running, buffered: true}
	}
	return verdict{}
}

// failure applies the failure policy. The decision is 0 if the fire is not skipped because of a
// failed run. A manual trigger is never skipped, because it may restart a failing cron.
func (d *decider) failure(manual bool) verdict {
	previous := d.s.Previous
	failed := previous != nil && previous.Status.failed()
	switch d.Policy.Failure {
	case FailureSkip:
		if failed && !previous.Spent && !manual {
			return verdict{decision: SkippedFailure, usesUpFailure: true, reason: d.ended()}
		}
	case FailureBackoff:
		if !failed || manual {
			break
		}
		until := previous.Ended.Add(d.Policy.RetryBackoff.interval(previous.Attempt, d.Key, previous.Ended))
		if d.now.Before(until) {
			return verdict{decision: SkippedFailure, reason: d.ended() + ", back-off until " + text(until)}
		}
	case FailureHalfOpen:
		until := d.trialFrom()
		if until.IsZero() {
			break
		}
		if d.now.Before(until) && !manual {
			return verdict{decision: SkippedFailure,
				reason: fmt.Sprintf("%d failures in a row, next attempt at %s", d.s.Failures, text(until))}
		}
		return verdict{trial: true}
	}
	return verdict{}
}

// trialFrom returns the earliest time at which an open circuit may start its trial. It is zero if
// the circuit is closed.
func (d *decider) trialFrom() time.Time {
	threshold := d.Policy.PauseAfterFailures
	if d.Policy.Failure != FailureHalfOpen || threshold == 0 || d.s.Failures < threshold {
		return time.Time{}
	}
	return d.s.Trial.Add(d.Policy.RetryBackoff.interval(d.s.Failures-threshold+1, d.Key, d.s.Trial))
}

func (d *decider) ended() string {
	return "the run of " + text(d.s.Previous.Fire) + " ended " + d.s.Previous.Status.String()
}

// attempt returns the attempt number of a run that starts now.
func (d *decider) attempt() int32 {
	retries := d.Policy.Failure == FailureRetry || d.Policy.Failure == FailureBackoff
	previous := d.s.Previous
	if !retries || previous == nil || !previous.Status.failed() {
		return 1
	}
	if limit := d.Policy.MaxAttempts; limit > 0 && previous.Attempt >= limit {
		return 1
	}
	return previous.Attempt + 1
}

// decide decides a fire, adds its row to the step, and starts or queues its run.
func (d *decider) decide(fire time.Time, overlap OverlapAction, manual bool) {
	v := d.verdictFor(overlap, manual)
	row := Fire{Time: fire, Decision: v.decision, Reason: v.reason, Status: Skipped, Manual: manual, Count: 1}
	if v.usesUpFailure {
		d.s.Previous.Spent = true
	}
	switch v.decision {
	case Fired:
		row.Status = Running
		if v.cancel {
			d.step.Cancels = append(d.step.Cancels, d.s.Previous.Fire)
			d.forget(d.s.Previous.Fire)
			d.s.Previous.Status = Skipped // it no longer counts, even if the new run is refused
		}
		if v.trial {
			d.s.Trial = d.now
		}
		row.Attempt = d.start(fire)
		d.s.Previous.Manual = manual
		if row.Attempt > 1 {
			row.Reason = fmt.Sprintf("attempt %d", row.Attempt)
		}
	case Queued:
		row.Status = Scheduled
		d.s.Queue = append(d.s.Queue, Wait{Fire: fire, Manual: manual, Buffered: v.buffered})
	}
	if !manual && (v.decision == Fired || v.decision == Queued) {
		d.s.Runs++
	}
	d.step.Fires = append(d.step.Fires, row)
}

// start records that a run starts, and returns its attempt number. The run becomes the previous run
// of the next fire.
func (d *decider) start(fire time.Time) int32 {
	attempt := d.attempt()
	if d.Refusable && d.s.Previous != nil {
		d.s.Earlier = append(d.s.Earlier, *d.s.Previous)
	}
	d.s.Running = append(d.s.Running, fire)
	d.s.Previous = &Run{Fire: fire, Attempt: attempt, Status: Running}
	d.pruneEarlier()
	return attempt
}

// startQueued starts queued runs in order, up to max_concurrency. While the cron is paused, only
// manual runs start.
func (d *decider) startQueued() {
	if d.NamespacePaused {
		return
	}
	for i := 0; i < len(d.s.Queue) && len(d.s.Running) < int(d.Policy.MaxConcurrency); {
		wait := d.s.Queue[i]
		if d.s.Paused && !wait.Manual {
			i++
			continue
		}
		if wait.Buffered && d.overlaps() {
			return
		}
		d.s.Queue = append(d.s.Queue[:i], d.s.Queue[i+1:]...)
		d.step.Starts = append(d.step.Starts, Start{Fire: wait.Fire, Attempt: d.start(wait.Fire)})
		d.s.Previous.Manual, d.s.Previous.Queued = wait.Manual, true
	}
}

// forget removes a run from the running runs, and reports whether it was one of them.
func (d *decider) forget(fire time.Time) bool {
	for i, running := range d.s.Running {
		if running.Equal(fire) {
			d.s.Running = append(d.s.Running[:i], d.s.Running[i+1:]...)
			return true
		}
	}
	return false
}
