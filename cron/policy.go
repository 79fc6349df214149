package cron

import (
	"cmp"
	"math"
	"time"
)

// Policy defines what a cron does at its fire times. It is the CronPolicy of the API without the
// timeout of a run, which this package does not use. Zero values are defaults.
type Policy struct {
	Overlap        OverlapAction
	Failure        FailureAction
	Concurrency    ConcurrencyPolicy
	MaxConcurrency int32 // concurrent runs; 0 means 1
	QueueLimit     int32 // queued fires, with ConcurrencyQueue; 0 means 1,000
	Misfire        MisfirePolicy
	CatchUpLimit   int32         // required with MisfireCatchUpLimited
	CatchUpWindow  time.Duration // older fire times are missed; 0 means no limit
	RetryBackoff   Backoff       // with FailureBackoff and FailureHalfOpen
	MaxAttempts    int32         // with FailureRetry and FailureBackoff; 0 means no limit
	// Consecutive failures that pause the cron or, with FailureHalfOpen, open its circuit; 0 means
	// never.
	PauseAfterFailures int32
	MisfireThreshold   time.Duration // maximum lateness with MisfireSkip; 0 means 5 s
	MaxOverlap         int32         // concurrent runs, with OverlapActionParallel; 0 means MaxRuns
}

// The defaults and limits of a policy. MaxRuns limits the concurrent runs and the queued fires of a
// cron. The state of the cron contains a time for each of them (350 KB of JSON for 10,000) and must
// fit into a process.
const (
	DefaultMaxConcurrency   = 1
	DefaultQueueLimit       = 1000
	DefaultMisfireThreshold = 5 * time.Second
	MaxCatchUpLimit         = 100_000
	MaxRuns                 = 10_000
)

// OverlapAction defines what happens at a fire time if the previous run has not ended.
type OverlapAction int32

// The values, with the numbers of the API.
const (
	OverlapActionDefault    OverlapAction = iota // OverlapActionAllow
	OverlapActionAllow                           // the concurrency policy decides
	OverlapActionSkip                            // no run
	OverlapActionCancelPrev                      // ask the previous run to cancel, and start
	OverlapActionParallel                        // start, regardless of the concurrency policy
	OverlapActionBufferOne                       // one run waits for the end of the previous run
)

// FailureAction defines what happens at a fire time if the newest run has failed.
type FailureAction int32

// The values, with the numbers of the API.
const (
	FailureDefault  FailureAction = iota // FailureRunNew
	FailureRunNew                        // start a run, as attempt 1
	FailureSkip                          // skip one fire
	FailureRetry                         // start a run, as the next attempt
	FailureBackoff                       // skip fires until RetryBackoff has passed, then as FailureRetry
	FailureHalfOpen                      // after PauseAfterFailures consecutive failures, one trial per RetryBackoff
)

// ConcurrencyPolicy defines what happens at a fire time while MaxConcurrency runs are running.
type ConcurrencyPolicy int32

// The values, with the numbers of the API.
const (
	ConcurrencyDefault ConcurrencyPolicy = iota // ConcurrencySkip
	ConcurrencySkip
	ConcurrencyQueue
)

// MisfirePolicy defines which of the due fire times are decided when a node checks them. The others
// are missed.
type MisfirePolicy int32

// The values, with the numbers of the API.
const (
	MisfireDefault        MisfirePolicy = iota // MisfireFireNow
	MisfireFireNow                             // the newest ones that can start or be queued now
	MisfireSkip                                // only the newest one, if it is at most MisfireThreshold late
	MisfireCatchUpLimited                      // the newest ones, at most CatchUpLimit
)

// Backoff is the wait after failure n: min(Initial × Factor^(n-1), Max), or Steps[n-1]. The last
// step repeats.
type Backoff struct {
	Initial time.Duration // 0 means 1 s
	Factor  float64       // 0 means 2
	Max     time.Duration // 0 means 1 h
	// Jitter varies the wait by up to this fraction, 0 to 1, in both directions. For the same cron,
	// end time and n, the variation is the same.
	Jitter float64
	Steps  []time.Duration
}

// The defaults of a backoff.
const (
	DefaultBackoffInitial = time.Second
	DefaultBackoffFactor  = 2
	DefaultBackoffMax     = time.Hour
)

// interval returns the wait after failure n of a run that ended at the given time. n counts from 1.
func (b Backoff) interval(n int32, key string, ended time.Time) time.Duration {
	n = max(n, 1)
	var wait time.Duration
	if len(b.Steps) > 0 {
		wait = b.Steps[min(int(n), len(b.Steps))-1]
	} else {
		initial := cmp.Or(b.Initial, DefaultBackoffInitial)
		factor := cmp.Or(b.Factor, DefaultBackoffFactor)
		longest := cmp.Or(b.Max, DefaultBackoffMax)
		wait = time.Duration(min(float64(initial)*math.Pow(factor, float64(n-1)), float64(longest)))
	}
	if b.Jitter == 0 {
		return wait
	}
	portion := float64(spread(key, uint64(ended.UnixNano())+uint64(n))>>11) / (1 << 53)
	return time.Duration(float64(wait) * (1 + b.Jitter*(2*portion-1)))
}

// Validate returns an error for a policy that the API rejects: a *SpecError with the path of the
// field in the cron.
func (p Policy) Validate() error {
	for _, enum := range []struct {
		field       string
		value, last int32
	}{
		{"overlap_action", int32(p.Overlap), int32(OverlapActionBufferOne)},
		{"failure_action", int32(p.Failure), int32(FailureHalfOpen)},
		{"concurrency_policy", int32(p.Concurrency), int32(ConcurrencyQueue)},
		{"misfire_policy", int32(p.Misfire), int32(MisfireCatchUpLimited)},
	} {
		if enum.value < 0 || enum.value > enum.last {
			return invalid("policy."+enum.field, "must be 0 to %d (got %d)", enum.last, enum.value)
		}
	}
	for _, number := range []struct {
		field string
		value int32
	}{
		{"max_concurrency", p.MaxConcurrency}, {"queue_limit", p.QueueLimit}, {"catchup_limit", p.CatchUpLimit},
		{"max_attempts", p.MaxAttempts}, {"pause_after_failures", p.PauseAfterFailures}, {"max_overlap", p.MaxOverlap},
	} {
		if number.value < 0 {
			return invalid("policy."+number.field, "must not be negative (got %d)", number.value)
		}
	}
	switch {
	case p.MaxConcurrency > MaxRuns:
		return invalid("policy.max_concurrency", "must be at most %d (got %d)", MaxRuns, p.MaxConcurrency)
	case p.QueueLimit > MaxRuns:
		return invalid("policy.queue_limit", "must be at most %d (got %d)", MaxRuns, p.QueueLimit)
	case p.Misfire == MisfireCatchUpLimited && p.CatchUpLimit == 0:
		return invalid("policy.catchup_limit", "must be 1 to %d with CATCH_UP_LIMITED", MaxCatchUpLimit)
	case p.CatchUpLimit > MaxCatchUpLimit:
		return invalid("policy.catchup_limit", "must be at most %d (got %d): FIRE_NOW has no limit", MaxCatchUpLimit,
			p.CatchUpLimit)
	case p.RetryBackoff.Factor != 0 && !(p.RetryBackoff.Factor >= 1 && p.RetryBackoff.Factor <= math.MaxFloat64):
		return invalid("policy.retry_backoff.factor", "must be at least 1 (got %v)", p.RetryBackoff.Factor)
	case !(p.RetryBackoff.Jitter >= 0 && p.RetryBackoff.Jitter <= 1):
		return invalid("policy.retry_backoff.jitter", "must be 0 to 1 (got %v)", p.RetryBackoff.Jitter)
	}
	return p.validateDurations()
}

func (p Policy) validateDurations() error {
	type duration struct {
		field string
		value time.Duration
	}
	list := []duration{{"catchup_window", p.CatchUpWindow}, {"misfire_threshold", p.MisfireThreshold},
		{"retry_backoff.initial", p.RetryBackoff.Initial}, {"retry_backoff.max", p.RetryBackoff.Max}}
	for _, step := range p.RetryBackoff.Steps {
		list = append(list, duration{"retry_backoff.steps", step})
	}
	for _, d := range list {
		if d.value < 0 || d.value > MaxDuration {
			return invalid("policy."+d.field, "must be 0s to %s (got %s)", MaxDuration, d.value)
		}
	}
	return nil
}

// filled returns the policy with its defaults.
func (p Policy) filled() Policy {
	fill := func(value *int32, normal int32) {
		if *value == 0 {
			*value = normal
		}
	}
	fill((*int32)(&p.Overlap), int32(OverlapActionAllow))
	fill((*int32)(&p.Failure), int32(FailureRunNew))
	fill((*int32)(&p.Concurrency), int32(ConcurrencySkip))
	fill((*int32)(&p.Misfire), int32(MisfireFireNow))
	fill(&p.MaxConcurrency, DefaultMaxConcurrency)
	fill(&p.MaxOverlap, MaxRuns)
	fill(&p.QueueLimit, DefaultQueueLimit)
	p.MisfireThreshold = cmp.Or(p.MisfireThreshold, DefaultMisfireThreshold)
	return p
}
