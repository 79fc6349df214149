package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// ReleaseError is the error with which a handler returns its task without an answer. No attempt is
// counted. Any worker can take the task after Delay.
type ReleaseError struct {
	Delay time.Duration // 0 means at once; at most 365 days
}

// Release returns a ReleaseError, for a handler that cannot run its task now.
func Release(delay time.Duration) *ReleaseError { return &ReleaseError{Delay: delay} }

func (e *ReleaseError) Error() string { return fmt.Sprintf("released for %s", e.Delay) }

// releaseDelay returns the delay of err, and reports whether err is a ReleaseError.
func releaseDelay(err error) (delay time.Duration, released bool) {
	r, released := errors.AsType[*ReleaseError](err)
	if !released {
		return 0, false
	}
	return min(max(r.Delay, 0), process.MaxRetryAfter), true
}
