package streams

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage/changes"
)

// WaitForWake makes streams read changes only after a commit or a notice.
func (s *Streams) WaitForWake() { s.ReadAfter(time.Hour) }

// ReadAfter sets the interval at which waiting streams look for changes.
func (s *Streams) ReadAfter(wait time.Duration) { s.pace.Min, s.pace.Max = wait, wait }

// Heads is exported for tests.
type Heads = heads

// Use is exported for tests.
func (h *heads) Use(namespace string) (used *head, leave func()) { return h.use(namespace) }

// Len returns the number of namespaces with streams.
func (h *heads) Len() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.used)
}

// Passed is exported for tests.
func (h *head) Passed(
	ctx context.Context, at changes.Cursor, maxAge time.Duration,
	query func(context.Context) (changes.Cursor, error),
) bool {
	return h.passed(ctx, at, maxAge, query)
}
