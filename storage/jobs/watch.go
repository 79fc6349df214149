package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// EventCursor is a position in the events of a namespace: the number of the last event of each
// lane. Lanes that are missing have not been read. A cursor belongs to a generation of the
// database, because a failover or a restore may have lost events. It must not be modified.
type EventCursor struct {
	Generation uuid.UUID
	Lanes      map[int64]int64
}

// eventCursorVersion is the first byte of an encoded cursor. Cursors of changes begin with a
// different byte.
const eventCursorVersion = 2

// String encodes the cursor for clients.
func (c EventCursor) String() string {
	return storage.CursorText(eventCursorVersion, c.Generation, c.Lanes)
}

// After returns the cursor after events that follow it.
func (c EventCursor) After(events ...EventRow) EventCursor {
	next := EventCursor{c.Generation, maps.Clone(c.Lanes)}
	for n := range events {
		next.Lanes[events[n].Lane] = events[n].EventID
	}
	return next
}

// allEvents is the cursor before all stored events, for clients that have no cursor.
const allEvents = "0.0"

// ParseEventCursor parses the cursor of a client, which an older engine may have issued. field is
// the field of the request, for errors.
func ParseEventCursor(
	ctx context.Context, s *storage.Store, namespace, field, text string,
) (c EventCursor, err error) {
	if text == allEvents {
		return oldestEvents(ctx, s, namespace)
	}
	if xid, eventID, ok := parsePosition(text); ok {
		return translate(ctx, s, dbsqlc.TranslateEventCursorParams{Namespace: namespace, Xid: xid, EventID: eventID})
	}
	c.Generation, c.Lanes, err = storage.ParseCursor(eventCursorVersion, field, text)
	return c, err
}

// parsePosition parses the cursor of an older engine: a transaction ID and the number of an event.
// Page tokens of lists have the same form.
func parsePosition(text string) (xid string, eventID int64, ok bool) {
	xid, id, _ := strings.Cut(text, ".")
	x, err := strconv.ParseUint(xid, 10, 64)
	eventID, err2 := strconv.ParseInt(id, 10, 64)
	canonical := PageToken(strconv.FormatUint(x, 10), eventID) == text
	return xid, eventID, err == nil && err2 == nil && eventID >= 0 && canonical
}

// PageToken returns the token of the list page after an event. Nodes of older versions use the
// transaction ID. This version uses only the number of the event.
func PageToken(xid string, eventID int64) string { return xid + "." + strconv.FormatInt(eventID, 10) }

// ParsePageToken parses the result of PageToken and returns the number of the event. field is the
// field of the request, for errors.
func ParsePageToken(field, text string) (int64, error) {
	_, eventID, ok := parsePosition(text)
	if !ok {
		return 0, &process.InvalidError{Field: field, Message: "must be the next_page_token of a previous response"}
	}
	return eventID, nil
}

// translate returns the position of a cursor from an older engine. A watch that begins there gets
// all events after the cursor, and may get some earlier ones again.
func translate(
	ctx context.Context, s *storage.Store, cursor dbsqlc.TranslateEventCursorParams,
) (EventCursor, error) {
	c := EventCursor{Lanes: map[int64]int64{}}
	rows, err := storage.Query(ctx, s.RunReserved, "watch job events", dbsqlc.New().TranslateEventCursor, cursor)
	if err != nil {
		return c, err
	}
	for _, r := range rows {
		if r.IsAhead {
			lost, err := lostEvents(ctx, s, cursor.Namespace, "the database was restored or replaced since")
			return c, cmp.Or(err, lost)
		}
		c.Generation = r.Generation
		c.set(r.Lane, r.EventID)
	}
	return c, nil
}

// set sets the position in a lane. A lane from which nothing was read is missing.
func (c *EventCursor) set(lane, eventID int64) {
	if eventID > 0 {
		c.Lanes[lane] = eventID
	}
}

// EventsFromNow returns the cursor after all committed events of a namespace.
func EventsFromNow(ctx context.Context, s *storage.Store, namespace string) (EventCursor, error) {
	now, _, err := eventHeads(ctx, s, namespace)
	return now, err
}

// oldestEvents returns the cursor before the oldest event that was not deleted.
func oldestEvents(ctx context.Context, s *storage.Store, namespace string) (EventCursor, error) {
	_, oldest, err := eventHeads(ctx, s, namespace)
	return oldest, err
}

func eventHeads(ctx context.Context, s *storage.Store, namespace string) (now, oldest EventCursor, err error) {
	now, oldest = EventCursor{Lanes: map[int64]int64{}}, EventCursor{Lanes: map[int64]int64{}}
	rows, err := storage.Query(ctx, s.RunReserved, "watch job events", dbsqlc.New().ReadJobEventHeads, namespace)
	for _, r := range rows {
		now.Generation, oldest.Generation = r.Generation, r.Generation
		now.set(r.Lane, r.EventID)
		oldest.set(r.Lane, r.DeletedID)
	}
	return now, oldest, err
}

// EventWatch is a position from which events of a namespace are read.
type EventWatch struct {
	Namespace string
	From      EventCursor
}

// EventsRead has the events after the position of a watch. The events of a job are in order. If
// events after the position were deleted, or the position belongs to another database, Lost is a
// *process.CursorError.
type EventsRead struct {
	Events []EventRow
	Lost   error
}

// watchedJobEvents is the maximum number of events of each watch that one query reads.
const watchedJobEvents = 500

// ReadEvents reads the events after the position of each watch. more reports whether some watch may
// have more events.
func ReadEvents(
	ctx context.Context, s *storage.Store, watches []EventWatch,
) (found []EventsRead, more bool, err error) {
	a := dbsqlc.WatchJobEventsParams{Lim: watchedJobEvents}
	for n, w := range watches {
		position, err := json.Marshal(w.From.Lanes)
		if err != nil {
			return nil, false, err
		}
		a.Append(dbsqlc.WatchJobEventsItem{Ord: int32(n), Namespace: w.Namespace, Position: string(position)})
	}
	rows, err := storage.Query(ctx, s.RunReserved, "watch job events", dbsqlc.New().WatchJobEvents, a)
	if err == nil && len(rows) == 0 && len(watches) > 0 {
		err = errors.New("watch job events: table database_generation has no row")
	}
	if err != nil {
		return nil, false, err
	}
	found = make([]EventsRead, len(watches))
	for n := range rows {
		r := &rows[n]
		read, reason := &found[r.Ord], ""
		switch {
		case read.Lost != nil:
		case r.Generation != watches[r.Ord].From.Generation:
			reason = "the database failed over or was restored since, which may have lost events"
		case r.Lost:
			reason = "events after it were deleted, because their retention is over"
		case r.EventID > 0:
			read.Events = append(read.Events, eventRow(r))
			more = more || len(read.Events) == watchedJobEvents
		}
		if reason == "" {
			continue
		}
		if read.Lost, err = lostEvents(ctx, s, r.Namespace, reason); err != nil {
			return nil, false, err
		}
	}
	return found, more, nil
}

func eventRow(r *dbsqlc.WatchJobEventsRow) EventRow {
	return EventRow{
		Namespace: r.Namespace, Lane: r.Lane, EventID: r.EventID, JobID: r.JobID, OfRun: r.OfRun, StepID: r.StepID,
		Index: r.Index, Type: r.Type, FromStatus: r.FromStatus, ToStatus: r.ToStatus, Attempt: r.Attempt,
		CreatedTime: r.CreatedTime, WorkerID: r.WorkerID, Actor: r.Actor, Message: r.Message, Metadata: r.Metadata,
	}
}

// lostEvents returns the error of a cursor from which a watch cannot continue.
func lostEvents(ctx context.Context, s *storage.Store, namespace, reason string) (lost, err error) {
	oldest, err := oldestEvents(ctx, s, namespace)
	return &process.CursorError{Field: "cursor", Message: reason, Oldest: oldest.String()}, err
}
