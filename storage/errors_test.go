package storage_test

import (
	"errors"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// A command that waits too long for a lock of another session fails with UNAVAILABLE: a repetition
// may succeed.
func TestLockTimeoutIsUnavailable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.foreign("LOCK TABLE constraint_sets IN SHARE MODE")
	err := jobs.DeleteConstraint(t.Context(), b.Store, ns, "c", nil, func(*jobs.ConstraintTx) error { return nil })
	if !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}
