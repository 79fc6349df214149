package storage_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// New entries of the index of metadata are in a list until they are merged into the index.
func TestMergeMetadataIndex(t *testing.T) {
	t.Parallel()
	storagetest.NeedsIndexLists(t)
	b := newBench(t)
	b.namespace(ns)
	merged := func() int { return ask[int](b, "SELECT gin_clean_pending_list('processes_metadata')") }
	withMetadata := func(in *storage.Init) { in.Metadata = []byte(`{"a": 1}`) }
	b.start("p", withMetadata)
	equal(t, "pages of the list", merged(), 1)
	b.start("q", withMetadata)
	must(t, 0, b.MergeMetadataIndex(t.Context()))
	equal(t, "pages of the list after the engine has merged it", merged(), 0)
	storagetest.Exec(t, b.db, `UPDATE processes SET metadata = '{"a": 2}'`)
	must(t, 0, b.MergeMetadataIndex(t.Context())) // this store has stored nothing since
	equal(t, "pages of the list that others have written", merged(), 1)
}
