package engine

import (
	"context"
	"time"
)

// mergeMetadataIndex merges the list of new entries of the index of metadata once a second, until
// ctx is cancelled, if this node has stored something. It runs in its own goroutine so that it does
// not delay the collector, because it may read a large index from disk.
func (e *Engine) mergeMetadataIndex(ctx context.Context) error {
	failing := false
	return Every(ctx, time.Second, func() {
		if !e.isConnected() {
			return
		}
		err := e.store.MergeMetadataIndex(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			e.log.Warn("cannot merge the index of metadata", "error", err)
		}
		failing = err != nil
	})
}
