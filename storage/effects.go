package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Effect is a write to a table that SaveResult does not know. It is stored in the transaction of a
// result, or not at all.
type Effect interface {
	// Bytes returns the size with which the effect counts toward the limit of a flush.
	Bytes() int
	// Batch returns the name of the statement that writes effects of this type. Each type has its
	// own.
	Batch() string
	// Write sends the one statement that writes all effects of this batch in a flush. It must find
	// each effect by its task and fencing token in the rows that this transaction has written (see
	// SendMessages), so that the effects of a fenced attempt write nothing.
	Write(ctx context.Context, db DB, all []BoundEffect) error
}

// EarlyEffect is an effect whose statement runs before the statements of other effects of the
// flush, because it deletes rows that they would otherwise find.
type EarlyEffect interface {
	Effect
	Early()
}

// ModalEffect is an effect that is stored only in some event modes of its namespace.
type ModalEffect interface {
	Effect
	StoredIn(mode EventMode) bool
}

// Record is the effect by which a kind records the end of an attempt, for any outcome. Its
// statement runs directly after the results. SaveCompleted itself writes the records of the ends
// that it stores.
type Record interface {
	Effect
	Name() string
}

// BoundEffect is an effect with the attempt whose result it belongs to.
type BoundEffect struct {
	Effect       Effect
	Key          process.Key
	TaskID       int64
	FencingToken int64
	Mode         EventMode // event mode of the namespace
}

// AttemptsOf returns one effect of each attempt, for statements that look up each attempt once. For
// each effect, it also returns the index of its attempt.
func AttemptsOf(all []BoundEffect) (attempts []BoundEffect, indexes []int32) {
	indexes = make([]int32, len(all))
	for n, r := range all {
		last := len(attempts) - 1
		if last < 0 || attempts[last].FencingToken != r.FencingToken ||
			attempts[last].TaskID != r.TaskID || attempts[last].Key != r.Key {
			attempts = append(attempts, r)
			last++
		}
		indexes[n] = int32(last)
	}
	return attempts, indexes
}

// effectBatch holds the effects of a flush that one statement writes.
type effectBatch struct {
	name string
	all  []BoundEffect
}

// effectBatches holds the effects of a flush, in the order of their statements.
type effectBatches []effectBatch

func (b *effectBatches) add(c *Completion, effects ...Effect) {
	for _, e := range effects {
		batch := b.of(e)
		batch.all = append(batch.all, BoundEffect{
			Effect: e, Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
		})
	}
}

// of returns the batch of an effect. It adds the batch if it is missing.
func (b *effectBatches) of(e Effect) *effectBatch {
	name := e.Batch()
	at := slices.IndexFunc(*b, func(batch effectBatch) bool { return batch.name == name })
	if at < 0 {
		if at = len(*b); isEarly(e) {
			at = 0
		}
		*b = slices.Insert(*b, at, effectBatch{name: name})
	}
	return &(*b)[at]
}

func isEarly(e Effect) bool {
	_, early := e.(EarlyEffect)
	return early
}

// stages returns the statements of the effects. They run after the tasks have ended and before
// their rows are removed.
func (b effectBatches) stages(s *Store) []stage {
	var stages []stage
	for _, batch := range b {
		all := batch.all
		for n := range all {
			all[n].Mode = s.eventModeOf(all[n].Key.Namespace)
		}
		if _, modal := all[0].Effect.(ModalEffect); modal {
			if all = storedEffects(all); len(all) == 0 {
				continue
			}
		}
		stages = append(stages, func(ctx context.Context, db DB) error { return all[0].Effect.Write(ctx, db, all) })
	}
	return stages
}

// storedEffects returns the effects of one type that are stored in the event modes of their
// namespaces.
func storedEffects(all []BoundEffect) []BoundEffect {
	stored := make([]BoundEffect, 0, len(all))
	for _, r := range all {
		if r.Effect.(ModalEffect).StoredIn(r.Mode) {
			stored = append(stored, r)
		}
	}
	return stored
}

// Bytes implements Effect.
func (n *AuditRecord) Bytes() int { return 300 + len(n.details()) }

// Batch implements Effect.
func (*AuditRecord) Batch() string { return "InsertTaskAudits" }

// Write implements Effect. It stores the audit entries of commands that tasks have carried out.
func (n *AuditRecord) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.InsertTaskAuditsParams
	for _, r := range all {
		note := r.Effect.(*AuditRecord)
		a.Append(dbsqlc.InsertTaskAuditsItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
			Method: note.Method, Actor: note.By.Name, Source: note.By.Source,
			Details: note.details(),
		})
	}
	return dbsqlc.New().InsertTaskAudits(ctx, db, a)
}
