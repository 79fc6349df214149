package storage

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Constrained holds the constraint keys of a job.
type Constrained struct {
	Version int64             // version of the constraints under which it was evaluated; 0 if there are none
	Keys    map[string]string // by the name of the constraint
}

// KeyOf returns the name of a key queue: the name of the constraint, =, and the value. A constraint
// name contains no =.
func KeyOf(constraint, key string) string { return constraint + "=" + key }

// KeyNames returns the key queues of all keys, sorted.
func (c Constrained) KeyNames() []string {
	lines := make([]string, 0, len(c.Keys))
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		lines = append(lines, KeyOf(name, c.Keys[name]))
	}
	return lines
}

// FirstKey returns the key queue in which the job waits first, or "" if it needs no key.
func (c Constrained) FirstKey() string {
	if len(c.Keys) == 0 {
		return ""
	}
	return c.KeyNames()[0]
}

// JSON returns the keys as stored in jobs.constraint_keys, or "" if there are none.
func (c Constrained) JSON() string {
	if len(c.Keys) == 0 {
		return ""
	}
	text, _ := json.Marshal(c.Keys) // a map of strings
	return string(text)
}

// FreeKeys is an effect that frees the keys of a job when it ends. SaveCompleted frees them itself.
type FreeKeys struct{}

// Bytes implements Effect.
func (FreeKeys) Bytes() int { return 100 }

// Batch implements Effect.
func (FreeKeys) Batch() string { return "FreeKeys" }

// Write implements Effect.
func (FreeKeys) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.FreeKeysParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = Attempts(all)
	return dbsqlc.New().FreeKeys(ctx, db, a)
}

// others returns the effects other than Freed.
func others(effects []Effect) []Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return e == FreeKeys{} })
}

// freesKeys reports whether the job holds keys that its end frees.
func (c *Completion) freesKeys() bool { return slices.Contains(c.EffectsOnEnd, Effect(FreeKeys{})) }

// freeStages frees the keys of processes that a command may have ended or suspended.
func (b *batch) freeStages(s *Store) []stage {
	var of keysParams
	for _, it := range b.removes {
		of.add(it.key)
	}
	for _, it := range b.suspends {
		of.add(it.key)
	}
	for _, it := range b.cancels {
		of.add(it.key)
	}
	if len(of.namespaces) == 0 {
		return nil
	}
	return []stage{func(ctx context.Context, db DB) error {
		return s.q.FreeEnded(ctx, db, dbsqlc.FreeEndedParams{Namespaces: of.namespaces, ProcessIds: of.processIDs})
	}}
}
