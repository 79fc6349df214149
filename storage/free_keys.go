package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// FreeKeys is an effect that frees the keys that a process holds when it ends. SaveCompleted frees
// them itself.
type FreeKeys struct{}

// Bytes implements Effect.
func (FreeKeys) Bytes() int { return 100 }

// Batch implements Effect.
func (FreeKeys) Batch() string { return "FreeKeys" }

// Write implements Effect.
func (FreeKeys) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.FreeKeysParams
	for _, r := range all {
		a.Append(dbsqlc.FreeKeysItem{Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken})
	}
	return dbsqlc.New().FreeKeys(ctx, db, a)
}

// others returns the effects other than FreeKeys.
func others(effects []Effect) []Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return e == FreeKeys{} })
}

// freesKeys reports whether the end of the process frees keys.
func (c *Completion) freesKeys() bool { return slices.Contains(c.EffectsOnEnd, Effect(FreeKeys{})) }

// freeStages frees the keys of processes that a command may have ended or suspended.
func (b *batch) freeStages(s *Store) []stage {
	var arg dbsqlc.FreeEndedParams
	for _, it := range b.removes {
		arg.Append(dbsqlc.FreeEndedItem{Key: it.key})
	}
	for _, it := range b.suspends {
		arg.Append(dbsqlc.FreeEndedItem{Key: it.key})
	}
	for _, it := range b.cancels {
		arg.Append(dbsqlc.FreeEndedItem{Key: it.key})
	}
	if len(arg.Namespaces) == 0 {
		return nil
	}
	return []stage{func(ctx context.Context, db DB) error { return s.q.FreeEnded(ctx, db, arg) }}
}
