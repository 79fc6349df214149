package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// The limits of one transaction of TrimHistories.
const (
	trimRestarts = 50
	trimRows     = 200 // at most this many events and this many tasks for each restart
)

// restartItem is an operator's request to restart the history of a process.
type restartItem struct {
	item
	restarted bool
}

// RestartHistory starts a new history of a process, whatever its status. It returns
// process.ErrProcessNotFound if the process does not exist. The old history is no longer visible,
// and TrimHistories deletes it later.
func (s *Store) RestartHistory(key process.Key, by ...process.Actor) error {
	it := &restartItem{item: newItem(key, 100, true)}
	it.noted("RestartHistory", "", by)
	if err := s.submit(it); err != nil {
		return err
	}
	if !it.restarted {
		return process.ErrProcessNotFound
	}
	return nil
}

// restartStages returns the statement that restarts the histories of the items.
func restartStages(s *Store, items []*restartItem) []stage {
	if len(items) == 0 {
		return nil
	}
	var arg dbsqlc.RestartHistoriesParams
	for n, it := range items {
		addRestart(&arg, int32(n), it.key, 0)
	}
	return []stage{func(ctx context.Context, db DB) error {
		ords, err := s.q.RestartHistories(ctx, db, arg)
		for _, it := range items {
			it.restarted = false
		}
		for _, ord := range ords {
			items[ord].restarted = true
		}
		return err
	}}
}

// addRestart adds the restart of a history to arg. token is the fencing token of the attempt whose
// result requests the restart, or 0 if an operator requested it.
func addRestart(arg *dbsqlc.RestartHistoriesParams, ord int32, key process.Key, token int64) {
	arg.Append(dbsqlc.RestartHistoriesItem{Ord: ord, Key: key, FencingToken: token})
}

// TrimHistories deletes one batch of the events and tasks that belong to histories before a
// restart. It returns the number of restarts in the batch, or 0 if nothing is left to delete.
func (s *Store) TrimHistories(ctx context.Context) (int, error) {
	n, err := s.q.TrimHistories(ctx, s.general, dbsqlc.TrimHistoriesParams{Restarts: trimRestarts, Lim: trimRows})
	return int(n), mapped("remove old histories", err)
}
