package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// lockStage locks processes and waits for their locks. It is the first statement of every
// transaction outside the lanes that moves tasks.
func (s *Store) lockStage(keys []process.Key) stage {
	of := keysParamsOf(sortedKeys(keys))
	return func(ctx context.Context, db DB) error {
		return s.q.LockProcesses(ctx, db, dbsqlc.LockProcessesParams{
			Namespaces: of.namespaces, ProcessIds: of.processIDs,
		})
	}
}

// tryLockStage is lockStage for flushes: it fails at once if another session has locked one of the
// processes.
func (s *Store) tryLockStage(keys []process.Key) stage {
	if s.waitsForLocks {
		return s.lockStage(keys)
	}
	of := keysParamsOf(sortedKeys(keys))
	return func(ctx context.Context, db DB) error {
		return s.q.TryLockProcesses(ctx, db, dbsqlc.TryLockProcessesParams{
			Namespaces: of.namespaces, ProcessIds: of.processIDs,
		})
	}
}

// sortedKeys returns keys without duplicates in the order in which all transactions lock them.
func sortedKeys(keys []process.Key) []process.Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, process.Key.Compare)
	return slices.Compact(keys)
}
