package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Retry sets how often and how fast a request is sent again after UNAVAILABLE, RESOURCE_EXHAUSTED
// or a broken connection. The maximum wait before attempt n is min(Initial * 2^(n-2), Max). The
// actual wait is random, and at least half of the maximum.
type Retry struct {
	MaxAttempts int           // includes the first attempt; below 2, requests are not retried
	Initial     time.Duration // must be positive
	Max         time.Duration // maximum wait between two attempts
}

// DefaultRetry returns 10 attempts, 50 ms to 2 s apart. They take about 9 s, enough for a restart
// of the engine or its database.
func DefaultRetry() Retry {
	return Retry{MaxAttempts: 10, Initial: 50 * time.Millisecond, Max: 2 * time.Second}
}

// interval returns the wait after the given attempt, counted from 1. random is in [0, 1).
func (r Retry) interval(attempt int, random float64) time.Duration {
	wait := r.Initial
	for i := 1; i < attempt && wait < r.Max; i++ {
		wait *= 2
	}
	wait = min(wait, r.Max)
	return time.Duration(float64(wait) * (0.5 + random/2))
}

// repeat sends a request until it succeeds, fails permanently, has no attempts left, or ctx ends.
// safe is true if the request may be executed twice, for example because it has an idempotency key.
func repeat[T any](ctx context.Context, r Retry, safe bool, send func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		resp, err := send()
		if err == nil || attempt >= r.MaxAttempts || !repeatable(err, safe) {
			return resp, err
		}
		timer := time.NewTimer(r.interval(attempt, rand.Float64()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return resp, err // the error of the engine is more helpful than that of ctx
		}
	}
}

// repeatable reports whether another attempt after err is safe and may succeed. For safe, see
// repeat.
func repeatable(err error, safe bool) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable:
		return safe
	case connect.CodeCanceled:
		// If the server closes the connection, Connect returns the code of a cancel by the client.
		return safe && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
	case connect.CodeResourceExhausted:
		// RESOURCE_EXHAUSTED without a reason means that the message is too large, so a retry
		// cannot succeed.
		return Reason(err) == progressorv1.ErrorDetail_REASON_OVERLOADED
	default:
		return false
	}
}
