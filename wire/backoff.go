package wire

import (
	"math"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// defaultBackoff starts at 1 s and doubles, up to 1 h, with a jitter of 10 %.
var defaultBackoff = process.RetryPolicy{Initial: time.Second, Coefficient: 2, Max: time.Hour, JitterPortion: 0.1}

// Backoff returns how long a job or a run waits after its n-th failed attempt, counted from 1.
// random is in [0, 1). Fields that b does not set have their defaults. With steps, the default of
// the jitter is 0.
func Backoff(b *progressorv1.Backoff, n int32, random float64) time.Duration {
	policy := defaultBackoff
	if b.GetInitial() != nil {
		policy.Initial = b.GetInitial().AsDuration()
	}
	if b != nil && b.Factor != nil {
		policy.Coefficient = b.GetFactor()
	}
	if b.GetMax() != nil {
		policy.Max = b.GetMax().AsDuration()
	}
	if b != nil && b.Jitter != nil {
		policy.JitterPortion = b.GetJitter()
	}
	if steps := b.GetSteps(); len(steps) > 0 {
		policy.Initial, policy.Coefficient, policy.Max = steps[min(int(n), len(steps))-1].AsDuration(), 1, math.MaxInt64
		if b.Jitter == nil {
			policy.JitterPortion = 0
		}
	}
	return policy.Interval(n, random)
}
