package cron

import (
	"math"
	"time"
)

// Policy says what a fire decides: the CronPolicy of the contract, but for the timeout of a run, which nothing here reads.
// Zero values are the defaults.
type Policy struct {
	Overlap            OverlapAction
	Failure            FailureAction
	Concurrency        ConcurrencyPolicy
	MaxConcurrency     int32 // runs of this cron at a time; 0: 1
	QueueLimit         int32 // fires that wait, with ConcurrencyQueue; 0: 1,000
	Misfire            MisfirePolicy
	CatchUpLimit       int32         // with MisfireCatchUpLimited, which needs it
	CatchUpWindow      time.Duration // what was due longer ago is missed; 0: no limit
	RetryBackoff       Backoff       // with FailureBackoff and FailureHalfOpen
	MaxAttempts        int32         // with FailureRetry and FailureBackoff; 0: no limit
	PauseAfterFailures int32         // failed runs in a row that pause the cron, with FailureHalfOpen open its circuit; 0: never
	MisfireThreshold   time.Duration // how late still counts as now, with MisfireSkip; 0: 5 s
	MaxOverlap         int32         // runs at a time, with OverlapActionParallel; 0: MaxRuns
}

// The numbers of a policy that names none, and its limits. MaxRuns bounds the runs of a cron that count at a time, and the
// fires that wait: State holds a time for each, 350 KB of JSON for 10,000, and has to fit a process.
const (
	DefaultMaxConcurrency   = 1
	DefaultQueueLimit       = 1000
	DefaultMisfireThreshold = 5 * time.Second
	MaxCatchUpLimit         = 100_000
	MaxRuns                 = 10_000
)

// OverlapAction is for a fire time that comes while the run before is running.
type OverlapAction int32

// The values, with the contract's numbers.
const (
	OverlapActionDefault    OverlapAction = iota // OverlapActionAllow
	OverlapActionAllow                           // the concurrency policy decides
	OverlapActionSkip                            // no run
	OverlapActionCancelPrev                      // ask the run before to cancel, and start
	OverlapActionParallel                        // start, whatever the concurrency policy says
	OverlapActionBufferOne                       // one run waits for the end of the run before
)

// FailureAction is for a fire time that comes when the newest run has failed.
type FailureAction int32

// The values, with the contract's numbers.
const (
	FailureDefault  FailureAction = iota // FailureRunNew
	FailureRunNew                        // attempt 1
	FailureSkip                          // one fire is skipped
	FailureRetry                         // the next attempt
	FailureBackoff                       // the next attempt, not before RetryBackoff has passed
	FailureHalfOpen                      // after PauseAfterFailures failures in a row one trial each RetryBackoff
)

// ConcurrencyPolicy is for a fire that finds MaxConcurrency runs.
type ConcurrencyPolicy int32

// The values, with the contract's numbers.
const (
	ConcurrencyDefault ConcurrencyPolicy = iota // ConcurrencySkip
	ConcurrencySkip
	ConcurrencyQueue
)

// MisfirePolicy is for fire times that passed while nobody looked.
type MisfirePolicy int32

// The values, with the contract's numbers.
const (
	MisfireDefault        MisfirePolicy = iota // MisfireFireNow
	MisfireFireNow                             // all of them
	MisfireSkip                                // the newest, within MisfireThreshold
	MisfireCatchUpLimited                      // the newest CatchUpLimit
)

// Backoff is how long to wait after failure n: min(Initial × Factor^(n-1), Max), or Steps[n-1], whose last repeats.
type Backoff struct {
	Initial time.Duration // 0: 1 s
	Factor  float64       // 0: 2
	Max     time.Duration // 0: 1 h
	Jitter  float64       // 0 to 1: that part of the interval to both sides; the same for the same cron, time and n
	Steps   []time.Duration
}

// The numbers of a backoff that names none.
const (
	DefaultBackoffInitial = time.Second
	DefaultBackoffFactor  = 2
	DefaultBackoffMax     = time.Hour
)

// interval is the wait after failure n (1 is the first) that ended at a time.
func (b Backoff) interval(n int32, key string, ended time.Time) time.Duration {
	n = max(n, 1)
	var wait time.Duration
	if len(b.Steps) > 0 {
		wait = b.Steps[min(int(n), len(b.Steps))-1]
	} else {
		initial, factor, longest := b.Initial, b.Factor, b.Max
		if initial == 0 {
			initial = DefaultBackoffInitial
		}
		if factor == 0 {
			factor = DefaultBackoffFactor
		}
		if longest == 0 {
			longest = DefaultBackoffMax
		}
		wait = time.Duration(min(float64(initial)*math.Pow(factor, float64(n-1)), float64(longest)))
	}
	if b.Jitter == 0 {
		return wait
	}
	portion := float64(spread(key, uint64(ended.UnixNano())+uint64(n))>>11) / (1 << 53)
	return time.Duration(float64(wait) * (1 + b.Jitter*(2*portion-1)))
}

// Validate refuses what the contract refuses. Errors are a *SpecError with the field's path from the cron.
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
			return wrong("policy."+enum.field, "%d is not 0 to %d", enum.value, enum.last)
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
			return wrong("policy."+number.field, "%d is negative", number.value)
		}
	}
	switch {
	case p.MaxConcurrency > MaxRuns:
		return wrong("policy.max_concurrency", "%d, at most %d", p.MaxConcurrency, MaxRuns)
	case p.QueueLimit > MaxRuns:
		return wrong("policy.queue_limit", "%d, at most %d", p.QueueLimit, MaxRuns)
	case p.Misfire == MisfireCatchUpLimited && p.CatchUpLimit == 0:
		return wrong("policy.catchup_limit", "CATCH_UP_LIMITED needs how many: 1 to %d", MaxCatchUpLimit)
	case p.CatchUpLimit > MaxCatchUpLimit:
		return wrong("policy.catchup_limit", "%d, at most %d; FIRE_NOW has no limit", p.CatchUpLimit, MaxCatchUpLimit)
	case p.RetryBackoff.Factor != 0 && !(p.RetryBackoff.Factor >= 1 && p.RetryBackoff.Factor <= math.MaxFloat64):
		return wrong("policy.retry_backoff.factor", "%v is not 1 or more", p.RetryBackoff.Factor)
	case !(p.RetryBackoff.Jitter >= 0 && p.RetryBackoff.Jitter <= 1):
		return wrong("policy.retry_backoff.jitter", "%v is not 0 to 1", p.RetryBackoff.Jitter)
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
			return wrong("policy."+d.field, "%s is not 0s to %s", d.value, MaxDuration)
		}
	}
	return nil
}

// filled is the policy with its defaults in their places.
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
	if p.MisfireThreshold == 0 {
		p.MisfireThreshold = DefaultMisfireThreshold
	}
	return p
}
