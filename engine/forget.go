package engine

import (
	"context"
	"time"
)

// forgetEvery is how often a node looks for idempotency keys and answers whose retention is over.
const forgetEvery = 30 * time.Second

// forgetKeys drops idempotency keys and answers whose retention is over, until ctx ends. It has a goroutine of its own: after
// hours at 20,000 keys/s a pass lasts as long as there are any, and the collector must not be late meanwhile.
func (e *Engine) forgetKeys(ctx context.Context) error {
	ticker := time.NewTicker(forgetEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = e.store.Forget(ctx, e.cfg.KeyRetention); err != nil && ctx.Err() == nil {
				e.log.Warn("forget idempotency keys", "error", err)
			}
		}
	}
}
