package search

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// eventText returns a text field of events, of a row a of job_events.
func eventText(name, column string) *field {
	of := "coalesce(" + column + ", '')"
	return &field{name: name, compare: map[string]string{equals: of + " = $?::text"}, prefix: "starts_with(" + of + ", $?::text)", there: column + " IS NOT NULL"}
}

// The fields of events.
var (
	// see check
	fieldEventJob  = &field{name: "job_id", compare: map[string]string{equals: "a.job_id = $?::text"}, prefix: "starts_with(a.job_id, $?::text)"}
	fieldEventTime = &field{name: "created_time", values: isTime, compare: inOrder("a.created_time", "$?::timestamptz")}
)

var events = &table{
	fields: []*field{
		fieldEventJob, eventText("step_id", "a.step_id"), eventText("type", "a.type"), eventText("from", "a.from_status"), eventText("to", "a.to_status"),
		eventText("actor", "a.actor"), eventText("worker_id", "a.worker_id"), fieldEventTime,
	},
	example: "to = failed", text: "job_id = ",
}

// ParseEvents parses a filter over job_id, step_id, type, from, to, actor, worker_id and
// created_time.
func ParseEvents(text string) (Filter, error) { return parse(text, events) }

// MatchesEvent reports whether an event matches a filter of ParseEvents.
func (f Filter) MatchesEvent(e *storage.JobEventRow) bool {
	return f.root == nil || eventMatches(f.root, e)
}

func eventMatches(n node, e *storage.JobEventRow) bool {
	switch n := n.(type) {
	case allOf:
		for _, part := range n {
			if !eventMatches(part, e) {
				return false
			}
		}
		return true
	case anyOf:
		for _, part := range n {
			if eventMatches(part, e) {
				return true
			}
		}
		return false
	case not:
		return !eventMatches(n.of, e)
	case *comparison:
		if n.field == fieldEventTime {
			return inTime(n.operator, e.CreatedTime.Compare(n.value.time))
		}
		text := eventField(n.field.name, e)
		holds := text == n.value.text
		switch n.value.kind {
		case isAnything:
			holds = text != ""
		case isPrefix:
			holds = strings.HasPrefix(text, n.value.text)
		}
		return holds != (n.operator == differs)
	}
	return false
}

func inTime(operator string, compared int) bool {
	switch operator {
	case equals:
		return compared == 0
	case differs:
		return compared != 0
	case less:
		return compared < 0
	case lessEqual:
		return compared <= 0
	case more:
		return compared > 0
	}
	return compared >= 0
}

func eventField(name string, e *storage.JobEventRow) string {
	switch name {
	case "job_id":
		return e.JobID
	case "step_id":
		return e.StepID
	case "type":
		return e.Type
	case "from":
		return e.FromStatus
	case "to":
		return e.ToStatus
	case "actor":
		return e.Actor
	}
	return e.WorkerID
}

// job returns the ID of the job that all matching events belong to, or "" if there is not exactly
// one.
func (f Filter) job() string {
	for _, n := range f.conjuncts() {
		if c, ok := n.(*comparison); ok && c.field == fieldEventJob && c.operator == equals && c.value.kind == isText {
			return c.value.text
		}
	}
	return ""
}

// EventQuery selects a page of the events of a namespace, newest first.
type EventQuery struct {
	Namespace string
	Filter    string // see ParseEvents
	PageSize  int    // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string // of the previous page; "" for the first
}

// EventPage is a page of events. It may have fewer events than requested, or none, and still have a
// next page.
type EventPage struct {
	Events        []storage.JobEventRow
	NextPageToken string // "" if this is the last page
}

// ListEvents returns a page.
func ListEvents(ctx context.Context, store *storage.Store, q EventQuery) (EventPage, error) {
	return listEventsWithin(ctx, store, q, usual.scanned)
}

// listEventsWithin reads at most window events.
func listEventsWithin(ctx context.Context, store *storage.Store, q EventQuery, window int) (EventPage, error) {
	filter, err := ParseEvents(q.Filter)
	if err != nil {
		return EventPage{}, err
	}
	before := storage.LastEvent
	if q.PageToken != "" {
		if before, err = storage.ParseEventPosition("page_token", q.PageToken); err != nil {
			return EventPage{}, err
		}
	}
	size := DefaultPageSize
	if q.PageSize > 0 {
		size = min(q.PageSize, MaxPageSize)
	}
	var rows []eventRow
	err = store.Search(ctx, "list events", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		rows, err = query[eventRow](ctx, tx, eventStatement(q.Namespace, filter, before, window, size))
		return err
	})
	if err != nil {
		return EventPage{}, err
	}
	var page EventPage
	for n := range rows {
		r := &rows[n]
		if r.Matches && len(page.Events) == size {
			page.NextPageToken = before.String()
			break
		}
		if r.Matches {
			page.Events = append(page.Events, r.JobEventRow)
		}
		if before = r.Position(); r.N == int64(window) {
			page.NextPageToken = before.String()
		}
	}
	return page, nil
}

type eventRow struct {
	storage.JobEventRow
	N       int64 // number of the row in the window
	Matches bool
}

// eventStatement reads the newest events before one, like auditStatement. Events of one job are
// ordered by their numbers, which is the same order. (Their namespace is compared in a way that
// excludes the primary key, which looks as good on a table without statistics.)
func eventStatement(namespace string, filter Filter, before storage.EventPosition, window, size int) *statement {
	s := &statement{}
	s.add(`SELECT ` + storage.JobEventColumns + `, a.n, a.matches
  FROM (SELECT a.*, row_number() OVER () AS n, `)
	s.filter(filter)
	s.add(` AS matches FROM (SELECT * FROM job_events a WHERE `)
	if job := filter.job(); job != "" {
		s.add(`hashtext(a.job_id) = hashtext($?::text) AND a.namespace COLLATE "POSIX" = $?::text AND a.job_id = $?::text AND a.event_id < $?::bigint ORDER BY a.event_id DESC`, job, namespace, job, before.EventID)
	} else {
		s.add(`a.namespace = $?::text AND (a.xid, a.event_id) < ($?::text::xid8, $?::bigint) ORDER BY a.xid DESC, a.event_id DESC`, namespace, before.XID, before.EventID)
	}
	s.add(` LIMIT $?::bigint) a) a`, window)
	s.add(` WHERE a.matches OR a.n = $?::bigint ORDER BY a.n LIMIT $?::bigint`, window, size+1)
	return s
}
