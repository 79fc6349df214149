package search

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// The conditions on runs, of a row r of flow_runs. The view run_list has the same conditions.
const (
	// runActive is the status of an active run. It is derived from the running steps of the run
	// and, for a for_each step, from the first item.
	runActive = `(SELECT CASE WHEN bool_or(NOT k.waits AND NOT k.lies) THEN 'RUNNING' WHEN bool_or(k.waits)
  AND NOT bool_or(k.lies) THEN 'WAITING_WORKER' ELSE 'QUEUED' END
  FROM (SELECT f.wait IS NOT NULL OR f.process_id IS NULL AND f.due_time IS NULL
    AND coalesce((SELECT i.wait IS NOT NULL FROM flow_steps i
                 WHERE i.namespace = f.namespace AND i.run_id = f.run_id AND i.step_id = f.step_id
                   AND i.index = 0), false) AS waits,
               coalesce(starts_with(f.process_id, '~job/') AND (SELECT u.running_time FROM running_jobs u
                 WHERE u.namespace = coalesce(f.process_namespace, f.namespace) AND u.process_id = f.process_id
                   LIMIT 1) IS NULL, false) AS lies
          FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.index = -1
            AND f.status = 'running') k)`

	// runPhase is the first running step, or else the first step that has not ended. A step whose
	// job no worker has taken is not running.
	runPhase = `CASE WHEN r.finished_time IS NULL THEN coalesce(
  (SELECT f.step_id FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.index = -1
    AND f.status = 'running'
      AND NOT coalesce(starts_with(f.process_id, '~job/') AND (SELECT u.running_time FROM running_jobs u
        WHERE u.namespace = coalesce(f.process_namespace, f.namespace) AND u.process_id = f.process_id
          LIMIT 1) IS NULL, false) ORDER BY f.ord LIMIT 1),
  (SELECT x.step->>'stepId' FROM flow_templates v
    CROSS JOIN LATERAL jsonb_array_elements(v.definition->'steps') WITH ORDINALITY AS x(step, n)
    WHERE v.namespace = r.namespace AND v.template_type = r.template_type AND v.version = r.template_version
      AND NOT EXISTS (SELECT 1 FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id
      AND f.step_id = x.step->>'stepId'
                         AND f.index = -1 AND f.status NOT IN ('pending', 'running'))
    ORDER BY x.n LIMIT 1), '') ELSE '' END`

	ofRunProcess = ` FROM processes p WHERE p.namespace = r.namespace AND p.process_id = '~flow/' || r.run_id LIMIT 1)`
	runMetadata  = `(SELECT p.metadata` + ofRunProcess
	// runThere excludes runs that are being removed.
	runThere = ` AND coalesce((SELECT p.removed_time IS NULL` + ofRunProcess + `, false)`
)

var runStatuses = []string{
	"PENDING", "QUEUED", "RUNNING", "WAITING_WORKER", "CANCEL_REQUESTED", "COMPENSATING", "SUCCEEDED", "FAILED",
	"CANCELLED", "EXPIRED",
}

// The fields of runs. The status is derived from steps only for active runs. For other runs, it is
// in their row.
var (
	fieldRunStatus = &field{
		name: "status", values: isChoice,
		choices: &choices{names: runStatuses, prefix: "RUN_STATUS_", field: func(name string) *field {
			if slices.Contains([]string{"QUEUED", "RUNNING", "WAITING_WORKER"}, name) {
				return fieldRunActive
			}
			return fieldRunStored
		}}, compare: map[string]string{equals: "r.status"},
	}
	fieldRunStored = &field{
		name: "status", compare: map[string]string{equals: "r.status = lower($?::text)::flow_status"},
	}
	fieldRunActive = &field{
		name: "status", compare: map[string]string{equals: "(r.status = 'active' AND " + runActive + " = $?::text)"},
	}
	fieldRunID      = textField("run_id", "r.run_id")
	fieldRunType    = textField("template_type", "r.template_type")
	fieldRunScope   = textField("scope", "r.scope")
	fieldRunScopeID = textField("scope_id", "r.scope_id")
	fieldRunPhase   = textField("phase", runPhase)
	fieldRunCron    = &field{
		name: "cron_id", compare: map[string]string{equals: "coalesce(r.cron_id = $?::text, false)"},
		prefix: "coalesce(starts_with(r.cron_id, $?::text), false)",
	}
	fieldRunCreated = &field{
		name: "created_time", values: isTime, compare: inOrder("r.created_time", "$?::timestamptz"),
	}
	fieldRunReason      = errorField("reason", `(r.failure->>'reason')`)
	fieldRunFingerprint = errorField("fingerprint", `(CASE WHEN `+runGrouped+` THEN `+runFingerprint+` END)`)

	fieldRunPayload  = documentField("payload", "r.payload")
	fieldRunMetadata = runMetadataField()
)

// A run that is a step of another run is in no group, because the other run has the same error.
const (
	runFingerprint = `error_fingerprint(r.failure->>'reason', r.failure->>'message')`
	runGrouped     = `r.status IN ('failed', 'expired') AND r.parent_run_id IS NULL`
)

// runMetadataField returns the field metadata. Its condition has the form that the index of
// metadata supports, on a row p of processes.
func runMetadataField() *field {
	f := documentField("metadata", runMetadata)
	f.doc.contains = fieldMetadata.doc.contains
	return f
}

var runs = &table{
	fields: []*field{
		fieldRunID, fieldRunStatus, fieldRunType, fieldRunScope, fieldRunScopeID, fieldRunPhase, fieldRunCron,
		fieldRunCreated, fieldRunReason, fieldRunFingerprint, fieldRunPayload, fieldRunMetadata,
	},
	example: "status = FAILED", text: "template_type = ",
}

// The orders of a list of runs.
var runOrders = map[string]*order{
	OrderCreated: {
		field: fieldRunCreated, column: `r.created_time`,
		behind: `(r.created_time, r.run_id COLLATE "POSIX") < ($?::timestamptz, $?::text)`,
		by:     `r.created_time DESC, r.run_id COLLATE "POSIX" DESC`,
	},
	OrderOldest: {
		field: fieldRunCreated, column: `r.created_time`,
		behind: `(r.created_time, r.run_id COLLATE "POSIX") > ($?::timestamptz, $?::text)`,
		by:     `r.created_time, r.run_id COLLATE "POSIX"`, upwards: true,
	},
	"updated_time desc": {
		column: `r.updated_time`, behind: `(r.updated_time, r.run_id COLLATE "POSIX") < ($?::timestamptz, $?::text)`,
		by: `r.updated_time DESC, r.run_id COLLATE "POSIX" DESC`,
	},
	"updated_time": {
		column: `r.updated_time`, behind: `(r.updated_time, r.run_id COLLATE "POSIX") > ($?::timestamptz, $?::text)`,
		by: `r.updated_time, r.run_id COLLATE "POSIX"`, upwards: true,
	},
}

func runOrder(text string) (string, error) {
	name := orderName(text)
	switch {
	case name == "":
		return OrderCreated, nil
	case runOrders[name] == nil:
		return "", &process.InvalidError{
			Field: "order_by", Message: "must be created_time desc, created_time, updated_time or updated_time desc",
		}
	}
	return name, nil
}

// narrower is a condition for which an index of runs exists that is ordered by creation time. If
// several apply, the first one is used, because it is likely to leave the fewest rows.
type narrower struct {
	sql  string
	text func(n node) (text string, fits bool)
}

var narrowers = []narrower{
	{` AND ` + runGrouped + ` AND ` + runFingerprint + ` = $?::text`, textOf(fieldRunFingerprint)},
	{` AND r.scope_id COLLATE "POSIX" = $?::text AND r.scope_id <> ''`, textOf(fieldRunScopeID)},
	{` AND r.cron_id COLLATE "POSIX" = $?::text`, textOf(fieldRunCron)},
	{` AND r.status IN ('failed', 'cancelled', 'expired')`, statusIn("FAILED", "CANCELLED", "EXPIRED")},
	{` AND r.finished_time IS NULL`, unfinished},
	{` AND r.template_type COLLATE "POSIX" = $?::text`, textOf(fieldRunType)},
}

func textOf(f *field) func(node) (string, bool) {
	return func(n node) (string, bool) {
		c, ok := n.(*comparison)
		if !ok || c.field != f || c.operator != equals || c.value.kind != isText || c.value.text == "" {
			return "", false
		}
		return c.value.text, true
	}
}

// statusIn matches conditions that hold only for runs with some of the statuses.
func statusIn(names ...string) func(node) (string, bool) {
	return func(n node) (string, bool) {
		if list, ok := n.(anyOf); ok {
			for _, part := range list {
				if _, fits := statusIn(names...)(part); !fits {
					return "", false
				}
			}
			return "status", true
		}
		c, ok := n.(*comparison)
		fits := ok && (c.field == fieldRunStored || c.field == fieldRunActive) && c.operator == equals &&
			slices.Contains(names, c.value.text)
		return "status", fits
	}
}

// unfinished matches conditions that hold only for runs that have not ended.
func unfinished(n node) (string, bool) {
	if text, ok := textOf(fieldRunPhase)(n); ok {
		return text, true
	}
	return statusIn("PENDING", "QUEUED", "RUNNING", "WAITING_WORKER", "CANCEL_REQUESTED", "COMPENSATING")(n)
}

// ParseRuns parses a filter of ListRuns.
func ParseRuns(text string) (Filter, error) { return parse(text, runs) }

// RunQuery selects a page of a list of runs.
type RunQuery struct {
	Namespace string
	Filter    string // over the fields of runs
	OrderBy   string // "" means created_time desc
	PageSize  int    // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string // token from the previous page; "" for the first
}

// Run is a row of flow_runs with columns of its process.
type Run = dbsqlc.ReadRunsRow

// RunStep is the state of a step in a run.
type RunStep = dbsqlc.ReadStatusesRow

// RunPage is a page of a list of runs. It may have fewer runs than requested, or none, and still
// have a next page.
type RunPage struct {
	Runs          []Run
	Steps         []RunStep // steps of these runs, without items
	NextPageToken string    // "" if this is the last page
}

// runReach is the reach of a page of runs. The first window is small, because the status of a run
// may depend on rows of its steps.
var runReach = reach{
	first: 500, scanned: 20_000, candidates: 5_000, bytes: storage.ListBytes, time: 20 * time.Millisecond,
}

// ListRuns returns a page, read in one snapshot.
func ListRuns(ctx context.Context, store *storage.Store, q RunQuery) (RunPage, error) {
	return listRunsWithin(ctx, store, q, runReach)
}

func listRunsWithin(ctx context.Context, store *storage.Store, q RunQuery, r reach) (page RunPage, err error) {
	filter, err := parse(q.Filter, runs)
	if err != nil {
		return page, err
	}
	name, err := runOrder(q.OrderBy)
	if err != nil {
		return page, err
	}
	o := runOrders[name]
	signed, sign := Query{Namespace: q.Namespace, Filter: filter}, "runs "+name
	from, err := o.positionOf(q.PageToken, signed, sign)
	if err != nil {
		return page, err
	}
	l := &runList{
		namespace: q.Namespace, filter: filter, order: o, window: windowed{reach: r, size: pageSize(q.PageSize)},
	}
	err = store.Search(ctx, "list runs", func(ctx context.Context, tx pgx.Tx) error {
		l.window.start(from)
		page = RunPage{}
		if err := l.find(ctx, tx); err != nil {
			return err
		}
		return l.fill(ctx, tx, &page)
	})
	if err == nil && l.window.more {
		page.NextPageToken = token(signed, sign, l.window.last)
	}
	return page, err
}

// runList is a page of runs that is being read.
type runList struct {
	namespace string
	filter    Filter
	order     *order
	window    windowed
	ids       []string // IDs of the runs that an index of metadata has returned; nil for all
}

// find finds the runs of the page in order. If the first rows do not suffice, it uses the index of
// metadata, provided that the index returns few rows.
func (l *runList) find(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, scanSettings); err != nil {
		return err
	}
	from := l.window.last
	if err := l.window.scan(ctx, tx, l.window.reach.first, l.statement); err != nil || !l.window.canContinue() {
		return err
	}
	s := &statement{}
	s.add(`SELECT substr(p.process_id, 7) FROM processes p WHERE `)
	if byMetadata(s, Query{Filter: l.filter}) {
		if _, err := tx.Exec(ctx, candidateSettings); err != nil {
			return err
		}
		s.add(` AND p.namespace = $?::text AND p.kind = 'flow'`, l.namespace)
		s.add(` LIMIT $?::bigint`, l.window.reach.candidates)
		ids, err := queryIDs(ctx, tx, s)
		if err != nil {
			return err
		}
		if len(ids) < l.window.reach.candidates {
			l.ids = append([]string{}, ids...)
			l.window.start(from)
			return l.window.scan(ctx, tx, l.window.reach.candidates, l.statement)
		}
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
	}
	return l.window.scanOn(ctx, tx, l.statement)
}

// statement reads the next rows after a position. The last row of the window is included if it was
// reached, even if it does not match, because the next window begins after it.
func (l *runList) statement(from position, window, room int) *statement {
	o := l.order
	s := &statement{}
	s.add(`SELECT r.run_id AS id, r.at, r.n, r.matches FROM (SELECT r.*, ` + o.column +
		` AS at, row_number() OVER (ORDER BY ` + o.by + `) AS n, (`)
	s.filter(l.filter)
	s.add(runThere + `) AS matches FROM (SELECT * FROM flow_runs r WHERE `)
	if l.ids != nil {
		s.add(`r.namespace = $?::text AND r.run_id = ANY ($?::text[])`, l.namespace, l.ids)
	} else {
		s.add(`r.namespace COLLATE "POSIX" = $?::text`, l.namespace)
		l.narrow(s)
	}
	s.add(" AND ")
	s.add(o.behind, from.at, from.id)
	if o.field != nil {
		o.bounds(s, l.filter)
	}
	s.add(` ORDER BY `+o.by+` LIMIT $?::bigint) r) r`, window)
	s.add(` WHERE r.matches OR r.n = $?::bigint ORDER BY `+o.by+` LIMIT $?::bigint`, window, room+1)
	return s
}

func (l *runList) narrow(s *statement) {
	if l.order.field == nil {
		return // the index of the order updated_time starts with the time
	}
	for _, by := range narrowers {
		for _, n := range l.filter.conjuncts() {
			if text, ok := by.text(n); ok {
				if strings.Contains(by.sql, mark) {
					s.add(by.sql, text)
				} else {
					s.add(by.sql)
				}
				return
			}
		}
	}
}

// firstFill is the number of runs that are read at first, because few runs with large payloads and
// results fit on a page.
const firstFill = 10

// stepBytes is the approximate size of a step's status without its progress.
const stepBytes = 200

// fill reads the runs of the page until their bytes exceed its limit.
func (l *runList) fill(ctx context.Context, tx pgx.Tx, page *RunPage) error {
	var taken int64
	w := &l.window
	for ids, batch := w.ids(), firstFill; len(ids) > 0; {
		n := min(batch, len(ids))
		rows, err := dbsqlc.New().ReadRuns(ctx, tx, dbsqlc.ReadRunsParams{Namespace: l.namespace, RunIds: ids[:n]})
		if err != nil {
			return err
		}
		steps, err := dbsqlc.New().ReadStatuses(ctx, tx, dbsqlc.ReadStatusesParams{
			Namespace: l.namespace, RunIds: runIDs(rows),
		})
		if err != nil {
			return err
		}
		page.Runs, page.Steps = append(page.Runs, rows...), append(page.Steps, steps...)
		for k := range rows {
			taken += int64(len(rows[k].Payload) + len(rows[k].Result) + len(rows[k].Failure) + len(rows[k].Metadata) +
				len(rows[k].AuxState))
		}
		for k := range steps {
			taken += int64(stepBytes + len(steps[k].Progress))
		}
		if ids = ids[n:]; len(ids) > 0 && taken > w.reach.bytes {
			w.last, w.more = w.found[len(w.found)-len(ids)-1], true
			break
		}
		batch = int(max(1, min((w.reach.bytes-taken)*int64(len(page.Runs))/max(taken, 1), MaxPageSize)))
	}
	return nil
}

// runIDs returns the IDs of runs.
func runIDs(rows []Run) []string {
	ids := make([]string, len(rows))
	for n := range rows {
		ids[n] = rows[n].RunID
	}
	return ids
}
