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

// Retry says how often, and how fast, a request is sent again after UNAVAILABLE, RESOURCE_EXHAUSTED or a broken connection.
// The wait before try n is drawn evenly from half to the whole of min(Initial * 2^(n-2), Max).
type Retry struct {
	MaxAttempts int           // the first try counts; below 2: no retries
	Initial     time.Duration // above 0
	Max         time.Duration
}

// DefaultRetry tries 10 times, 50 ms to 2 s apart: about 9 s, enough for a restart of the engine or its database.
func DefaultRetry() Retry {
	return Retry{MaxAttempts: 10, Initial: 50 * time.Millisecond, Max: 2 * time.Second}
}

// interval is the wait after the given try (1 is the first).
func (r Retry) interval(attempt int, random float64) time.Duration {
	wait := r.Initial
	for i := 1; i < attempt && wait < r.Max; i++ {
		wait *= 2
	}
	wait = min(wait, r.Max)
	return time.Duration(float64(wait) * (0.5 + random/2))
}

// repeat sends a request until it is answered, its tries are spent or ctx is over. safe: to do it twice does no harm.
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
			return resp, err // what the engine said tells more than ctx's error
		}
	}
}

// repeatable tells whether another try may have another outcome, and does no harm.
func repeatable(err error, safe bool) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable:
		return safe
	case connect.CodeCanceled:
		// Connect takes a connection that the other side broke for a client that went away.
		return safe && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
	case connect.CodeResourceExhausted:
		// Without a reason it is a message that is too large: it will be so the next time.
		return Reason(err) == progressorv1.ErrorDetail_REASON_OVERLOADED
	default:
		return false
	}
}
