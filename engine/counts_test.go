package engine_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The counts of processes by status follow starts, failures and removals.
func TestCountProcesses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), byTask{callTask: words})
	counted := func(namespace string, running, broken int64) {
		t.Helper()
		counts, err := n.CountProcesses(t.Context(), namespace)
		want := map[string]int64{"running": running, "error": broken, "suspended": 0, "completed": 0, "cancelled": 0}
		if err != nil || !maps.Equal(counts, want) {
			t.Errorf("%q: got %v, %v, want %v", namespace, counts, err, want)
		}
	}
	counted("ns", 0, 0)
	for _, id := range []string{"a", "b", "c"} {
		n.started(t, id)
	}
	taskError(t, (<-n.calling("b", "fail")).err)
	counted("ns", 2, 1)
	counted("", 2, 1)
	if err := n.RemoveProcess(t.Context(), key("b"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	counted("ns", 2, 0)
	if _, err := n.CountProcesses(t.Context(), "nowhere"); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("of an unknown namespace: %v", err)
	}
}
