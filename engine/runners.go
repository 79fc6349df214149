package engine

import "sync/atomic"

// maxParked is how many goroutines wait for the next claim at the most: their stacks are all that they cost, 16 KiB each.
const maxParked = 256

// runners run claims. A goroutine that has ended one takes the next: in a new one the stack grows four times on the way down to a
// processor, and copying it was 3 % of what the engine did.
type runners struct {
	next   chan func()
	parked atomic.Int32
	over   <-chan struct{} // closed when no more claims come
}

func newRunners(over <-chan struct{}) *runners {
	return &runners{next: make(chan func()), over: over}
}

// run runs a claim at once, in a goroutine that waits for one or else a new one.
func (r *runners) run(claim func()) {
	select {
	case r.next <- claim:
	default:
		go r.loop(claim)
	}
}

func (r *runners) loop(claim func()) {
	for {
		claim()
		if r.parked.Add(1) > maxParked {
			r.parked.Add(-1)
			return
		}
		select {
		case claim = <-r.next:
			r.parked.Add(-1)
		case <-r.over:
			return
		}
	}
}
