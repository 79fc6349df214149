package fastpath

import (
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/process"
)

// The number of remembered processes is limited. The process that was added last is always among
// them.
func TestBusyIsLimited(t *testing.T) {
	t.Parallel()
	busy := Busy{}
	first := process.Key{Namespace: "shop", ProcessID: "first"}
	busy.Add(first)
	if !busy.Has(first) {
		t.Fatal("the first process is not busy")
	}
	for n := range 2 * maxBusy {
		key := process.Key{Namespace: "shop", ProcessID: fmt.Sprint(n)}
		busy.Add(key)
		if !busy.Has(key) || len(busy) > maxBusy {
			t.Fatalf("process %d: busy %t among %d", n, busy.Has(key), len(busy))
		}
	}
	if busy.Has(first) {
		t.Error("the first process is still busy")
	}
	last := process.Key{Namespace: "shop", ProcessID: fmt.Sprint(2*maxBusy - 1)}
	if busy.Remove(last); busy.Has(last) {
		t.Error("a removed process is still busy")
	}
}
