package engine

import (
	"context"
	"time"
)

// mergeMetadataIndex merges the list of new entries of the index of metadata once a second, until
// ctx is cancelled. Usually one node does it. It runs in its own goroutine so that it does not
// delay the collector, because it may read a large index from disk.
func (e *Engine) mergeMetadataIndex(ctx context.Context) error {
	passes := 0
	return Every(ctx, time.Second, func() {
		passes++
		if !e.isConnected() || !e.peers.isResponsibleFor("metadata index") && passes%backupFactor != 0 {
			return
		}
		if err := e.store.MergeMetadataIndex(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("cannot merge the index of metadata", "error", err)
		}
	})
}
