package fastpath

import "github.com/progressor-engine/progressor/process"

// maxBusy limits Busy, because calls that end on another node are never removed from it.
const maxBusy = 1 << 16

// Busy contains the processes that have a waiting task or an attempt, as far as a lane knows, such
// as those for which the fast path did not apply. The lane remembers them until a result reports
// that no task waits there. A wrong entry costs an additional flush. It is not safe for concurrent
// use.
type Busy map[process.Key]struct{}

// Has reports whether calls and results of a process must use the general statements.
func (b Busy) Has(key process.Key) bool {
	_, busy := b[key]
	return busy
}

// Add records a process that has a waiting task or an attempt. If there are too many, it forgets
// all others.
func (b Busy) Add(key process.Key) {
	if len(b) >= maxBusy {
		clear(b)
	}
	b[key] = struct{}{}
}

// Remove records that no task of a process waits.
func (b Busy) Remove(key process.Key) { delete(b, key) }
