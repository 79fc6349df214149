package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// counter returns the value of the counter metric with a name.
func counter(t testing.TB, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// contendedBench returns a bench, and a store of one lane with its metrics.
func contendedBench(t *testing.T) (*bench, *storage.Store, *prometheus.Registry) {
	t.Helper()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	return b, open(t, b.dsn, storage.Config{Lanes: 1, Registerer: registry}), registry
}

// While another session has locked a process, other requests do not wait: no flush waits for a lock
// or is split, and all other requests succeed before the lock is released. A call to the locked
// process fails with ErrLocked. The result of the process is stored after the lock is released.
func TestLockedProcessDelaysNoOther(t *testing.T) {
	t.Parallel()
	b, s, registry := contendedBench(t)
	b.process("locked")
	claim := b.claim("locked")
	release := b.foreign("SELECT FROM processes WHERE process_id = 'locked' FOR UPDATE")
	saved := later(func() (storage.Saved, error) { return s.SaveResult(end(claim, storage.Finished, events("a"))) })
	all(200, func(i int) {
		id := fmt.Sprint("other", i)
		p, err := s.PrepareInit(newInit(id))
		if err != nil || p.Outcome != storage.Captured {
			t.Errorf("start %s: %v, %v", id, p.Outcome, err)
			return
		}
		if _, err := s.SaveResult(end(p.Claim, storage.Finished)); err != nil {
			t.Errorf("result of %s: %v", id, err)
		}
	})
	if _, err := s.PrepareCall(call("locked")); !errors.Is(err, process.ErrLocked) {
		t.Errorf("a call to the locked process: %v", err)
	}
	b.is("locked", "RUNNING e0: INIT FINISHED, CALL runs#1")
	equal(t, "results put aside", s.PutAside(), 1)
	release()
	must(t, 0, second(saved()))
	b.is("locked", "RUNNING e1: INIT FINISHED, CALL FINISHED")
	b.until("no result is put aside", func() bool { return s.PutAside() == 0 })
	equal(t, "splits", counter(t, registry, "progressor_flush_splits_total"), 0)
	if counter(t, registry, "progressor_flush_contended_total") == 0 {
		t.Error("no process was left out")
	}
	equal(t, "the next call", must(t, storage.Captured, second(s.PrepareCall(call("locked")))), storage.Captured)
}

// A locked row of another table does not delay other requests either. Flushes with the item that
// needs the row are split until the item is found. The item is then put aside, so later flushes are
// not split.
func TestLockedTaskDelaysNoOther(t *testing.T) {
	t.Parallel()
	b, s, registry := contendedBench(t)
	b.process("locked")
	claim := b.claim("locked")
	release := b.foreign("SELECT FROM running WHERE process_id = 'locked' FOR UPDATE")
	saved := later(func() (storage.Saved, error) { return s.SaveResult(end(claim, storage.Finished, events("a"))) })
	all(8, func(i int) {
		for n := 0; counter(t, registry, "progressor_flush_contended_total") < 7; n++ {
			if _, err := s.PrepareInit(newInit(fmt.Sprint("other", i, "-", n))); err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
		}
	})
	b.is("locked", "RUNNING e0: INIT FINISHED, CALL runs#1")
	if splits := counter(t, registry, "progressor_flush_splits_total"); splits > 8 {
		t.Errorf("%v flushes were split for one row", splits)
	}
	release()
	must(t, 0, second(saved()))
	b.is("locked", "RUNNING e1: INIT FINISHED, CALL FINISHED")
}

// Many locked processes delay only their own items, and each of their results is stored.
func TestManyLockedProcesses(t *testing.T) {
	t.Parallel()
	b, s, registry := contendedBench(t)
	const n = 40
	claims := make([]*storage.Claim, n)
	for i := range n {
		b.process(fmt.Sprint("p", i))
		claims[i] = b.claim(fmt.Sprint("p", i))
	}
	b.process("free")
	release := b.foreign("SELECT FROM processes WHERE process_id <> 'free' FOR UPDATE")
	var saved []func() (storage.Saved, error)
	for _, c := range claims {
		saved = append(saved, later(func() (storage.Saved, error) { return s.SaveResult(end(c, storage.Finished)) }))
	}
	for range 50 {
		p, err := s.PrepareCall(call("free"))
		must(t, p, err)
		must(t, 0, second(s.SaveResult(end(p.Claim, storage.Finished))))
	}
	equal(t, "running", ask[int](b, "SELECT count(*) FROM running"), n)
	release()
	for _, f := range saved {
		must(t, 0, second(f()))
	}
	equal(t, "splits", counter(t, registry, "progressor_flush_splits_total"), 0)
}
