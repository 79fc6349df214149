package engine_test

import (
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// An engine merges the index of metadata repeatedly while it stores results.
func TestMetadataIndexIsMerged(t *testing.T) {
	t.Parallel()
	storagetest.NeedsIndexLists(t)
	dsn := storagetest.DSN(t)
	rows := openDB(t, dsn)
	storagetest.Exec(t, rows, "CREATE TABLE public.merges (n int)")
	storagetest.Exec(t, rows, `CREATE OR REPLACE FUNCTION progressor.merge_metadata_index() RETURNS void
		LANGUAGE sql AS 'INSERT INTO public.merges VALUES (1)'`)
	n := start(t, dsn, byTask{})
	calls := 0
	n.started(t, "p")
	eventually(t, "the index is merged twice", func() bool {
		calls++
		n.called(t, "p", fmt.Sprint(calls))
		return n.Count(t, "SELECT count(*) FROM public.merges") > 1
	})
}
