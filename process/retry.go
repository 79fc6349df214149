package process

import (
	"math"
	"slices"
	"time"
)

// RetryPolicy defines how failed tasks are retried. After attempt n fails, the next one waits for
// min(Initial * Coefficient^(n-1), Max), plus or minus JitterPortion.
type RetryPolicy struct {
	Initial       time.Duration // default 5 s
	Coefficient   float64       // default 1.0
	Max           time.Duration // default 180 s
	MaxAttempts   int32         // default 3, including the first attempt
	NonRetryable  []string      // failure reasons that are not retried
	JitterPortion float64       // default 0.1: ±10 %
}

// DefaultRetryPolicy is the policy of a namespace without one.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{
		Initial: 5 * time.Second, Coefficient: 1, Max: 180 * time.Second, MaxAttempts: 3, JitterPortion: 0.1,
	}
}

// Next reports whether a task that failed in the given attempt (1 is the first) is retried, and
// returns the wait before the next attempt. random is a random number in [0, 1).
func (p RetryPolicy) Next(
	attempt int32, reason string, nonRetryable bool, random float64,
) (wait time.Duration, again bool) {
	if nonRetryable || attempt >= p.MaxAttempts || slices.Contains(p.NonRetryable, reason) {
		return 0, false
	}
	return p.Interval(attempt, random), true
}

// Interval returns the wait after the given attempt, at least 1 ms.
func (p RetryPolicy) Interval(attempt int32, random float64) time.Duration {
	seconds := p.Initial.Seconds() * math.Pow(p.Coefficient, float64(max(attempt, 1)-1))
	seconds = min(seconds, p.Max.Seconds())
	seconds *= 1 + p.JitterPortion*(2*random-1)
	return max(time.Duration(seconds*float64(time.Second)), time.Millisecond)
}
