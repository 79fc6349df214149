package storage

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Constrained is what a job needs to run under the constraints of its namespace.
type Constrained struct {
	Version int64             // of the constraints that it was evaluated under; 0: there are none
	Keys    map[string]string // by the name of the constraint
}

// KeyOf is the line of a key: the name of the constraint, =, and the value. A name has no = in it.
func KeyOf(constraint, key string) string { return constraint + "=" + key }

// KeyNames are those of all keys, sorted.
func (c Constrained) KeyNames() []string {
	lines := make([]string, 0, len(c.Keys))
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		lines = append(lines, KeyOf(name, c.Keys[name]))
	}
	return lines
}

// FirstKey is where the job waits first; "": it needs no key.
func (c Constrained) FirstKey() string {
	if len(c.Keys) == 0 {
		return ""
	}
	return c.KeyNames()[0]
}

// JSON are the keys as jobs.constraint_keys has them; "": there are none.
func (c Constrained) JSON() string {
	if len(c.Keys) == 0 {
		return ""
	}
	text, _ := json.Marshal(c.Keys) // strings: this cannot fail
	return string(text)
}

// Freed goes with the end of a job that holds keys: they are free. A rider; SaveCompleted does it by itself.
type Freed struct{}

// Bytes implements Effect.
func (Freed) Bytes() int { return 100 }

// Write implements Effect.
func (Freed) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.FreeKeysParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = Attempts(all)
	return dbsqlc.New().FreeKeys(ctx, db, a)
}

// others are riders but Freed.
func others(riders []Effect) []Effect {
	return slices.DeleteFunc(slices.Clone(riders), func(r Effect) bool { return r == Freed{} })
}

// freesKeys tells whether a job holds keys that its end frees.
func (c *Completion) freesKeys() bool { return slices.Contains(c.EffectsOnEnd, Effect(Freed{})) }

// freeStages free the keys of processes that an order may have ended, or held.
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
