package storage_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// A transaction wakes the functions of OnChanges and OnChangesForOthers for its namespace.
// WakeReaders, which is called for the NOTIFY of another node, wakes only the functions of
// OnChanges. If notices may have been lost, WakeReaders("") wakes the functions of all namespaces.
func TestOnChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var near, far, other atomic.Int64
	count := func(n *atomic.Int64) func() { return func() { n.Add(1) } }
	stops := []func(){
		b.OnChanges(ns, count(&near)), b.OnChangesForOthers(ns, count(&far)), b.OnChanges("other", count(&other)),
	}
	wakes := func(what string, wantNear, wantFar, wantOther bool, act func()) {
		t.Helper()
		before := [3]int64{near.Load(), far.Load(), other.Load()}
		act()
		equal(t, what+": wakes readers here", near.Load() > before[0], wantNear)
		equal(t, what+": wakes readers elsewhere", far.Load() > before[1], wantFar)
		equal(t, what+": wakes readers of another namespace", other.Load() > before[2], wantOther)
	}
	wakes("a process", true, true, false, func() { b.process("p") })
	wakes("a command", true, true, false, func() {
		err := b.RunLocked(t.Context(), "test", []process.Key{key("p")}, func(context.Context, storage.DB) error {
			return nil
		})
		must(t, 0, err)
	})
	wakes("a notice", true, false, false, func() { b.WakeReaders(ns) })
	wakes("lost notices", true, false, true, func() { b.WakeReaders("") })
	for _, stop := range stops {
		stop()
		stop()
	}
	wakes("a process without readers", false, false, false, func() { b.process("q") })
}
