package storage_test

import (
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
)

// counts returns the number of processes of a namespace by status, in one line.
func (b *bench) counts(namespace string) string {
	b.t.Helper()
	counts, err := insight.CountProcesses(b.t.Context(), b.Store, namespace)
	text := ""
	for _, s := range process.Statuses() {
		if n := must(b.t, counts, err)[s]; n != 0 {
			text += fmt.Sprintf("%s %d ", s, n)
		}
	}
	return text
}

// Every creation, change and removal of processes is counted, in any lane, node or pool. At its
// end, every test checks the invariant that the counters agree with the rows.
func TestStatusesAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	equal(t, "at first", b.counts(ns), "")
	b.process("a")
	b.process("b")
	c := b.start("new")
	equal(t, "started", b.counts(ns), "RUNNING 3 ")
	b.save(end(b.claim("a"), storage.Failed, broken("x")))
	b.suspend("b")
	equal(t, "failed and held", b.counts(ns), "RUNNING 1 ERROR 1 SUSPENDED 1 ")
	_, err := open(t, b.dsn, storage.Config{}).SimpleRepair(call("a"))
	must(t, 0, err)
	b.save(end(c, storage.Completed))
	equal(t, "repaired on another node, and completed", b.counts(ns), "RUNNING 1 SUSPENDED 1 COMPLETED 1 ")
	put, err := b.PutProcess(t.Context(), storage.Import{
		Key: process.Key{Namespace: "other", ProcessID: "p"}, Status: process.StatusError,
	})
	must(t, put, err)
	equal(t, "imported", b.counts("other")+"of "+b.counts(""), "ERROR 1 of RUNNING 1 ERROR 1 SUSPENDED 1 COMPLETED 1 ")
	for _, id := range []string{"a", "b", "new"} {
		must(t, 0, b.RemoveProcess(t.Context(), key(id)))
	}
	equal(t, "removed", b.counts(ns)+"of "+b.counts(""), "of ERROR 1 ")
}

// A lane counts in its own rows, so that no flush waits for another one.
func TestLanesCountApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := open(t, b.dsn, storage.Config{Lanes: 1})
	started := later(func() (storage.Prepared, error) { return b.PrepareInit(newInit("a")) })
	p, err := started()
	must(t, p, err)
	held := b.foreign("SELECT FROM status_counts FOR UPDATE")
	p, err = other.PrepareInit(newInit("b"))
	equal(t, "while another lane's rows are locked", must(t, p, err).Outcome, storage.Captured)
	held()
	equal(t, "lanes", ask[int](b, "SELECT count(DISTINCT lane) FILTER (WHERE lane > 0) FROM status_counts"), 2)
	equal(t, "both", b.counts(ns), "RUNNING 2 ")
}
