package jobs

import (
	"context"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// EventCursor parses the cursor of a watch and checks that it belongs to this database cluster. A
// cursor with a later transaction ID would return nothing until the IDs have caught up, and then
// skip events. field is the field of the request, for errors.
func EventCursor(ctx context.Context, s *storage.Store, field, text string) (storage.EventPosition, error) {
	p, err := storage.ParseEventPosition(field, text)
	if err != nil {
		return p, err
	}
	var ahead bool
	err = s.RunSoon(ctx, "watch job events", func(ctx context.Context, db storage.DB) error {
		ahead, err = dbsqlc.New().IsAhead(ctx, db, p.XID)
		return err
	})
	if err != nil {
		return p, err
	}
	if ahead {
		return p, &process.InvalidError{Field: field, Message: fmt.Sprintf(
			"%s is newer than the events of this database, which was restored or replaced: watch from 0.0 for all stored events, or without a cursor", text)}
	}
	return p, nil
}

// EventWatch is a position from which events of a namespace are read.
type EventWatch struct {
	Namespace string
	From      storage.EventPosition
}

// watchedJobEvents is how many events of each watch one query reads.
const watchedJobEvents = 500

// ReadEvents reads the events after each position, in order, up to the point before which no
// more events can be inserted. more reports that some watch has more events.
func ReadEvents(
	ctx context.Context, s *storage.Store, watches []EventWatch,
) (found [][]storage.JobEventRow, more bool, err error) {
	a := dbsqlc.WatchJobEventsParams{Lim: watchedJobEvents}
	for n, w := range watches {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, w.Namespace)
		a.Xids = append(a.Xids, w.From.XID)
		a.EventIds = append(a.EventIds, w.From.EventID)
	}
	var rows []dbsqlc.WatchJobEventsRow
	err = s.RunSoon(ctx, "watch job events", func(ctx context.Context, db storage.DB) error {
		rows, err = dbsqlc.New().WatchJobEvents(ctx, db, a)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	found = make([][]storage.JobEventRow, len(watches))
	for _, r := range rows {
		found[r.Ord] = append(found[r.Ord], storage.JobEventRow{
			Namespace: r.Namespace, XID: r.Xid, EventID: r.EventID, JobID: r.JobID, StepID: r.StepID, Index: r.Index, Type: r.Type,
			FromStatus: r.FromStatus, ToStatus: r.ToStatus, Attempt: r.Attempt, CreatedTime: r.CreatedTime, WorkerID: r.WorkerID, Actor: r.Actor,
			Message: r.Message, Metadata: r.Metadata,
		})
		more = more || len(found[r.Ord]) == watchedJobEvents
	}
	return found, more, nil
}

// EventsFromNow returns the position after all committed events, except those of transactions that
// began before one that is still running.
func EventsFromNow(ctx context.Context, s *storage.Store) (storage.EventPosition, error) {
	var at storage.EventPosition
	err := s.RunSoon(ctx, "watch job events", func(ctx context.Context, db storage.DB) (err error) {
		at.XID, err = dbsqlc.New().EventsFromNow(ctx, db)
		return err
	})
	return at, err
}
