package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A ScrapeCache reads once within maxAge, whether the read succeeds or fails.
func TestScrapeCache(t *testing.T) {
	unreachable := errors.New("the database does not respond")
	for _, want := range []error{nil, unreachable} {
		var cache ScrapeCache[int]
		reads := 0
		read := func(ctx context.Context) (int, error) {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("the read has no time limit")
			}
			reads++
			return reads, want
		}
		for range 3 {
			if n, err := cache.Get(time.Hour, read); n != 1 || !errors.Is(err, want) {
				t.Errorf("got %d, %v, want 1, %v", n, err, want)
			}
		}
		if n, _ := cache.Get(0, read); n != 2 {
			t.Errorf("got %d after maxAge, want a second read", n)
		}
	}
}
