package storage

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// JobEventRow is a row of job_events.
type JobEventRow struct {
	Namespace            string
	XID                  string `db:"xid"`
	EventID              int64
	JobID                string
	StepID               string
	Index                int32 // -1 if there is none
	Type                 string
	FromStatus, ToStatus string
	Attempt              int32
	CreatedTime          time.Time
	WorkerID             string
	Actor                string
	Message              string
	Metadata             []byte // JSON object, or nil
}

// JobEventColumns are the columns of a JobEventRow, from a row a of job_events.
const JobEventColumns = `a.namespace, a.xid::text AS xid, a.event_id, a.job_id, coalesce(a.step_id, '') AS step_id, coalesce(a.index, -1) AS index, a.type,
       coalesce(a.from_status, '') AS from_status, coalesce(a.to_status, '') AS to_status, a.attempt, a.created_time, coalesce(a.worker_id, '') AS worker_id,
       coalesce(a.actor, '') AS actor, coalesce(a.message, '') AS message, a.metadata`

// Position returns the position of the event in the order of a watch.
func (e *JobEventRow) Position() EventPosition { return EventPosition{e.XID, e.EventID} }

// EventPosition is a position in the order of a watch: after one of the events of a namespace.
type EventPosition struct {
	XID     string // a decimal number
	EventID int64
}

// LastEvent is the position after all events.
var LastEvent = EventPosition{strconv.FormatUint(math.MaxUint64, 10), math.MaxInt64}

// String returns the position in the form for clients.
func (p EventPosition) String() string { return p.XID + "." + strconv.FormatInt(p.EventID, 10) }

// ParseEventPosition parses the result of String. field is the field of the request, for errors.
func ParseEventPosition(field, text string) (EventPosition, error) {
	xid, id, _ := strings.Cut(text, ".")
	x, err := strconv.ParseUint(xid, 10, 64)
	n, err2 := strconv.ParseInt(id, 10, 64)
	p := EventPosition{xid, n}
	if err != nil || err2 != nil || n < 0 || strconv.FormatUint(x, 10)+"."+strconv.FormatInt(n, 10) != text {
		return p, &process.InvalidError{Field: field, Message: "must be a cursor of a previous response"}
	}
	return p, nil
}

// EventCursor parses the cursor of a watch and checks that it belongs to this database cluster. A
// cursor with a later transaction ID would return nothing until the IDs have caught up, and then
// skip events. field is the field of the request, for errors.
func (s *Store) EventCursor(ctx context.Context, field, text string) (EventPosition, error) {
	p, err := ParseEventPosition(field, text)
	if err != nil {
		return p, err
	}
	ahead, err := s.q.IsAhead(ctx, s.kept, p.XID)
	if err != nil {
		return p, mapped("watch job events", err)
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
	From      EventPosition
}

// watchedJobEvents is how many events of each watch one query reads.
const watchedJobEvents = 500

// ReadJobEvents reads the events after each position, in order, up to the point before which no
// more events can be inserted. more reports that some watch has more events.
func (s *Store) ReadJobEvents(ctx context.Context, watches []EventWatch) (found [][]JobEventRow, more bool, err error) {
	a := dbsqlc.WatchJobEventsParams{Lim: watchedJobEvents}
	for n, w := range watches {
		a.Ords = append(a.Ords, int32(n))
		a.Namespaces = append(a.Namespaces, w.Namespace)
		a.Xids = append(a.Xids, w.From.XID)
		a.EventIds = append(a.EventIds, w.From.EventID)
	}
	rows, err := s.q.WatchJobEvents(ctx, s.kept, a)
	if err != nil {
		return nil, false, mapped("watch job events", err)
	}
	found = make([][]JobEventRow, len(watches))
	for _, r := range rows {
		found[r.Ord] = append(found[r.Ord], JobEventRow{
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
func (s *Store) EventsFromNow(ctx context.Context) (EventPosition, error) {
	xid, err := s.q.EventsFromNow(ctx, s.kept)
	return EventPosition{xid, 0}, mapped("watch job events", err)
}

// forgetEvents is how many events of a namespace one transaction deletes.
const forgetEvents = 5000

// ForgetJobEvents deletes events whose retention is over. more reports that there may be more.
func (s *Store) ForgetJobEvents(ctx context.Context, retention map[string]time.Duration) (more bool, err error) {
	if len(retention) == 0 {
		return false, nil
	}
	a := dbsqlc.ForgetJobEventsParams{Lim: forgetEvents}
	for namespace, keep := range retention {
		a.Namespaces = append(a.Namespaces, namespace)
		a.RetentionsUs = append(a.RetentionsUs, keep.Microseconds())
	}
	n, err := s.q.ForgetJobEvents(ctx, s.general, a)
	if err != nil {
		return false, mapped("delete old job events", fmt.Errorf("of %d namespaces: %w", len(retention), err))
	}
	return n >= forgetEvents, nil
}
