package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// A transaction that waits too long for a lock of another session fails with ErrUnavailable, so
// that clients retry it.
func TestLockTimeoutIsUnavailable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.foreign("LOCK TABLE constraint_sets IN EXCLUSIVE MODE")
	_, err := jobs.RunConstraintTx(t.Context(), b.Store, ns, func(*jobs.ConstraintTx) error { return nil })
	if !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// A change of constraints waits for a transaction that assigns keys. It waits longer than 250 ms,
// the lock_timeout of the hot path, because such a transaction can take longer on a busy machine.
func TestChangeOfConstraintsWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release := b.foreign("LOCK TABLE constraint_sets IN EXCLUSIVE MODE")
	began := time.Now()
	noChange := func(*jobs.ConstraintTx) error { return nil }
	changed := later(func() (bool, error) {
		return true, jobs.DeleteConstraint(t.Context(), b.Store, ns, "c", nil, noChange)
	})
	for waits := 0; waits == 0; {
		if time.Since(began) > waitLimit {
			t.Fatal("DeleteConstraint did not wait longer than 400 ms")
		}
		waits = ask[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '400 milliseconds'`)
	}
	release()
	if _, err := changed(); !errors.Is(err, process.ErrConstraintNotFound) {
		t.Errorf("error %v", err)
	}
}

// If a function that runs in a transaction returns an InvalidError, ReplaceNamespace and RunLocked
// return it unchanged, without the text that they add to errors of the database.
func TestRejectedSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	invalid := &process.InvalidError{Field: "f", Message: "must be x"}
	config := func(json.RawMessage) (json.RawMessage, error) { return nil, invalid }
	_, err := b.ReplaceNamespace(t.Context(), ns, config)
	equal(t, "namespace", err.Error(), "f: must be x")
	err = b.RunLocked(t.Context(), "put sink", nil, func(context.Context, storage.DB) error { return invalid })
	equal(t, "sink", err.Error(), "f: must be x")
}
