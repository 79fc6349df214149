package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// The heartbeats of the node do not share connections with the heartbeats of workers and other
// reads, because a node that is only busy must not stop its tasks.
func TestNodeHeartbeatHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release, err := b.Exhaust(t.Context(), storage.Answers)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.Beat(ctx, storage.NodeReport{}); err != nil {
		t.Error(err)
	}
}
