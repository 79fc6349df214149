package auth

import (
	"strconv"
	"testing"

	"golang.org/x/time/rate"
)

// A full cache evicts old entries first, and at most a tenth of its entries at once.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	const old = maxCached / 10
	c := newCache[int](func(v *int) bool { return *v < old })
	add := func(n int) { c.add(n, &n) }
	for n := range maxCached {
		add(n)
	}
	add(maxCached)
	for n := range maxCached + 1 {
		if v, ok := c.load(n); ok != (n >= old) || ok && *v != n {
			t.Fatalf("%d: %v, %t", n, v, ok)
		}
	}
	if v := c.add(maxCached, new(int)); *v != maxCached {
		t.Errorf("%d replaces %d", *v, maxCached)
	}
	for n := range old {
		add(maxCached + 1 + n)
	}
	entries := 0
	for range c.entries.Range {
		entries++
	}
	if entries != int(c.count.Load()) || entries > maxCached || entries < maxCached-old {
		t.Errorf("%d entries, %d counted", entries, c.count.Load())
	}
}

// Users do not displace keys from the cache.
func TestKeysStayCached(t *testing.T) {
	t.Parallel()
	a, keys, _ := newTest(t, "")
	_, token := keys.add()
	if _, err := ask(t, a, token); err != nil {
		t.Fatal(err)
	}
	for n := range maxCached + 1 {
		if _, err := a.known(t.Context(), userPrefix+strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	a.unknown = rate.NewLimiter(0, 0)
	if _, err := ask(t, a, token); err != nil || a.cachedKeys.count.Load() != 1 {
		t.Errorf("%v, %d keys are cached", err, a.cachedKeys.count.Load())
	}
}
