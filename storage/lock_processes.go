package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// lockRequest names the processes that a transaction locks.
type lockRequest struct {
	keys []process.Key
	// created contains the processes that the transaction inserts. The value is true if none of its
	// other statements acts on the process.
	created map[process.Key]bool
	again   bool // locks processes that were missing when the transaction began
}

func (r *lockRequest) params() dbsqlc.LockProcessesParams {
	keys := sortedKeys(r.keys)
	of := keysParamsOf(keys)
	params := dbsqlc.LockProcessesParams{Namespaces: of.namespaces, ProcessIds: of.processIDs, Again: r.again}
	if len(r.created) > 0 {
		params.Createds = make([]bool, len(keys))
		for n, key := range keys {
			params.Createds[n] = r.created[key]
		}
	}
	return params
}

// lockStage locks processes and waits for their locks. It is the first statement of every
// transaction outside the lanes that moves tasks, except claims, which skip locked rows.
func (s *Store) lockStage(keys []process.Key) stage { return s.waitStage(lockRequest{keys: keys}) }

func (s *Store) waitStage(request lockRequest) stage {
	params := request.params()
	return func(ctx context.Context, db DB) error { return s.q.LockProcesses(ctx, db, params) }
}

// tryLockStage is lockStage for flushes: it fails at once if another session has locked one of the
// processes.
func (s *Store) tryLockStage(request lockRequest) stage {
	if s.waitsForLocks {
		return s.waitStage(request)
	}
	params := dbsqlc.TryLockProcessesParams(request.params())
	return func(ctx context.Context, db DB) error { return s.q.TryLockProcesses(ctx, db, params) }
}

// createdKeys returns the processes that the items of a flush insert, for lockRequest, or nil.
func createdKeys(ops []operation) map[process.Key]bool {
	var created map[process.Key]bool
	insert := func(key process.Key) {
		if created == nil {
			created = map[process.Key]bool{}
		}
		created[key] = true
	}
	for _, op := range ops {
		if creates(op) {
			insert(op.base().key)
		}
		if step, starts := startedStep(op); starts {
			insert(step)
		}
	}
	if created == nil {
		return nil
	}
	for _, op := range ops {
		i := op.base()
		if created[i.key] && !creates(op) {
			created[i.key] = false
		}
		if created[i.also] {
			created[i.also] = false
		}
	}
	return created
}

// lateLocks returns the processes of createdKeys on which other items of the flush act.
func lateLocks(created map[process.Key]bool) []process.Key {
	var late []process.Key
	for key, alone := range created {
		if !alone {
			late = append(late, key)
		}
	}
	return late
}

// sortedKeys returns keys without duplicates in the order in which all transactions lock them.
func sortedKeys(keys []process.Key) []process.Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, process.Key.Compare)
	return slices.Compact(keys)
}
