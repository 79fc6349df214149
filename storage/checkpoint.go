package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Checkpointed is the result of storing a checkpoint.
type Checkpointed struct {
	Now   time.Time // time of events without a timestamp; zero if the events were stored before
	Yield bool      // the process is cancelled or suspended, or another of its tasks waits
}

// checkpointItem is a checkpoint in a lane. Only the attempt, events, state and metadata of its
// completion are stored.
type checkpointItem struct {
	item
	completion *Completion
	saved      Checkpointed
}

// SaveCheckpoint stores the events, state and metadata of an attempt that continues, under its
// fencing token. It returns when they are durable. The error is process.ErrFenced if the attempt
// has ended, and a *process.InvalidError if c.LastEventID is not the last event of the process. If
// the error is process.ErrUnavailable, it is unknown whether the checkpoint is stored. There must
// be at least one event.
//
// If Now of the result is zero, the process already had as many additional events as c. The
// checkpoint was then probably sent again, but only the caller knows whether the stored events are
// its own.
func (s *Store) SaveCheckpoint(c *Completion) (Checkpointed, error) {
	it := &checkpointItem{item: newItem(c.Key, c.bytes(), true), completion: c}
	err := s.submit(it)
	return it.saved, err
}

func checkpointStages(s *Store, items []*checkpointItem) []stage {
	if len(items) == 0 {
		return nil
	}
	var arg dbsqlc.CheckpointParams
	for n, it := range items {
		c := it.completion
		arg.Append(dbsqlc.CheckpointItem{
			Ord: int32(n), Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken, AuxState: c.AuxState,
			Metadata: string(c.Metadata), LastEventID: c.LastEventID, EventCount: int32(len(c.Events)),
		})
		for e := range c.Events {
			arg.AppendEvent(dbsqlc.CheckpointEvent(c.eventRow(int32(n), e)))
		}
	}
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := s.q.Checkpoint(ctx, db, arg)
		if err != nil {
			return err
		}
		for _, it := range items {
			it.saved, it.err = Checkpointed{}, process.ErrFenced
		}
		for _, r := range rows {
			items[r.Ord].stored(&r)
		}
		return nil
	}}
}

// stored records the row of an attempt that still runs.
func (it *checkpointItem) stored(r *dbsqlc.CheckpointRow) {
	c := it.completion
	switch r.StoredEventID {
	case c.LastEventID:
		it.saved, it.err = Checkpointed{Now: r.Now, Yield: r.Yield}, nil
	case c.LastEventID + int64(len(c.Events)): // stored by the first try, whose response was lost
		it.saved, it.err = Checkpointed{Yield: r.Yield}, nil
	default:
		it.err = &process.InvalidError{Field: "last_event_id", Message: fmt.Sprintf(
			"must be %d, the last event of the process (got %d)", r.StoredEventID, c.LastEventID)}
	}
}
