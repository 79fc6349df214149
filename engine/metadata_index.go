package engine

import (
	"context"
	"time"
)

// mergeMetadataIndex moves new entries of the metadata index from its pending list into the index
// once a second, until ctx is cancelled. It does this only if this node has stored something. It
// runs in its own goroutine, because it may read a large index from disk and must not delay the
// collector.
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
