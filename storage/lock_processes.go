package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// lockStage is the first statement of every transaction that moves tasks.
func lockStage(s *Store, keys []process.Key) stage {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, process.Key.Compare)
	keys = slices.Compact(keys)
	of := keysParamsOf(keys)
	return func(ctx context.Context, db DB) error {
		return s.q.LockProcesses(ctx, db, dbsqlc.LockProcessesParams{Namespaces: of.namespaces, ProcessIds: of.processIDs})
	}
}
