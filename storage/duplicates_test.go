package storage_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage"
)

// Many repetitions of one request, distributed over flushes in any way, create one task. They
// create none if the process rejects the request.
func TestManyTwins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	const storm = 150
	outcomes := func(prepare func() (storage.Prepared, error)) map[storage.PrepareOutcome]int {
		prepared := make([]storage.Prepared, storm)
		all(storm, func(n int) {
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
		map[storage.PrepareOutcome]int{storage.Captured: 1, storage.Replayed: storm - 1})
	equal(t, "calls of nothing", outcomes(func() (storage.Prepared, error) {
		return b.PrepareCall(call("nobody", keyed("k", "a")))
	}),
		map[storage.PrepareOutcome]int{storage.NotFound: storm})
	equal(t, "starts without a key", outcomes(func() (storage.Prepared, error) { return b.PrepareInit(newInit("q")) }),
		map[storage.PrepareOutcome]int{storage.Captured: 1, storage.Exists: storm - 1})
	equal(t, "tasks", ask[int](b, "SELECT count(*)::int FROM task_list WHERE process_id IN ('p', 'q')"), 3)
}
