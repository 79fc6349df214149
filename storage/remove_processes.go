package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// purgeBatch limits the events, the tasks and the waiting tasks of removed processes that one
// transaction deletes, so that large removals do not block others. The processes have equal shares
// of this limit, but at least 20 each.
const purgeBatch = 1000

type removeItem struct {
	item
	completion *Completion // nil if an operator requested it
	only       removable
	removed    bool
}

// removable selects the processes that a removeItem may remove.
type removable int

const (
	anyStatus   removable = iota
	onlyEnded             // COMPLETED or CANCELLED, or a FAILED job
	onlyStopped           // neither INIT nor RUNNING
)

// saveRemoval stores a result that removes the process.
func (s *Store) saveRemoval(c *Completion) (Saved, error) {
	it := &removeItem{item: newItem(c.Key, c.bytes(), true), completion: c}
	err := s.submit(it)
	s.callQueues.removed(c.Key)
	if err != nil {
		return Saved{}, err
	}
	return Saved{TimerDelay: -1}, nil
}

// RemoveProcess removes a process in any status at once. Its running task is fenced, and its
// waiting tasks are deleted. RemoveProcess returns when all of the history is deleted. It returns
// process.ErrProcessNotFound if the process does not exist.
func (s *Store) RemoveProcess(ctx context.Context, key process.Key, by ...process.Actor) error {
	it := &removeItem{item: newItem(key, 100, true)}
	it.noted("RemoveProcess", "", by)
	if err := s.submit(it); err != nil {
		return err
	}
	if !it.removed && !it.repeated { // the first try may have removed the process
		return process.ErrProcessNotFound
	}
	return s.purgeAll(ctx, []process.Key{key})
}

// RemoveEnded removes a process that is COMPLETED or CANCELLED, or a FAILED job, as RemoveProcess
// does. It reports whether there was such a process.
func (s *Store) RemoveEnded(
	ctx context.Context, key process.Key, method string, by process.Actor,
) (removed bool, err error) {
	it := &removeItem{item: newItem(key, 100, true), only: onlyEnded}
	it.noted(method, "", []process.Actor{by})
	if err := s.submit(it); err != nil {
		return false, err
	}
	if !it.removed && it.repeated { // the first try may have removed it
		_, err := s.GetProcess(ctx, key)
		it.removed = errors.Is(err, process.ErrProcessNotFound)
	}
	if !it.removed {
		return false, nil
	}
	return true, s.purgeAll(ctx, []process.Key{key})
}

// RemoveProcesses removes processes as RemoveProcess does. Those that do not exist are ignored.
func (s *Store) RemoveProcesses(ctx context.Context, keys []process.Key) error {
	_, err := s.removeAll(ctx, keys, anyStatus)
	return err
}

// RemoveStopped removes the processes that are neither INIT nor RUNNING, and returns their keys.
func (s *Store) RemoveStopped(ctx context.Context, keys []process.Key) (removed []process.Key, err error) {
	return s.removeAll(ctx, keys, onlyStopped)
}

func (s *Store) removeAll(ctx context.Context, keys []process.Key, only removable) (removed []process.Key, err error) {
	errs, items := make([]error, len(keys)), make([]*removeItem, len(keys))
	var removals sync.WaitGroup
	for n, key := range keys {
		items[n] = &removeItem{item: newItem(key, 100, true), only: only}
		removals.Go(func() { errs[n] = s.submit(items[n]) })
	}
	removals.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for n, it := range items {
		if it.removed {
			removed = append(removed, keys[n])
		}
	}
	return removed, s.purgeAll(ctx, keys)
}

// purgeAll deletes the rest of the histories of removed processes.
func (s *Store) purgeAll(ctx context.Context, keys []process.Key) error {
	for {
		more, err := s.purge(ctx, keys)
		if err != nil || !more {
			return err
		}
	}
}

func removeStages(s *Store, items []*removeItem) []stage {
	if len(items) == 0 {
		return nil
	}
	arg := dbsqlc.RemoveProcessesParams{Lim: queueLimit(len(items))}
	for n, it := range items {
		c := it.completion
		if c == nil {
			c = &Completion{}
		}
		dropped := ""
		if c.Outcome == Rejected {
			dropped = c.IdempotencyKey
		}
		// The scope of the key is the process, or the namespace if the engine chose the process ID.
		// Without a key both are zero.
		arg.Append(dbsqlc.RemoveProcessesItem{
			Ord: int32(n), Key: it.key, FencingToken: c.FencingToken, Response: c.Response,
			Rejection:   string(c.Rejection),
			Dropped:     process.RequestID(it.key.Namespace, it.key.ProcessID, dropped),
			OpenDropped: process.RequestID(it.key.Namespace, "", dropped), Actor: it.actor(),
			Mode: s.EventModeOf(it.key.Namespace), OnlyEnded: it.only == onlyEnded,
			OnlyStopped: it.only == onlyStopped,
		})
	}
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

// purgeStages deletes the first batch of the histories, and the processes whose history is
// completely deleted.
func purgeStages(s *Store, items []*removeItem) []stage {
	if len(items) == 0 {
		return nil
	}
	keys := make([]process.Key, len(items))
	for n, it := range items {
		keys[n] = it.key
	}
	first := purge{store: s, keys: keys, progress: make([]purgeProgress, len(keys))}
	return []stage{first.deleteHistory, s.deleteStage(keys)}
}

// purgeProgress is the progress of deleting the history of one process. Rows up to these IDs were
// deleted, and some failed attempts of the task failedID. If the process is a run, the steps before
// stepID and the items of stepID up to index were deleted.
type purgeProgress struct {
	eventID, taskID, waitingID, failedID int64
	stepID                               string
	index                                int32
}

// purges holds the progress of the purges on this node. If it is lost, the next batch starts at the
// beginning of the history and reads the dead rows there.
type purges struct {
	mu       sync.Mutex
	progress map[process.Key]purgeProgress
}

func (p *purges) of(keys []process.Key) []purgeProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	progress := make([]purgeProgress, len(keys))
	for n, key := range keys {
		progress[n] = p.progress[key]
	}
	return progress
}

// update stores the progress of the unfinished keys and drops the progress of the others.
func (p *purges) update(keys []process.Key, progress []purgeProgress, unfinished map[process.Key]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.progress == nil {
		p.progress = map[process.Key]purgeProgress{}
	}
	for n, key := range keys {
		if unfinished[key] {
			p.progress[key] = progress[n]
		} else {
			delete(p.progress, key)
		}
	}
}

// purge is one batch of deletions from the histories of removed processes.
type purge struct {
	store      *Store
	keys       []process.Key
	progress   []purgeProgress
	deleted    int64
	unfinished map[process.Key]bool // keys for which a table returned a full batch, so that there may be more rows
}

func (p *purge) deleteHistory(ctx context.Context, db DB) error {
	arg := dbsqlc.PurgeHistoryParams{Lim: int32(max(purgeBatch/len(p.keys), 20))}
	positions := make(map[process.Key]int, len(p.keys))
	for n, key := range p.keys {
		positions[key] = n
		arg.Append(dbsqlc.PurgeHistoryItem{
			Key: key, AfterEventID: p.progress[n].eventID, AfterTaskID: p.progress[n].taskID,
			AfterWaitingID: p.progress[n].waitingID, AfterFailedID: p.progress[n].failedID,
			AfterStepID: p.progress[n].stepID, AfterIndex: p.progress[n].index,
		})
	}
	rows, err := p.store.q.PurgeHistory(ctx, db, arg)
	if err != nil {
		return err
	}
	p.deleted, p.unfinished = 0, map[process.Key]bool{}
	for _, r := range rows {
		key := process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}
		p.progress[positions[key]] = purgeProgress{
			r.LastEventID, r.LastTaskID, r.LastWaitingID, r.LastFailedID, r.LastStepID, r.LastIndex,
		}
		p.deleted += r.Deleted
		if r.Largest >= int64(arg.Lim) {
			p.unfinished[key] = true
		}
	}
	return nil
}

func (s *Store) deleteStage(keys []process.Key) stage {
	params := keysParamsOf(keys)
	return func(ctx context.Context, db DB) error {
		return s.q.DeleteRemoved(ctx, db, dbsqlc.DeleteRemovedParams{
			Namespaces: params.namespaces, ProcessIds: params.processIDs,
		})
	}
}

// purge deletes one batch of the history of removed processes, in its own transaction, and then the
// processes whose history is completely deleted. more is true if there may be more.
func (s *Store) purge(ctx context.Context, keys []process.Key) (more bool, err error) {
	conn, err := s.slow.Acquire(ctx)
	if err != nil {
		return false, mapped("remove", err)
	}
	defer conn.Release()
	p := purge{store: s, keys: keys, progress: s.purges.of(keys)}
	err = pipeline(ctx, conn.Conn(), []stage{s.lockStage(keys), p.deleteHistory})
	if err != nil {
		return false, mapped(fmt.Sprintf("remove %v", keys), err)
	}
	s.purges.update(keys, p.progress, p.unfinished)
	finished := slices.DeleteFunc(slices.Clone(keys), func(key process.Key) bool { return p.unfinished[key] })
	if len(finished) == 0 {
		return true, nil
	}
	if err := pipeline(ctx, conn.Conn(), []stage{s.lockStage(finished), s.deleteStage(finished)}); err != nil {
		return false, mapped(fmt.Sprintf("remove %v", finished), err)
	}
	return p.deleted > 0, nil
}

// PurgeRemoved deletes one batch of the histories of removed processes, such as those that Expire
// has removed and those whose removal another node has left unfinished. It returns the number of
// processes in the batch.
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
