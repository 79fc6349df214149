package auth

import (
	"sync"
	"sync/atomic"
)

// maxCached limits the number of entries of a cache.
const maxCached = 10_000

// cache is a map with at most maxCached entries. It is safe for concurrent use.
type cache[K, V comparable] struct {
	isOld   func(V) bool // reports whether a value is evicted before others
	entries sync.Map
	count   atomic.Int64
}

func newCache[K, V comparable](isOld func(V) bool) *cache[K, V] { return &cache[K, V]{isOld: isOld} }

func (c *cache[K, V]) load(key K) (value V, ok bool) {
	found, ok := c.entries.Load(key)
	if ok {
		value = found.(V) //nolint:forcetypeassert // all values have this type
	}
	return value, ok
}

// add stores a value and returns it. If a value is already stored, add returns that one.
func (c *cache[K, V]) add(key K, value V) V {
	if c.count.Load() >= maxCached {
		c.evict()
	}
	stored, loaded := c.entries.LoadOrStore(key, value)
	if !loaded {
		c.count.Add(1)
	}
	return stored.(V) //nolint:forcetypeassert // all values have this type
}

// remove removes a value if it is still stored.
func (c *cache[K, V]) remove(key K, value V) {
	if c.entries.CompareAndDelete(key, value) {
		c.count.Add(-1)
	}
}

// evict removes a tenth of the entries, beginning with old ones. If it removed all, many clients
// would have to be looked up at once.
func (c *cache[K, V]) evict() {
	for _, all := range []bool{false, true} {
		for key, value := range c.entries.Range {
			if c.count.Load() <= maxCached*9/10 {
				return
			}
			if v := value.(V); all || c.isOld(v) { //nolint:forcetypeassert // all values have this type
				c.remove(key.(K), v) //nolint:forcetypeassert // all keys have this type
			}
		}
	}
}
