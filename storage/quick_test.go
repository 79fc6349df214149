package storage_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A busy process costs a second flush once, not for each of its calls and results; when nothing waits there any more it is forgotten.
func TestQuickStatementsMiss(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	registry := prometheus.NewRegistry()
	b := &bench{Store: open(t, dsn, storage.Config{Registerer: registry, Lanes: 1}), t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
	misses := func(after string, want float64) {
		t.Helper()
		families, err := registry.Gather()
		n := slices.IndexFunc(must(t, families, err), func(f *dto.MetricFamily) bool { return f.GetName() == "progressor_quick_misses_total" })
		equal(t, "misses after "+after, families[n].GetMetric()[0].GetCounter().GetValue(), want)
	}
	b.process("p")
	c := b.claim("p", keyed("k", "x"))
	misses("a call to a free process", 0)
	equal(t, "a second call", b.call("p").Outcome, storage.Postponed)
	misses("a call that waits", 1)
	equal(t, "a third call", b.call("p").Outcome, storage.Postponed)
	second := b.save(end(c, storage.Finished)).Next
	third := b.save(end(second, storage.Finished)).Next
	b.save(end(third, storage.Finished))
	misses("more of the same", 1)
	c = b.claim("p", keyed("k2", "x"))
	misses("a call to a process that is free again", 1)
	b.save(end(c, storage.Finished, events("e")))
	misses("its result", 1)
	equal(t, "the first call again", b.call("p", keyed("k", "x")).Outcome, storage.Replayed)
	misses("a repeated call", 2)
	b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED")
}
