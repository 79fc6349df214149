package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Event is a row of job_events: an event of a job, a run or a step. As an effect it belongs to the
// process of its result. In the Effects of a Completion it is stored if the result applies. In
// EffectsOnEnd it is stored for any outcome, with one exception: an attempt that this node repeats
// at once (Retry with Promote and without RetryAfter) leaves no row with its token. Events that the
// namespace does not keep are not stored. The events of a Completion are stored in order.
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
	Actor    string // who requested the change; "" for the engine
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
	XID                  string `db:"xid"` // only in pages of search.ListEvents
	Lane                 int64
	EventID              int64
	JobID                string // ID of the job or the run
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
const EventColumns = `a.namespace, a.xid::text AS xid, a.lane, a.event_id, a.job_id,
       coalesce(a.step_id, '') AS step_id, coalesce(a.index, -1) AS index, a.type,
       coalesce(a.from_status, '') AS from_status, coalesce(a.to_status, '') AS to_status,
       a.attempt, a.created_time, coalesce(a.worker_id, '') AS worker_id,
       coalesce(a.actor, '') AS actor, coalesce(a.message, '') AS message, a.metadata,
       coalesce(a.of_run, a.step_id IS NOT NULL) AS of_run`

// forgetEvents is the maximum number of events that one transaction deletes in each lane of a
// namespace.
const forgetEvents = 1000

// ForgetEvents deletes events whose retention is over. more is true if there may be more.
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
