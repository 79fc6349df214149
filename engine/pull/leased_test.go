package pull

import (
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// A node caches its newest leases even if the cache is full of leases that were never completed, or
// were completed on another node.
func TestNewLeasesAreCachedWhenTheCacheIsFull(t *testing.T) {
	t.Parallel()
	l := newLeased()
	for token := int64(1); token <= maxLeased+10; token++ {
		held := &storage.Lease{Claim: storage.Claim{Namespace: "n", ProcessID: "p", FencingToken: token}}
		l.put(held, nil)
		if l.get(pull.LeaseToken{Key: process.Key{Namespace: "n", ProcessID: "p"}, FencingToken: token}) == nil {
			t.Fatalf("lease %d is not cached", token)
		}
	}
	if len(l.byToken) != maxLeased {
		t.Errorf("%d leases are cached", len(l.byToken))
	}
}
