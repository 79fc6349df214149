// Package budget limits the total memory of requests and responses.
package budget

import (
	"context"
	"sync"
)

// Free is the number of bytes that each holder may use without the budget. Most requests and
// responses are not larger, so they do not wait and do not use the budget.
const Free = 64 << 10

// ownerPortion limits the part of a budget that one owner can have to 1/ownerPortion, so that
// others are served while this owner sends as much as it can.
const ownerPortion = 2

// Budget is a number of bytes that holders share. It is safe for concurrent use. A nil Budget has
// no limit.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	byOwner map[string]int64
	waiting []*waiter // in the order of their arrival
}

// waiter is a holder that waits for bytes.
type waiter struct {
	owner string
	bytes int64
	ready chan struct{} // closed when it has them
}

// New returns a budget.
func New(limit int64) *Budget { return &Budget{limit: limit, byOwner: map[string]int64{}} }

// Holder holds the bytes of the budget for one request or response. Only one goroutine may use it
// at a time.
type Holder struct {
	budget *Budget
	owner  string
	bytes  int64
}

// Of returns a holder without bytes. Owners, such as the address of a client, share their part of
// the budget.
func (b *Budget) Of(owner string) *Holder { return &Holder{budget: b, owner: owner} }

// Take raises the total of the holder to the given number of bytes, including Free. It waits until
// they are available. If ctx ends first, it returns the cause. The total is limited to the part of
// one owner.
func (h *Holder) Take(ctx context.Context, bytes int64) error {
	if h == nil || h.budget == nil {
		return nil
	}
	b := h.budget
	more := min(max(0, bytes-Free), b.limit/ownerPortion) - h.bytes
	if more <= 0 {
		return nil
	}
	w := b.enqueue(h.owner, more)
	select {
	case <-w.ready:
	case <-ctx.Done():
		if !b.withdraw(w) {
			return context.Cause(ctx)
		}
	}
	h.bytes += more
	return nil
}

// Keep lowers the total of the holder to at most the given number of bytes, including Free.
func (h *Holder) Keep(bytes int64) {
	if h == nil || h.bytes == 0 {
		return
	}
	kept := min(h.bytes, max(0, bytes-Free))
	h.budget.release(h.owner, h.bytes-kept)
	h.bytes = kept
}

// Has reports whether the holder has bytes of the budget.
func (h *Holder) Has() bool { return h != nil && h.bytes > 0 }

// Release returns all bytes.
func (h *Holder) Release() { h.Keep(0) }

// enqueue adds a holder to the queue, and serves all holders for which there are enough bytes.
func (b *Budget) enqueue(owner string, bytes int64) *waiter {
	w := &waiter{owner, bytes, make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, w)
	b.serve()
	return w
}

// withdraw removes a holder that stops waiting. It returns true if the holder got its bytes before
// it was removed.
func (b *Budget) withdraw(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.waiting {
		if b.waiting[n] == w {
			b.waiting = append(b.waiting[:n], b.waiting[n+1:]...)
			b.serve() // those behind it may need fewer bytes
			return false
		}
	}
	return true
}

func (b *Budget) release(owner string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	if b.byOwner[owner] -= bytes; b.byOwner[owner] == 0 {
		delete(b.byOwner, owner)
	}
	b.serve()
}

// serve gives waiting holders their bytes, in their order. It skips holders whose owner has used up
// its part.
func (b *Budget) serve() {
	waiting := b.waiting[:0]
	full := false
	for _, w := range b.waiting {
		if b.byOwner[w.owner]+w.bytes <= b.limit/ownerPortion {
			full = full || b.used+w.bytes > b.limit
			if !full {
				b.used += w.bytes
				b.byOwner[w.owner] += w.bytes
				close(w.ready)
				continue
			}
		}
		waiting = append(waiting, w)
	}
	clear(b.waiting[len(waiting):])
	b.waiting = waiting
}

// key is the key of the *Holder in a context.
type key struct{}

// In returns a context with a holder.
func In(ctx context.Context, h *Holder) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the holder in a context, or nil, which has no limit.
func From(ctx context.Context) *Holder {
	h, _ := ctx.Value(key{}).(*Holder)
	return h
}
