package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// ReleaseLeases releases leases without an answer. It skips leases that were lost. Other workers can
// take the tasks at once.
func (e *Engine) ReleaseLeases(ctx context.Context, tokens []string) error {
	return e.ReleaseLeasesAfter(ctx, tokens, 0)
}

// ReleaseLeasesAfter is ReleaseLeases with a delay, at most process.MaxRetryAfter, after which other workers can take
// the tasks.
func (e *Engine) ReleaseLeasesAfter(ctx context.Context, tokens []string, delay time.Duration) error {
	delay = min(max(delay, 0), process.MaxRetryAfter)
	for n, token := range tokens {
		t, err := parseLeaseToken(fmt.Sprintf("lease_tokens[%d]", n), token)
		if err != nil {
			return err
		}
		l, err := e.heldLease(ctx, t)
		if errors.Is(err, process.ErrFenced) {
			continue
		}
		if err != nil {
			return err
		}
		e.release(l, delay)
		e.leased.drop(t)
	}
	return nil
}
