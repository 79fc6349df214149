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
	arg := dbsqlc.LockProcessesParams{Namespaces: make([]string, len(keys)), ProcessIds: make([]string, len(keys))}
	for n, k := range keys {
		arg.Namespaces[n], arg.ProcessIds[n] = k.Namespace, k.ProcessID
	}
	return func(ctx context.Context, db DB) error {
		return s.q.LockProcesses(ctx, db, arg)
	}
}
