package search

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// eventText returns a text field of events. column is an expression over a row a of job_events.
func eventText(name, column string) *field {
	f := textField(name, "coalesce("+column+", '')")
	f.there = "(" + column + ") IS NOT NULL"
	return f
}

// These expressions find the run and the step of an event. They parse the IDs of the jobs of steps
// like process.ParseStepJob.
const (
	isStepJob = `starts_with(a.job_id, '~job/') AND NOT starts_with(a.job_id, '~job/~/')`
	runOfJob  = `CASE WHEN ` + isStepJob + ` THEN substring(a.job_id FROM '^~job/(.*)/[^/]*$')
  WHEN coalesce(a.of_run, a.step_id IS NOT NULL) THEN a.job_id END`
	stepOfJob = `coalesce(a.step_id, CASE WHEN ` + isStepJob + ` THEN substring(a.job_id FROM '/([^/.~]*)[^/]*$') END)`
)

// The fields of events.
var (
	fieldEventRun  = eventText("run_id", runOfJob)
	fieldEventJob  = textField("job_id", "a.job_id")
	fieldEventTime = &field{name: "created_time", values: isTime, compare: inOrder("a.created_time", "$?::timestamptz")}
)

var events = &table{
	fields: []*field{
		fieldEventJob, fieldEventRun, eventText("step_id", stepOfJob), eventText("type", "a.type"),
		eventText("from", "a.from_status"), eventText("to", "a.to_status"),
		eventText("actor", "a.actor"), eventText("worker_id", "a.worker_id"), fieldEventTime,
	},
	example: "to = failed", text: "job_id = ",
}

// ParseEvents parses a filter over job_id, run_id, step_id, type, from, to, actor, worker_id and
// created_time.
func ParseEvents(text string) (Filter, error) { return parse(text, events) }

// MatchesEvent reports whether an event matches a filter of ParseEvents.
func (f Filter) MatchesEvent(e *jobs.EventRow) bool {
	return f.root == nil || eventMatches(f.root, e)
}

func eventMatches(n node, e *jobs.EventRow) bool {
	switch n := n.(type) {
	case allOf:
		return !slices.ContainsFunc(n, func(part node) bool { return !eventMatches(part, e) })
	case anyOf:
		return slices.ContainsFunc(n, func(part node) bool { return eventMatches(part, e) })
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

func eventField(name string, e *jobs.EventRow) string {
	switch name {
	case "job_id":
		return e.JobID
	case "run_id":
		if step, ok := process.ParseStepJob(e.JobID); ok {
			return step.RunID
		}
		if !e.OfRun {
			return ""
		}
		return e.JobID
	case "step_id":
		if step, ok := process.ParseStepJob(e.JobID); ok {
			return step.StepID
		}
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

// only returns the value of a field that all matching events have, or "" if there is not exactly
// one.
func (f Filter) only(field *field) string {
	for _, n := range f.conjuncts() {
		if c, ok := n.(*comparison); ok && c.field == field && c.operator == equals && c.value.kind == isText {
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
	PageToken string // token from the previous page; "" for the first
}

// EventPage is a page of events. It may have fewer events than requested, or none, and still have a
// next page.
type EventPage struct {
	Events        []jobs.EventRow
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
	before := int64(math.MaxInt64)
	if q.PageToken != "" {
		if before, err = jobs.ParsePageToken("page_token", q.PageToken); err != nil {
			return EventPage{}, err
		}
	}
	size := pageSize(q.PageSize)
	var rows []eventRow
	err = store.Search(ctx, "list events", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		ids, err := runJobs(ctx, tx, q.Namespace, filter)
		if err != nil {
			return err
		}
		lanes, err := eventLanes(ctx, tx)
		if err != nil {
			return err
		}
		scan := eventScan{q.Namespace, filter, ids, lanes, before, window, size}
		rows, err = query[eventRow](ctx, tx, eventStatement(scan))
		return err
	})
	if err != nil {
		return EventPage{}, err
	}
	var page EventPage
	last := q.PageToken // token of the page after the last row
	for n := range rows {
		r := &rows[n]
		if r.Matches && len(page.Events) == size {
			page.NextPageToken = last
			break
		}
		if r.Matches {
			page.Events = append(page.Events, r.EventRow)
		}
		if last = jobs.PageToken(r.XID, r.EventID); r.N == int64(window) {
			page.NextPageToken = last
		}
	}
	return page, nil
}

type eventRow struct {
	jobs.EventRow
	N       int64 // number of the row in the window
	Matches bool
}

// maxRunJobs is the maximum number of jobs of a run whose events are read job by job.
const maxRunJobs = 1000

// runJobs returns the IDs of the run and of its step jobs in the namespace that a filter selects by
// run_id. The run itself may be in another namespace. runJobs returns nil if the events are not
// read job by job: if the filter names no run or also names a job, or if the run was removed or has
// too many jobs.
func runJobs(ctx context.Context, tx pgx.Tx, namespace string, filter Filter) ([]string, error) {
	run := filter.only(fieldEventRun)
	if run == "" || filter.only(fieldEventJob) != "" {
		return nil, nil
	}
	s := &statement{}
	s.add(`SELECT p.process_id FROM processes p WHERE p.namespace = $?::text AND p.process_id = '~flow/' || $?::text
 UNION ALL (SELECT p.process_id FROM processes p WHERE p.namespace = $?::text
   AND p.process_id > '~job/' || $?::text || '/'
   AND p.process_id < '~job/' || $?::text || '0' AND strpos(substr(p.process_id, length($?::text) + 7), '/') = 0
   LIMIT $?::bigint)`,
		namespace, run, namespace, run, run, run, maxRunJobs+1)
	ids, err := queryIDs(ctx, tx, s)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if ids[0] == process.FlowPrefix+run {
		ids = ids[1:]
	}
	if len(ids) > maxRunJobs {
		return nil, nil
	}
	return append(ids, run), nil
}

// eventScan selects the events that one statement reads.
type eventScan struct {
	namespace    string
	filter       Filter
	jobs         []string // whose events are read; nil for all
	lanes        []int64  // all lanes
	before       int64    // number of an event
	window, size int
}

// eventLanes returns the lanes of job events.
func eventLanes(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	s := &statement{}
	s.add(`SELECT l.lane FROM job_event_lanes l`)
	return collect(ctx, tx, s, pgx.RowTo[int64])
}

// eventStatement reads the newest events before one, like auditStatement. It reads each lane in
// order and merges the lanes. (For the events of single jobs, the condition on the namespace
// excludes the other indexes. Without statistics, the planner may choose one of those.)
func eventStatement(scan eventScan) *statement {
	namespace, filter, before, window, size := scan.namespace, scan.filter, scan.before, scan.window, scan.size
	s := &statement{}
	s.add(`SELECT ` + jobs.EventColumns + `, a.n, a.matches
  FROM (SELECT a.*, row_number() OVER () AS n, `)
	s.filter(filter)
	s.add(` AS matches FROM (`)
	if job := filter.only(fieldEventJob); job != "" {
		s.add(`SELECT * FROM job_events a WHERE hashtext(a.job_id) = hashtext($?::text)
   AND a.namespace COLLATE "POSIX" = $?::text
   AND a.job_id = $?::text AND a.event_id < $?::bigint ORDER BY a.event_id DESC`, job, namespace, job, before)
	} else if scan.jobs != nil {
		s.add(`SELECT a.* FROM unnest($?::text[]) AS job(id) CROSS JOIN LATERAL (
  SELECT * FROM job_events e WHERE hashtext(e.job_id) = hashtext(job.id) AND e.namespace COLLATE "POSIX" = $?::text
     AND e.job_id = job.id AND e.event_id < $?::bigint
   ORDER BY e.event_id DESC LIMIT $?::bigint) a ORDER BY a.event_id DESC`, scan.jobs, namespace, before, window)
	} else {
		for n, lane := range scan.lanes {
			s.add([]string{"SELECT * FROM (", " UNION ALL "}[min(n, 1)])
			s.add(`(SELECT * FROM job_events a WHERE a.namespace = $?::text AND a.lane = $?::bigint
   AND a.event_id < $?::bigint ORDER BY a.event_id DESC LIMIT $?::bigint)`, namespace, lane, before, window)
		}
		s.add(`) a ORDER BY a.event_id DESC`)
	}
	s.add(` LIMIT $?::bigint) a) a`, window)
	s.add(` WHERE a.matches OR a.n = $?::bigint ORDER BY a.n LIMIT $?::bigint`, window, size+1)
	return s
}
