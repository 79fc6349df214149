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
