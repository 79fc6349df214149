package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// A key is forgotten when it is old, but never while its task waits or runs: its request would be accepted again.
func TestForgetRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	ended := b.claim("p", keyed("ended", "x"))
	b.save(end(ended, storage.Finished))
	runs := b.claim("p", keyed("runs", "x"))
	b.call("p", keyed("waits", "x"))
	b.exec("UPDATE requests SET created_time = now() - interval '1 day'")
	forget := func(want string) {
		t.Helper()
		_, err := b.Forget(t.Context(), time.Hour)
		must(t, 0, err)
		equal(t, "keys", ask[int](b, "SELECT count(*) FROM requests"), want)
	}
	forget("2")
	equal(t, "again", b.call("p", keyed("runs", "x")).Outcome, storage.Replayed)
	saved := b.save(end(runs, storage.Finished))
	forget("1")
	b.save(end(saved.Next, storage.Finished))
	forget("0")
}
