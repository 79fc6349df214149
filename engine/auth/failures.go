package auth

import (
	"context"
	"time"
)

const (
	// failureRate is how many failed authentications per second one address may have.
	failureRate = 10
	// failureDelay is how long the answer to a failure is delayed. It hides how far the check of a
	// token came.
	failureDelay = 100 * time.Millisecond
)

// failures limits the failed authentications of each address. An address without budget may still
// authenticate: its other clients, such as those behind the same proxy, may have valid tokens.
type failures struct {
	*budget
	pause time.Duration
}

func newFailures() *failures { return &failures{newBudget(failureRate, failureRate), failureDelay} }

// delay waits for the time of a failure.
func (f *failures) delay(ctx context.Context) {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
