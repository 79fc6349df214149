package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// usageWindow is the minimum time over which usage compares processors with the database.
const usageWindow = time.Second

// waitsForDatabase reports whether the tasks that hold the slots of the namespace on this node wait
// for the database rather than for their processor.
func (ns *namespace) waitsForDatabase() bool {
	taken, _ := ns.slots.inUse()
	return !ns.usage.byProcessors(taken, time.Now())
}

// mayHoldSlot reports whether a call may keep its slot while it waits in memory for its process.
// This is allowed if nothing waits for a slot. It is also allowed if only new requests wait, and
// the tasks wait for the database rather than for their processor. If these calls were stored
// during an overload, each would need a row in table schedule, and nearly every flush would use the
// general statements.
func (ns *namespace) mayHoldSlot() bool {
	taken, fresh, others := ns.slots.demand()
	return !others && (fresh == 0 || !ns.usage.byProcessors(taken, time.Now()))
}

// usage measures whether the tasks that hold the slots of a namespace on this node wait for their
// processor or for the database. If they wait for the database, storing more requests would slow
// them down. It is safe for concurrent use.
type usage struct {
	working             atomic.Int64 // attempts that the processor is processing
	processing, storing atomic.Int64 // nanoseconds so far

	mu    sync.Mutex
	began time.Time // start of the window
	at    [2]int64  // processing and storing at the beginning of the window
	last  [2]int64  // values of the previous window
}

// begin records that the processor has received an attempt, and returns the time.
func (u *usage) begin() time.Time {
	u.working.Add(1)
	return time.Now()
}

// processed records that the processor has finished an attempt.
func (u *usage) processed(began time.Time) {
	u.working.Add(-1)
	u.processing.Add(int64(time.Since(began)))
}

// stored adds the time that storing a request or a result took.
func (u *usage) stored(began time.Time) { u.storing.Add(int64(time.Since(began))) }

// byProcessors reports whether processors use most of the time of the taken slots.
func (u *usage) byProcessors(taken int, now time.Time) bool {
	if 2*u.working.Load() >= int64(taken) { // the sums do not contain attempts that still run
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	sums := [2]int64{u.processing.Load(), u.storing.Load()}
	window := [2]int64{sums[0] - u.at[0], sums[1] - u.at[1]}
	most := u.last[0]+window[0] >= u.last[1]+window[1]
	if now.Sub(u.began) >= usageWindow {
		u.began, u.at, u.last = now, sums, window
	}
	return most
}
