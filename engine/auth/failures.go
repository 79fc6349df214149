package auth

import (
	"context"
	"time"
)

const (
	// failureRate is the maximum number of failed authentications of one address per second.
	failureRate = 10
	// failureDelay is how long the answer to a failure is delayed. The delay hides which check of a
	// token failed.
	failureDelay = 100 * time.Millisecond
)

// failures limits the failed authentications of each address. Clients of an address without budget
// may still authenticate, because other clients of the address, such as those behind the same
// proxy, may have valid tokens.
type failures struct {
	*budget
	pause time.Duration
}

func newFailures() *failures { return &failures{newBudget(failureRate, failureRate), failureDelay} }

// delay waits until the answer to a failure may be sent.
func (f *failures) delay(ctx context.Context) {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
