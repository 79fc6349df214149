package jobs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Event is a row of job_events: an event of a job, a run or a step. As an effect it belongs to
// the process of its result. In the Effects of a Completion it is stored if the result applies. In
// EffectsOnEnd it is stored for any outcome, except for an attempt that this node repeats at once
// (Retry with Promote and without RetryAfter), because that leaves no row with its token. Events
// that the namespace does not keep are not stored. The events of a Completion are stored in their
// order.
type Event struct {
	RunID    string // run of the event; "" for an event of the job whose result contains it
	StepID   string // "" for the job or run itself
	Index    *int32 // only for a step that runs once per item
	Type     string // as listed in docs/jobs.md
	From, To string // statuses in lower case, or ""
	Message  string
	Metadata []byte // JSON object, or nil
	Attempt  int32
	WorkerID string
	Actor    string // who requested it; "" for the engine
	EndsJob  bool   // the job or run ends with it, so that EventsEnds keeps it
}

// Bytes implements storage.Effect.
func (e *Event) Bytes() int {
	return 300 + len(e.RunID) + len(e.StepID) + len(e.Message) + len(e.Metadata) + len(e.WorkerID) + len(e.Actor)
}

// Batch implements storage.Effect.
func (*Event) Batch() string { return "WriteJobEvents" }

// StoredIn implements storage.ModalEffect.
func (e *Event) StoredIn(mode storage.EventMode) bool {
	return mode == storage.EventsAll || mode == storage.EventsEnds && e.EndsJob
}

// Write implements storage.Effect.
func (*Event) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteJobEventsParams
	attempts, ords := storage.AttemptsOf(all)
	for n, r := range attempts {
		a.AppendAttempt(dbsqlc.WriteJobEventsAttempt{
			Ord: int32(n), Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken,
		})
	}
	for n, r := range all {
		e := r.Effect.(*Event)
		index := int32(-1)
		if e.Index != nil {
			index = *e.Index
		}
		a.Append(dbsqlc.WriteJobEventsItem{
			Ord: ords[n], Namespace: r.Key.Namespace, JobID: cmp.Or(e.RunID, r.Key.ProcessID),
			OfRun: e.RunID != "", StepID: e.StepID, Index: index, Type: e.Type, FromStatus: e.From,
			ToStatus: e.To, Attempt: e.Attempt, WorkerID: e.WorkerID, Actor: e.Actor,
			Message: e.Message, Metadata: string(e.Metadata),
		})
	}
	return dbsqlc.New().WriteJobEvents(ctx, db, a)
}

// EventRow is a row of job_events.
type EventRow struct {
	Namespace            string
	XID                  string `db:"xid"`
	EventID              int64
	JobID                string // or the ID of the run
	OfRun                bool   // it is about a run or one of its steps
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

// EventColumns contains the columns of an EventRow, from a row a of job_events.
const EventColumns = `a.namespace, a.xid::text AS xid, a.event_id, a.job_id,
       coalesce(a.step_id, '') AS step_id, coalesce(a.index, -1) AS index, a.type,
       coalesce(a.from_status, '') AS from_status, coalesce(a.to_status, '') AS to_status,
       a.attempt, a.created_time, coalesce(a.worker_id, '') AS worker_id,
       coalesce(a.actor, '') AS actor, coalesce(a.message, '') AS message, a.metadata,
       coalesce(a.of_run, a.step_id IS NOT NULL) AS of_run`

// Position returns the position of the event in the order of a watch.
func (e *EventRow) Position() EventPosition { return EventPosition{e.XID, e.EventID} }

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
func EventCursor(ctx context.Context, s *storage.Store, field, text string) (EventPosition, error) {
	p, err := ParseEventPosition(field, text)
	if err != nil {
		return p, err
	}
	ahead, err := storage.Query(ctx, s.RunSoon, "watch job events", dbsqlc.New().IsAhead, p.XID)
	if err != nil {
		return p, err
	}
	if ahead {
		return p, &process.InvalidError{Field: field, Message: fmt.Sprintf(
			"%s is newer than the events of this database, which was restored or replaced: watch from 0.0 for all "+
				"stored events, or without a cursor", text)}
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

// ReadEvents reads the events after each position, in order. It stops before events of transactions
// that may still insert earlier ones. more reports that there are more events for some watch.
func ReadEvents(
	ctx context.Context, s *storage.Store, watches []EventWatch,
) (found [][]EventRow, more bool, err error) {
	a := dbsqlc.WatchJobEventsParams{Lim: watchedJobEvents}
	for n, w := range watches {
		a.Append(dbsqlc.WatchJobEventsItem{
			Ord: int32(n), Namespace: w.Namespace, Xid: w.From.XID, EventID: w.From.EventID,
		})
	}
	rows, err := storage.Query(ctx, s.RunSoon, "watch job events", dbsqlc.New().WatchJobEvents, a)
	if err != nil {
		return nil, false, err
	}
	found = make([][]EventRow, len(watches))
	for _, r := range rows {
		found[r.Ord] = append(found[r.Ord], EventRow{
			Namespace: r.Namespace, XID: r.Xid, EventID: r.EventID, JobID: r.JobID, StepID: r.StepID, Index: r.Index,
			Type:       r.Type,
			FromStatus: r.FromStatus, ToStatus: r.ToStatus, Attempt: r.Attempt, CreatedTime: r.CreatedTime,
			WorkerID: r.WorkerID, Actor: r.Actor,
			Message: r.Message, Metadata: r.Metadata, OfRun: r.OfRun,
		})
		more = more || len(found[r.Ord]) == watchedJobEvents
	}
	return found, more, nil
}

// EventsFromNow returns the position after all committed events, except those of transactions that
// began before one that is still running.
func EventsFromNow(ctx context.Context, s *storage.Store) (EventPosition, error) {
	var at EventPosition
	err := s.RunSoon(ctx, "watch job events", func(ctx context.Context, db storage.DB) (err error) {
		at.XID, err = dbsqlc.New().EventsFromNow(ctx, db)
		return err
	})
	return at, err
}

// forgetEvents is how many events of a namespace one transaction deletes.
const forgetEvents = 5000

// ForgetEvents deletes events whose retention is over. more reports that there may be more.
func ForgetEvents(ctx context.Context, s *storage.Store, retention map[string]time.Duration) (more bool, err error) {
	if len(retention) == 0 {
		return false, nil
	}
	a := dbsqlc.ForgetJobEventsParams{Lim: forgetEvents}
	for namespace, keep := range retention {
		a.Append(dbsqlc.ForgetJobEventsItem{Namespace: namespace, RetentionUs: keep.Microseconds()})
	}
	err = s.Write(ctx, "delete old job events", func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().ForgetJobEvents(ctx, db, a)
		more = n >= forgetEvents
		return err
	})
	return more, err
}
