package process_test

import (
	"math"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// FuzzInterval checks the waits of every valid retry policy of a namespace: a wait is at least 1
// ms, at most the maximum of the policy plus its jitter, and does not decrease from one attempt to
// the next.
func FuzzInterval(f *testing.F) {
	f.Add(int64(5*time.Second), 1.0, int64(180*time.Second), 0.1, int32(1), 0.5)
	f.Add(int64(time.Millisecond), 2.0, int64(process.MaxDuration), 1.0, int32(1000), 0.999)
	f.Add(
		int64(process.MaxDuration), math.MaxFloat64, int64(process.MaxDuration), 1.0, int32(math.MaxInt32), 0.999999999,
	)
	f.Add(int64(1), 1.0, int64(1), 0.0, int32(0), 0.0)
	f.Add(int64(process.MaxDuration), 10.0, int64(1), 0.3, int32(3), 0.0)
	f.Fuzz(func(
		t *testing.T, initial int64, coefficient float64, longest int64, jitter float64, attempt int32, random float64,
	) {
		within := func(d int64) time.Duration { return time.Duration(max(d, 1) % int64(process.MaxDuration+1)) }
		if math.IsNaN(coefficient) || math.IsInf(coefficient, 0) || coefficient < 1 ||
			!(jitter >= 0 && jitter <= 1) || !(random >= 0 && random < 1) {
			return // policies that a namespace cannot have, and random numbers that are never drawn
		}
		p := process.RetryPolicy{
			Initial: within(initial), Coefficient: coefficient, Max: within(longest), JitterPortion: jitter,
		}
		wait := p.Interval(attempt, random)
		// A float64 represents 100 years with a precision of a quarter of a second.
		limit := max(time.Duration(float64(p.Max)*(1+jitter)), time.Millisecond) + 2*time.Second
		if wait < time.Millisecond || wait > limit {
			t.Errorf("%+v: %s after attempt %d, at most %s", p, wait, attempt, limit)
		}
		if next := p.Interval(attempt+1, random); attempt < math.MaxInt32 && next < wait {
			t.Errorf("%+v: %s after attempt %d, but only %s after the next", p, wait, attempt, next)
		}
	})
}
