package process

import (
	"testing"

	"github.com/google/uuid"
)

// TestDerivedIDs checks that IDs derived from UUIDv7 keys have the order of their keys, and that
// other requests have other IDs.
func TestDerivedIDs(t *testing.T) {
	derived := func(namespace, key string) string {
		return DerivedProcessID(RequestID(namespace, "", key), key)
	}
	last, seen := "", map[string]string{}
	for range 1000 {
		key := uuid.Must(uuid.NewV7()).String()
		id := derived("a", key)
		if id <= last || id != derived("a", key) {
			t.Fatalf("key %s has the ID %s after %s", key, id, last)
		}
		last = id
		for _, id := range []string{id, derived("b", key), derived("a", key[:len(key)-1]+"x")} {
			if seen[id] != "" {
				t.Fatalf("ID %s of key %s is also the ID of key %s", id, key, seen[id])
			}
			seen[id] = key
		}
	}
	for _, key := range []string{"k", "", uuid.NewString(), "01939d4e-7c4a-7000-0000-000000000000"} {
		if request := RequestID("a", "", key); DerivedProcessID(request, key) != ShortID(request) {
			t.Errorf("key %q, which is not a UUIDv7, has the ID %s", key, DerivedProcessID(request, key))
		}
	}
}
