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
	// maxResultsWait bounds how long a scan waits for them: results may be stuck at a row that
	// another session holds.
	maxResultsWait = 100 * time.Millisecond
)

// backlogResults counts the results of scanned tasks that wait to be stored. Scans claim faster
// than the group commit stores: without a bound, new requests would wait behind the results of a
// whole backlog. It is safe for concurrent use.
type backlogResults struct {
	pending func() int64 // counts everything that waits to be stored; nil if unknown
	mu      sync.Mutex
	results int
	bytes   int           // bytes of the args of their tasks, which are stored with them
	below   chan struct{} // closed when both are below their bounds; nil if no scan waits
}

// begin counts the result of a claim.
func (b *backlogResults) begin(c *storage.Claim) { b.add(1, c) }

// end ends the counting of a result.
func (b *backlogResults) end(c *storage.Claim) { b.add(-1, c) }

func (b *backlogResults) add(n int, c *storage.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results += n
	b.bytes += n * (len(c.Args) + len(c.Context))
	if b.below != nil && !b.full() {
		close(b.below)
		b.below = nil
	}
}

// full reports whether a scan must wait. The caller holds the lock.
func (b *backlogResults) full() bool {
	limit := maxBacklogResults
	if b.pending != nil && b.pending() <= int64(b.results) {
		limit = maxLoneResults
	}
	return b.results >= limit || b.bytes >= maxBacklogBytes
}

// wait waits until a scan may begin.
func (b *backlogResults) wait(ctx context.Context) {
	b.mu.Lock()
	if !b.full() {
		b.mu.Unlock()
		return
	}
	if b.below == nil {
		b.below = make(chan struct{})
	}
	below := b.below
	b.mu.Unlock()
	timeout := time.NewTimer(maxResultsWait)
	defer timeout.Stop()
	select {
	case <-below:
	case <-timeout.C:
	case <-ctx.Done():
	}
}
