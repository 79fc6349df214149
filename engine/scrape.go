package engine

import (
	"context"
	"sync"
	"time"
)

// scrapeTimeout limits a read of the database during a scrape.
const scrapeTimeout = 2 * time.Second

// ScrapeCache keeps what a collector has read from the database, so that several Prometheus servers
// cost one query. It also keeps a failure, so that a database that does not respond delays only one
// scrape.
type ScrapeCache[T any] struct {
	mu    sync.Mutex
	read  time.Time // time of the last read, even if it failed
	value T
	err   error
}

// Get returns the last result of read. If it is older than maxAge, Get calls read first.
func (c *ScrapeCache[T]) Get(
	maxAge time.Duration, read func(context.Context) (T, error),
) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.IsZero() || time.Since(c.read) > maxAge {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		c.value, c.err = read(ctx)
		c.read = time.Now()
	}
	return c.value, c.err
}
