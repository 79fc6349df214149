package storage

import (
	"context"
	"reflect"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Effect is a write to a table that SaveResult does not know. It is stored in the transaction of a
// result, or not at all.
type Effect interface {
	// Bytes returns its size in the limit of a flush.
	Bytes() int
	// Write sends the one statement that writes all effects of this type in a flush. It must find
	// each effect by its task and fencing token in what this transaction has written (see
	// SendMessages), so that the effects of a fenced attempt write nothing.
	Write(ctx context.Context, db DB, all []BoundEffect) error
}

// EarlyEffect is an effect whose statement runs before those of other effects of the flush, because
// it deletes rows that they would find.
type EarlyEffect interface {
	Effect
	Early()
}

// BoundEffect is an effect with the attempt whose result it belongs to.
type BoundEffect struct {
	Effect       Effect
	Key          process.Key
	TaskID       int64
	FencingToken int64
	Mode         EventMode // of the namespace
}

// Attempts returns, as arrays, what a statement needs to find the tasks of its effects.
func Attempts(all []BoundEffect) (namespaces, processIDs []string, taskIDs, fencingTokens []int64) {
	for _, r := range all {
		namespaces, processIDs = append(namespaces, r.Key.Namespace), append(processIDs, r.Key.ProcessID)
		taskIDs, fencingTokens = append(taskIDs, r.TaskID), append(fencingTokens, r.FencingToken)
	}
	return namespaces, processIDs, taskIDs, fencingTokens
}

// Checks returns the same as Attempts for attempts with several effects: each attempt once, and the
// index of the attempt of each effect.
func Checks(all []BoundEffect) (namespaces, processIDs []string, taskIDs, fencingTokens []int64, checks, ofRiders []int32) {
	ofRiders = make([]int32, len(all))
	for n := range all {
		r := &all[n]
		last := len(checks) - 1
		if last < 0 || fencingTokens[last] != r.FencingToken || taskIDs[last] != r.TaskID || processIDs[last] != r.Key.ProcessID || namespaces[last] != r.Key.Namespace {
			last++
			namespaces, processIDs = append(namespaces, r.Key.Namespace), append(processIDs, r.Key.ProcessID)
			taskIDs, fencingTokens = append(taskIDs, r.TaskID), append(fencingTokens, r.FencingToken)
			checks = append(checks, int32(last))
		}
		ofRiders[n] = int32(last)
	}
	return namespaces, processIDs, taskIDs, fencingTokens, checks, ofRiders
}

// effectGroups holds the effects of a flush by type.
type effectGroups struct {
	types  []reflect.Type // in the order of their statements
	byType map[reflect.Type][]BoundEffect
}

func (r *effectGroups) add(c *Completion, riders []Effect) {
	for _, rider := range riders {
		t := reflect.TypeOf(rider)
		if r.byType == nil {
			r.byType = map[reflect.Type][]BoundEffect{}
		}
		if _, known := r.byType[t]; !known {
			if _, early := rider.(EarlyEffect); early {
				r.types = slices.Insert(r.types, 0, t)
			} else {
				r.types = append(r.types, t)
			}
		}
		r.byType[t] = append(r.byType[t], BoundEffect{Effect: rider, Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken})
	}
}

// stages returns the statements of the effects. They run after the tasks have ended and before
// their rows are removed.
func (r *effectGroups) stages(s *Store) []stage {
	var stages []stage
	for _, t := range r.types {
		all := r.byType[t]
		for n := range all {
			all[n].Mode = s.eventModeOf(all[n].Key.Namespace)
		}
		if t == jobEventType {
			if all = keptEvents(all); len(all) == 0 {
				continue
			}
		}
		stages = append(stages, func(ctx context.Context, db DB) error { return all[0].Effect.Write(ctx, db, all) })
	}
	return stages
}

// Bytes implements Effect.
func (n *Note) Bytes() int { return 300 + len(n.details()) }

// Write implements Effect. It stores the audit entries of commands that tasks have carried out.
func (n *Note) Write(ctx context.Context, db DB, all []BoundEffect) error {
	var a dbsqlc.InsertNotesParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = Attempts(all)
	for _, r := range all {
		note := r.Effect.(*Note)
		a.Methods = append(a.Methods, note.Method)
		a.Actors = append(a.Actors, note.By.Name)
		a.Sources = append(a.Sources, note.By.Source)
		a.Details = append(a.Details, note.details())
	}
	return dbsqlc.New().InsertNotes(ctx, db, a)
}
