package storage_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage"
)

// Many repetitions of one request create one task, regardless of how they are distributed over
// flushes. All repetitions of a call to a missing process return NotFound.
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	const requests = 150
	outcomes := func(prepare func() (storage.Prepared, error)) map[storage.PrepareOutcome]int {
		prepared := make([]storage.Prepared, requests)
		all(requests, func(n int) {
			p, err := prepare()
			prepared[n] = must(t, p, err)
		})
		count := map[storage.PrepareOutcome]int{}
		for _, p := range prepared {
			count[p.Outcome]++
		}
		return count
	}
	equal(t, "calls", outcomes(func() (storage.Prepared, error) { return b.PrepareCall(call("p", keyed("k", "a"))) }),
		map[storage.PrepareOutcome]int{storage.Captured: 1, storage.Replayed: requests - 1})
	equal(t, "calls to a missing process", outcomes(func() (storage.Prepared, error) {
		return b.PrepareCall(call("absent", keyed("k", "a")))
	}),
		map[storage.PrepareOutcome]int{storage.NotFound: requests})
	equal(t, "starts without a key", outcomes(func() (storage.Prepared, error) { return b.PrepareInit(newInit("q")) }),
		map[storage.PrepareOutcome]int{storage.Captured: 1, storage.Exists: requests - 1})
	equal(t, "tasks", ask[int](b, "SELECT count(*)::int FROM task_list WHERE process_id IN ('p', 'q')"), 3)
}
