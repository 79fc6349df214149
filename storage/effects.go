package storage

import (
	"context"
	"reflect"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Effect is what a result writes beside the process itself, into a table that SaveResult does not know: with the result, or not at all.
type Effect interface {
	// Bytes is what it counts for in a flush.
	Bytes() int
	// Write sends the one statement that writes all riders of this type of a flush. It has to find each by its task and fencing token in
	// what this transaction has written (see SendMessages), so that those of a fenced attempt write nothing.
	Write(ctx context.Context, db DB, all []BoundEffect) error
}

// EarlyEffect is a rider whose statement comes before those of other riders of the flush: it removes what they would find.
type EarlyEffect interface {
	Effect
	Early()
}

// BoundEffect is a rider with the attempt whose result it goes with.
type BoundEffect struct {
	Effect       Effect
	Key          process.Key
	TaskID       int64
	FencingToken int64
	Mode         EventMode // of the namespace
}

// Attempts are what a statement finds the tasks of its riders by, as arrays.
func Attempts(all []BoundEffect) (namespaces, processIDs []string, taskIDs, fencingTokens []int64) {
	for _, r := range all {
		namespaces, processIDs = append(namespaces, r.Key.Namespace), append(processIDs, r.Key.ProcessID)
		taskIDs, fencingTokens = append(taskIDs, r.TaskID), append(fencingTokens, r.FencingToken)
	}
	return namespaces, processIDs, taskIDs, fencingTokens
}

// Checks are what a statement finds the tasks of its riders by where an attempt has several: each attempt once, and of which of them each rider is.
func Checks(all []BoundEffect) (namespaces, processIDs []string, taskIDs, fencingTokens []int64, checks, ofRiders []int32) {
	ofRiders = make([]int32, len(all))
	for n := range all {
		r := &all[n]
		last := len(checks) - 1
		if last < 0 || fencingTokens[last] != r.FencingToken || taskIDs[last] != r.TaskID || processIDs[last] != r.Key.ProcessID || namespaces[last] != r.Key.Namespace {
			last++
			namespaces, processIDs = append(namespaces, r.Key.Namespace), append(processIDs, r.Key.ProcessID)
			taskIDs, fencingTokens = append(taskIDs, r.TaskID), append(fencingTokens, r.FencingToken)
			checks = append(checks, int32(last)) //nolint:gosec // at most maxFlushItems
		}
		ofRiders[n] = int32(last) //nolint:gosec // at most maxFlushItems
	}
	return namespaces, processIDs, taskIDs, fencingTokens, checks, ofRiders
}

// effectGroups are the effects of a flush, by their type.
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

// stages follow what has ended the tasks, and what has removed processes; their rows are still there.
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

// Write implements Effect: a note that a task takes along is of an order that it has carried out.
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
