package engine

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxBacklogResults and maxBacklogBytes bound the results of scanned tasks that wait to be
	// stored when a scan begins.
	maxBacklogResults = 128
	maxBacklogBytes   = 1 << 20
	// maxLoneResults replaces maxBacklogResults while no other request waits to be stored.
	maxLoneResults = 512
	// maxResultsWait is how long a scan waits for these results while none is stored. A flush takes
	// less time, even on a busy database.
	maxResultsWait = time.Second
)

// backlogResults counts the results of scanned tasks that wait to be stored. Scans claim faster
// than the group commit stores: without a bound, new requests would wait behind the results of a
// whole backlog. It is safe for concurrent use.
type backlogResults struct {
	pending func() int64 // counts everything that waits to be stored; nil if unknown
	aside   func() int64 // counts the part of pending that waits for locked rows; nil if unknown
	mu      sync.Mutex
	results int
	stored  uint64        // how many results have been stored
	bytes   int           // bytes of the args of the tasks, which are stored with the results
	below   chan struct{} // closed when results and bytes are below their bounds; nil if no scan waits
}

// begin counts the result of a claim.
func (b *backlogResults) begin(c *storage.Claim) { b.add(1, c) }

// end stops counting the result of a claim.
func (b *backlogResults) end(c *storage.Claim) { b.add(-1, c) }

func (b *backlogResults) add(n int, c *storage.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results += n
	if n < 0 {
		b.stored++
	}
	b.bytes += n * (len(c.Args) + len(c.Context))
	if b.below != nil && !b.full() {
		close(b.below)
		b.below = nil
	}
}

// full reports whether a scan must wait. Results that were put aside may wait for minutes, so they
// do not count. The caller holds the lock.
func (b *backlogResults) full() bool {
	limit, waiting := maxBacklogResults, b.results
	if b.pending != nil && b.pending() <= int64(b.results) {
		limit = maxLoneResults
	}
	if b.aside != nil {
		waiting -= int(b.aside())
	}
	return waiting >= limit || b.bytes >= maxBacklogBytes
}

// wait blocks until a scan may begin, until no result was stored for maxResultsWait, or until ctx
// is cancelled.
func (b *backlogResults) wait(ctx context.Context) {
	below, stored := b.belowBounds()
	if below == nil {
		return
	}
	timeout := time.NewTimer(maxResultsWait)
	defer timeout.Stop()
	for {
		select {
		case <-below:
			return
		case <-ctx.Done():
			return
		case <-timeout.C:
		}
		before := stored
		if below, stored = b.belowBounds(); below == nil || stored == before {
			return
		}
		timeout.Reset(maxResultsWait)
	}
}

// belowBounds returns a channel that is closed when a scan may begin, or nil if a scan may begin
// now. It also returns how many results have been stored.
func (b *backlogResults) belowBounds() (below chan struct{}, stored uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.full() {
		return nil, b.stored
	}
	if b.below == nil {
		b.below = make(chan struct{})
	}
	return b.below, b.stored
}
