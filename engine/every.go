package engine

import (
	"context"
	"time"
)

// Every calls do at each interval until ctx is cancelled. A pass that takes longer than the
// interval skips the next ones. Every always returns nil.
func Every(ctx context.Context, interval time.Duration, do func()) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			do()
		}
	}
}
