package engine

import (
	"context"
	"time"
)

// forgetEvery is the interval between removals of idempotency keys and answers whose retention is
// over.
const forgetEvery = 30 * time.Second

// forgetKeys removes idempotency keys and answers whose retention is over, until ctx is cancelled.
// It runs in its own goroutine so that it does not delay the collector, because after hours at
// 20,000 keys/s a pass takes a long time.
func (e *Engine) forgetKeys(ctx context.Context) error {
	return Every(ctx, forgetEvery, func() {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = e.store.Forget(ctx, e.cfg.KeyRetention); err != nil && ctx.Err() == nil {
				e.log.Warn("cannot delete idempotency keys", "error", err)
			}
		}
	})
}
