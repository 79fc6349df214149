package processor

import (
	"context"
	"errors"
)

var errNoHistory = errors.New("the processor cannot use the value that it has parked")

// Kept keeps a value in memory between the tasks of a process. Only the attempt that runs may use
// it.
type Kept struct {
	value     any
	drop      func()
	parked    *Parked
	noHistory bool // the request has no history
	repeat    bool // the engine must call the processor again, with the history
	parksOnly bool // the value is not kept for a task that follows at once
}

// Parked describes a value that Park keeps.
type Parked struct {
	LastEventID int64 // ID of the last event on which the value depends
	Bytes       int   // approximate size of the value
}

// Keeps reports whether Keep can keep a value: only if the processor runs in the engine's program.
func (k *Kept) Keeps() bool { return k != nil && !k.parksOnly }

// Keep sets the value for the next task, which must follow in this program at once. The engine
// calls drop instead if the process has no next task yet, has ended or is suspended, or if another
// node may continue it.
func (k *Kept) Keep(value any, drop func()) { k.value, k.drop, k.parked = value, drop, nil }

// Park sets the value for the next CALL, NOTIFY or TIMEOUT, even if it comes much later. The
// request of that task may have no history (see OmitsHistory). The engine calls drop instead if the
// process then has other events, if the task runs in another program, or if too many values are
// parked. It may call the drop functions of several values at the same time.
func (k *Kept) Park(value any, p Parked, drop func()) { k.value, k.drop, k.parked = value, drop, &p }

// Parked returns the description of the value, or nil if it was not parked.
func (k *Kept) Parked() *Parked {
	if k == nil {
		return nil
	}
	return k.parked
}

// Value returns the value, or nil.
func (k *Kept) Value() any {
	if k == nil {
		return nil
	}
	return k.value
}

// SetOmitsHistory sets OmitsHistory. The engine calls it before each request.
func (k *Kept) SetOmitsHistory() {
	if k != nil {
		k.noHistory, k.repeat = k.parked != nil, false
	}
}

// OmitsHistory reports whether the request has no history because a value was parked.
func (k *Kept) OmitsHistory() bool { return k != nil && k.noHistory }

// NoHistory returns an error if OmitsHistory returns true. A processor that cannot use the value
// returns this error. Then the engine calls it again with the history.
func (k *Kept) NoHistory() error {
	if !k.OmitsHistory() {
		return nil
	}
	k.repeat = true
	return errNoHistory
}

// Repeats reports whether the engine must call the processor again, with the history.
func (k *Kept) Repeats() bool { return k != nil && k.repeat }

// Take returns the value, or nil, and removes it without calling its drop function.
func (k *Kept) Take() any {
	value := k.Value()
	if k != nil {
		k.value, k.drop, k.parked = nil, nil, nil
	}
	return value
}

// Drop removes the value and calls its drop function.
func (k *Kept) Drop() {
	if k != nil && k.drop != nil {
		drop := k.drop
		k.Take()
		drop()
	}
}

type keptKey struct{}

// WithKept returns a context for an attempt that may use k.
func WithKept(ctx context.Context, k *Kept) context.Context {
	return context.WithValue(ctx, keptKey{}, k)
}

// KeptOf returns the Kept of the attempt whose context is ctx, or nil. An attempt has one if it
// runs in the engine's program, in a worker, or in a Handler with WithParking.
func KeptOf(ctx context.Context) *Kept {
	k, _ := ctx.Value(keptKey{}).(*Kept)
	return k
}
