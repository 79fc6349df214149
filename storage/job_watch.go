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
	Index                int32 // -1: none
	Type                 string
	FromStatus, ToStatus string
	Attempt              int32
	CreatedTime          time.Time
	WorkerID             string
	Actor                string
	Message              string
	Metadata             []byte // JSON object; nil: none
}

// JobEventColumns are those of a JobEventRow, of a row a of job_events.
const JobEventColumns = `a.namespace, a.xid::text AS xid, a.event_id, a.job_id, coalesce(a.step_id, '') AS step_id, coalesce(a.index, -1) AS index, a.type,
       coalesce(a.from_status, '') AS from_status, coalesce(a.to_status, '') AS to_status, a.attempt, a.created_time, coalesce(a.worker_id, '') AS worker_id,
       coalesce(a.actor, '') AS actor, coalesce(a.message, '') AS message, a.metadata`

// Position is where the event stands in the order of a watch.
func (e *JobEventRow) Position() EventPosition { return EventPosition{e.XID, e.EventID} }

// EventPosition is a place in the order of a watch: behind one of the events of a namespace.
type EventPosition struct {
	XID     string // a number
	EventID int64
}

// LastEvent is behind all events.
var LastEvent = EventPosition{strconv.FormatUint(math.MaxUint64, 10), math.MaxInt64}

// String is the position as clients have it.
func (p EventPosition) String() string { return p.XID + "." + strconv.FormatInt(p.EventID, 10) }

// ParseEventPosition reads what String has made. field is the field of the request, for errors.
func ParseEventPosition(field, text string) (EventPosition, error) {
	xid, id, _ := strings.Cut(text, ".")
	x, err := strconv.ParseUint(xid, 10, 64)
	n, err2 := strconv.ParseInt(id, 10, 64)
	p := EventPosition{xid, n}
	if err != nil || err2 != nil || n < 0 || strconv.FormatUint(x, 10)+"."+strconv.FormatInt(n, 10) != text {
		return p, &process.InvalidError{Field: field, Message: "it is not of the events of jobs"}
	}
	return p, nil
}

// EventCursor reads the cursor of a watch, which has to be of this cluster: whoever went on from one of a later time would wait for ever, or until
// the numbers of transactions had caught up, and then miss what came meanwhile. field is the field of the request, for errors.
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
			"%s is ahead of the events of this database: it was restored to an earlier time, or is another one; watch from 0.0, which brings all events that are kept, or without a cursor", text)}
	}
	return p, nil
}

// EventWatch is a place from which events of a namespace are read.
type EventWatch struct {
	Namespace string
	From      EventPosition
}

// watchedJobEvents is how many events of one place one look reads.
const watchedJobEvents = 500

// ReadJobEvents reads what follows each place, in order, as far as nothing can come between any more. more: of some place there is more to read.
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

// EventsFromNow is the place behind all events that are committed, but for those of transactions that began before one which still runs.
func (s *Store) EventsFromNow(ctx context.Context) (EventPosition, error) {
	xid, err := s.q.EventsFromNow(ctx, s.kept)
	return EventPosition{xid, 0}, mapped("watch job events", err)
}

// forgetEvents is how many events of a namespace one transaction drops.
const forgetEvents = 5000

// ForgetJobEvents drops events that their namespaces keep no longer. more: there may be more of them.
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
		return false, mapped("forget job events", fmt.Errorf("of %d namespaces: %w", len(retention), err))
	}
	return n >= forgetEvents, nil
}
