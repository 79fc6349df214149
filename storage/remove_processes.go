package storage

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// purgeBatch is how many events, tasks and waiting tasks of a removed process one transaction deletes: a removal of any size holds nothing up.
const purgeBatch = 1000

type removeItem struct {
	item
	completion *Completion // nil: asked for by an operator
	removed    bool
}

// saveRemoval stores a result with which the process goes.
func (s *Store) saveRemoval(c *Completion) (Saved, error) {
	it := &removeItem{item: newItem(c.Key, c.bytes(), true), completion: c}
	err := s.submit(it)
	s.callQueues.gone(c.Key)
	if err != nil {
		return Saved{}, err
	}
	return Saved{TimerDelay: -1}, nil
}

// RemoveProcess removes a process in whatever status, at once: what runs is fenced off, what waits is cancelled. It returns
// when the last of its history is deleted.
func (s *Store) RemoveProcess(ctx context.Context, key process.Key, by ...process.Actor) error {
	it := &removeItem{item: newItem(key, 100, true)}
	it.noted("RemoveProcess", "", by)
	if err := s.submit(it); err != nil {
		return err
	}
	if !it.removed && !it.repeated { // a process that a repeated item does not find may be its work
		return process.ErrProcessNotFound
	}
	for {
		more, err := s.purge(ctx, []process.Key{key})
		if err != nil || !more {
			return err
		}
	}
}

func removeStages(s *Store, items []*removeItem) []stage {
	if len(items) == 0 {
		return nil
	}
	var arg dbsqlc.RemoveProcessesParams
	for n, it := range items {
		c := it.completion
		if c == nil {
			c = &Completion{}
		}
		arg.Ords = append(arg.Ords, int32(n)) //nolint:gosec // at most maxFlushItems
		arg.Namespaces = append(arg.Namespaces, it.key.Namespace)
		arg.ProcessIds = append(arg.ProcessIds, it.key.ProcessID)
		arg.FencingTokens = append(arg.FencingTokens, c.FencingToken)
		arg.Responses = append(arg.Responses, c.Response)
		arg.Rejections = append(arg.Rejections, string(c.Rejection))
		dropped := ""
		if c.Outcome == Rejected {
			dropped = c.IdempotencyKey
		}
		// The key's scope is the process, or the namespace where the engine chose the id. Without a key both are zero.
		arg.Dropped = append(arg.Dropped, process.RequestID(it.key.Namespace, it.key.ProcessID, dropped))
		arg.OpenDropped = append(arg.OpenDropped, process.RequestID(it.key.Namespace, "", dropped))
		arg.Actors = append(arg.Actors, it.actor())
	}
	arg.Modes, arg.Lim = s.eventModes(arg.Namespaces), queueLimit(len(items))
	return []stage{
		func(ctx context.Context, db DB) error {
			ords, err := s.q.RemoveProcesses(ctx, db, arg)
			if err != nil {
				return err
			}
			for _, it := range items {
				it.removed = false
				if it.completion != nil {
					it.err = process.ErrFenced
				}
			}
			for _, ord := range ords {
				items[ord].removed, items[ord].err = true, nil
			}
			return nil
		},
	}
}

// purgeStages delete the first batch of the histories, and the processes whose history is gone with it.
func purgeStages(s *Store, items []*removeItem) []stage {
	if len(items) == 0 {
		return nil
	}
	var keys keysParams
	for _, it := range items {
		keys.add(it.key)
	}
	return []stage{s.purgeStage(keys, nil), s.deleteStage(keys)}
}

func (s *Store) purgeStage(keys keysParams, deleted *int64) stage {
	return func(ctx context.Context, db DB) error {
		n, err := s.q.PurgeHistory(ctx, db, dbsqlc.PurgeHistoryParams{Namespaces: keys.namespaces, ProcessIds: keys.processIDs, Lim: int32(max(purgeBatch/len(keys.processIDs), 20))}) //nolint:gosec // at most purgeBatch
		if deleted != nil {
			*deleted = n
		}
		return err
	}
}

func (s *Store) deleteStage(keys keysParams) stage {
	return func(ctx context.Context, db DB) error {
		return s.q.DeleteRemoved(ctx, db, dbsqlc.DeleteRemovedParams{Namespaces: keys.namespaces, ProcessIds: keys.processIDs})
	}
}

// purge deletes one batch of the history of removed processes, in a transaction of its own.
func (s *Store) purge(ctx context.Context, keys []process.Key) (more bool, err error) {
	params := keysParamsOf(keys)
	conn, err := s.general.Acquire(ctx)
	if err != nil {
		return false, mapped("remove", err)
	}
	defer conn.Release()
	var deleted int64
	err = pipeline(ctx, conn.Conn(), []stage{s.lockStage(keys), s.purgeStage(params, &deleted), s.deleteStage(params)})
	if err != nil {
		return false, mapped(fmt.Sprintf("remove %v", keys), err)
	}
	return deleted > 0, nil
}

// PurgeRemoved goes on with removals that a node left behind, and tells how many processes there were.
func (s *Store) PurgeRemoved(ctx context.Context) (int, error) {
	rows, err := s.q.ListRemoved(ctx, s.general, 100)
	if err != nil {
		return 0, mapped("list removed", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	if _, err := s.purge(ctx, keysOf(rows)); err != nil {
		return 0, err
	}
	return len(rows), nil
}
