package storage

import (
	"context"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// Insertion is an operation of a lane that inserts a process with the statements of its kind. It
// embeds InsertItem. All insertions of a store have the same type.
type Insertion interface {
	operation
	// Stages returns the statements for all insertions of a flush. They run in the transaction of a
	// flush, after its locks. Each function sends one statement, see stage.
	Stages(s *Store, all []Insertion) []func(context.Context, DB) error
	// Again is called after the commit. It reports whether the next flush must retry the insertion.
	Again() bool
}

// InsertItem is the part of an Insertion that a lane uses.
type InsertItem struct{ item }

// NewInsertItem returns the item of a process to insert. If repeatable is true, the item is retried
// when it is unknown whether it was committed. requestID may be zero.
func NewInsertItem(key process.Key, bytes int, requestID uuid.UUID, repeatable bool) InsertItem {
	it := InsertItem{newItem(key, bytes, repeatable)}
	it.requestID = requestID
	return it
}

// Repeated reports whether the item was retried after the response of a commit was lost. It may
// then have found its own process.
func (i *InsertItem) Repeated() bool { return i.repeated }

// Insert returns when the inserted process is durable.
func (s *Store) Insert(i Insertion) error { return s.submit(i) }

func insertStages(s *Store, items []Insertion) []stage {
	if len(items) == 0 {
		return nil
	}
	return items[0].Stages(s, items)
}
