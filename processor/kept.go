package processor

import "context"

// Kept keeps a value in memory between the tasks of a process that run one after the other in the
// engine's program. Only the attempt that runs may use it.
type Kept struct {
	value any
	drop  func()
}

// Keep sets the value. The engine calls drop as soon as the next task of the process does not
// follow here: the process has no next task yet, has ended, is suspended, or another node may
// continue it.
func (k *Kept) Keep(value any, drop func()) { k.value, k.drop = value, drop }

// Value returns the value, or nil.
func (k *Kept) Value() any {
	if k == nil {
		return nil
	}
	return k.value
}

// Drop removes the value and calls its drop function.
func (k *Kept) Drop() {
	if k != nil && k.drop != nil {
		k.drop()
		k.value, k.drop = nil, nil
	}
}

type keptKey struct{}

// WithKept returns a context for an attempt that may use k.
func WithKept(ctx context.Context, k *Kept) context.Context {
	return context.WithValue(ctx, keptKey{}, k)
}

// KeptOf returns the Kept of the attempt whose context is ctx. It is nil unless the process was
// started in this program and each of its tasks followed here.
func KeptOf(ctx context.Context) *Kept {
	k, _ := ctx.Value(keptKey{}).(*Kept)
	return k
}
