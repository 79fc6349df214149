// Package erasure implements EraseProcess. The caller first removes the processes. Then this
// package deletes the rows of other tables that refer to these processes, or replaces the IDs in
// these rows with hashes (erased_id). It reads whole tables, in batches in the order of their
// primary keys, because most tables have no index on these IDs. It erases nothing while a process
// with one of the IDs exists, because the rows of that process are in the same tables.
package erasure

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Set selects processes of a namespace that are erased together.
type Set struct {
	Namespace string
	IDs       []string
	LaterRuns []string // runs that will be erased later; until then, their steps keep the erased IDs
	DryRun    bool     // only count the rows
	// CreatedBefore excludes processes that were created at this time or later. If it is nil, no
	// process is excluded.
	CreatedBefore *time.Time
}

// partPrefix is an ID prefix that the parts of a process share. The rest of such an ID contains
// depth slashes.
type partPrefix struct {
	prefix string
	depth  int32
}

// partPrefixes returns the prefixes of the IDs that match the SQL function erased_parts: the IDs of
// step jobs of a run, and of the members of a job that several workers run.
func (e Set) partPrefixes() (list []partPrefix) {
	for _, id := range e.IDs {
		list = append(list, partPrefix{prefix: process.MemberPrefix + id + "/"})
		if run, ok := strings.CutPrefix(id, process.FlowPrefix); ok {
			job := process.StepPrefix + run + "/"
			list = append(list, partPrefix{prefix: job}, partPrefix{prefix: process.MemberPrefix + job, depth: 1})
		}
	}
	return list
}

// erasedTable is a table with IDs of processes. In its SQL, is(EXPRESSION) is true for the ID of an
// erased process, x is a row, and t is a row that is updated.
type erasedTable struct {
	name  string
	key   string // columns of the primary key with their types; without the namespace, unless whole is true
	match string // condition for a row that must be erased
	set   string // SET clause that erases the IDs in a matching row; "" means that the row is deleted
	whole bool   // rows of all namespaces are read: rows of others can match, or the key has no namespace
}

const (
	// eventOfErased matches the events of an erased job or run. Older engines did not write of_run.
	// An event without of_run and without a step belongs to the job with this ID, if there is one.
	eventOfErased = "CASE WHEN x.of_run OR x.step_id IS NOT NULL THEN is('~flow/' || x.job_id)" +
		" ELSE is(x.job_id) OR is('~flow/' || x.job_id) AND NOT EXISTS (SELECT FROM processes p" +
		" WHERE p.namespace = $1 AND p.process_id = x.job_id AND p.kind = 'job') END"
	// changeOfErased matches the changes of an erased process. Older triggers did not write ~flow/
	// before the IDs of runs, and wrote the kind job for changes of runs.
	changeOfErased = "(is(x.process_id) AND (x.kind <> 'step' OR starts_with(x.process_id, '~flow/'))" +
		" OR is('~flow/' || x.process_id) AND (x.kind = 'step' OR x.kind = 'job' AND NOT EXISTS (" +
		"SELECT FROM processes p WHERE p.namespace = $1 AND p.process_id = x.process_id AND p.kind = 'job')))"
	// sentByErased matches messages from an erased process, and endOfErased those about its end.
	sentByErased = "x.sender_namespace = $1 AND is(x.sender_process_id)"
	endOfErased  = "x.child->>'namespace' = $1 AND is(x.child->>'processId')"
)

// erasedTables lists all tables that can contain the ID of a process after RemoveProcess. A table
// whose rows can move to another table comes before that table: messages become dead letters, and
// changes become dead letters of sinks. The table flow_steps is the last one, because StartedBy
// reads it. Tasks of other processes and messages to them are not changed, because that would
// require a lock on these processes.
var erasedTables = []erasedTable{
	{name: "answers", key: "process_id text, task_id bigint", match: "is(x.process_id)"},
	{name: "leases", key: "process_id text", match: "is(x.process_id)"},
	{name: "queue_backlogs", key: "process_id text", match: "is(x.process_id)"},
	{name: "job_groups", key: "process_id text", match: "is(x.process_id)"},
	{name: "job_places", key: "process_id text", match: "is(x.process_id) OR is(x.job_id)"},
	{name: "job_keys", key: "unique_key text", match: "is(x.process_id)"},
	{name: "job_events", key: "lane bigint, event_id bigint", match: eventOfErased},
	{name: "constraint_holds", key: "process_id text, line text", match: "is(x.process_id)"},
	{name: "constraint_reservations", key: "line text", match: "is(x.process_id)"},
	{name: "requests", key: "request_id uuid", match: "x.namespace = $1 AND is(x.process_id)", whole: true},
	{name: "history_restarts", key: "restart_id bigint", match: "x.namespace = $1 AND is(x.process_id)", whole: true},
	{name: "messages", key: "process_id text, message_id bigint", match: "is(x.process_id)"},
	{name: "dead_letters", key: "message_id bigint", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR " + sentByErased + " OR " + endOfErased},
	{name: "parents", key: "namespace text, process_id text", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR x.parent_namespace = $1 AND is(x.parent_process_id)"},
	{name: "cron_fires", key: "cron_id text, fire_time timestamptz", match: "is(x.process_id)",
		set: "process_id = erased_id($1, t.process_id), reason = NULL, detail = NULL"},
	{name: "changes", key: `lane bigint, seq bigint, "time" timestamptz`,
		match: changeOfErased + " OR is(x.details->>'run_id')",
		set: `process_id = CASE
		  WHEN is(t.process_id) OR is('~flow/' || t.process_id) THEN erased_id($1, t.process_id)
		  ELSE t.process_id END,
		  event_id = NULL, from_status = NULL, to_status = NULL, reason = NULL, metadata = NULL, payload = NULL,
		  details = NULL`},
	{name: "sink_dead_letters", key: "sink_id text, change_id bigint", match: changeOfErased},
	{name: "flow_scopes", key: "template_type text, dedupe_key text, run_id text", match: "is('~flow/' || x.run_id)"},
	{name: "flow_runs", key: "run_id text",
		match: "is('~flow/' || x.parent_run_id) OR is('~flow/' || x.repeat_of_run_id) OR is('~flow/' || x.blocked_on)",
		set: `parent_run_id = CASE
		  WHEN is('~flow/' || t.parent_run_id) THEN erased_id($1, '~flow/' || t.parent_run_id)
		  ELSE t.parent_run_id END,
		  repeat_of_run_id = CASE
		  WHEN is('~flow/' || t.repeat_of_run_id) THEN erased_id($1, '~flow/' || t.repeat_of_run_id)
		  ELSE t.repeat_of_run_id END,
		  blocked_on = CASE
		  WHEN is('~flow/' || t.blocked_on) THEN erased_id($1, '~flow/' || t.blocked_on)
		  ELSE t.blocked_on END`},
	{name: "audit"}, // erased by erase_audit
	{name: "flow_steps", key: "namespace text, run_id text, step_id text, index int", whole: true,
		match: "coalesce(x.process_namespace, x.namespace) = $1 AND is(x.process_id)" +
			" AND NOT (x.namespace = $1 AND x.run_id = ANY (@runs::text[]))",
		set: `process_id = erased_id($1, t.process_id), worker_id = NULL, reason = NULL, input = NULL, result = NULL,
		  failure = NULL, progress = NULL`},
}

// PageRows is the recommended number of rows for EraseRows. It is small so that transactions are
// short.
const PageRows = 2000

// erasedIDs matches is(EXPRESSION). The expressions have no parentheses.
var erasedIDs = regexp.MustCompile(`\bis\(([^()]*)\)`)

// eraseAuditSQL returns the same columns as eraseSQL.
const eraseAuditSQL = `
	WITH existing AS MATERIALIZED (
	  SELECT 1 FROM (` + processesSQL + `) p LIMIT 1)
	SELECT a.read, a.erased, a.erased, a.last::text,
	       NOT @dry_run::boolean AND EXISTS (SELECT FROM existing)
	  FROM erase_audit(@namespace, @ids, '', coalesce(@after::text, '0')::bigint, @rows,
	                   @dry_run::boolean OR EXISTS (SELECT FROM existing)) a`

// eraseSQL erases a batch of a table. It returns the number of rows that it read, that matched and
// that it erased, the last key, and whether one of the processes exists. A row that another
// transaction changes at the same time is not erased, because it may now belong to a new process.
// entry is the row if it matches, and otherwise NULL, so that large values of other rows are not
// read.
const eraseSQL = `
	WITH parts AS MATERIALIZED (
	  SELECT erased_parts(@ids::text[]) AS pattern),
	existing AS MATERIALIZED (
	  SELECT 1 FROM ({processes}) p LIMIT 1),
	page AS MATERIALIZED (
	  SELECT {key}, CASE WHEN {match} THEN x END AS entry
	    FROM {table} x WHERE {where} ORDER BY {key} LIMIT @rows),
	changed AS ({change})
	SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM page WHERE NOT page.entry IS NULL),
	       (SELECT count(*) FROM changed),
	       (SELECT jsonb_build_array({page_key})::text FROM page ORDER BY {descending} DESC LIMIT 1),
	       NOT @dry_run::boolean AND EXISTS (SELECT FROM existing)`

// statement returns eraseSQL for a table. If continues is true, the batch begins after the key in
// the parameter after.
func (t *erasedTable) statement(continues, dryRun bool) string {
	var columns, values, joins []string
	for _, column := range strings.Split(t.key, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		columns = append(columns, "x."+name)
		values = append(values, "(@after::jsonb->>"+string(rune('0'+len(values)))+")::"+kind)
		joins = append(joins, "t."+name+" = page."+name)
	}
	key, where := strings.Join(columns, ", "), "true"
	if !t.whole {
		where = "x.namespace = $1"
		joins = append(joins, "t.namespace = $1")
	}
	if continues {
		where += " AND (" + key + ") > (" + strings.Join(values, ", ") + ")"
	}
	found := strings.Join(joins, " AND ") +
		" AND NOT page.entry IS NULL AND t = page.entry AND NOT EXISTS (SELECT FROM existing)"
	change := fill("DELETE FROM {table} t USING page WHERE {found} RETURNING 1", "{table}", t.name, "{found}", found)
	switch {
	case dryRun:
		change = "SELECT 1 FROM page WHERE NOT page.entry IS NULL"
	case t.set != "":
		change = fill("UPDATE {table} t SET {set} FROM page WHERE {found} RETURNING 1",
			"{table}", t.name, "{set}", t.set, "{found}", found)
	}
	pageKey := strings.ReplaceAll(key, "x.", "page.")
	statement := fill(eraseSQL, "{processes}", processesSQL, "{key}", key, "{match}", t.match, "{table}", t.name,
		"{where}", where, "{change}", change, "{page_key}", pageKey,
		"{descending}", strings.ReplaceAll(pageKey, ", ", " DESC, "))
	statement = erasedIDs.ReplaceAllString(statement,
		"(($1) = ANY (@ids::text[]) OR ($1) ~ (SELECT parts.pattern FROM parts))")
	return strings.ReplaceAll(statement, "$1", "@namespace")
}

// Progress is the start of the next batch of EraseRows. The zero value begins with the first table.
type Progress struct {
	Table int    `json:"t"`           // index in erasedTables
	After string `json:"a,omitempty"` // the last key of the previous batch in that table, as JSON
}

// Batch is the result of EraseRows.
type Batch struct {
	Table        string
	Rows         int64 // number of rows that were erased
	Read         int64 // number of rows that were read
	LastOfTables bool  // the batch has completed the last table
}

// ErrExists is returned by EraseRows if one of the processes exists because it was started again.
var ErrExists = errors.New("a process with an erased ID exists")

// EraseRows erases a batch of rows that refer to the processes of e. It reads at most the given
// number of rows, beginning at p, and advances p. It returns ErrExists if one of the processes
// exists.
func EraseRows(ctx context.Context, s *storage.Store, e Set, p *Progress, rows int) (Batch, error) {
	if p.Table < 0 || p.Table >= len(erasedTables) {
		return Batch{}, process.InvalidPageToken()
	}
	t := &erasedTables[p.Table]
	args := e.args()
	args["runs"] = append([]string{}, e.LaterRuns...) // not NULL
	after := t.after(p)
	args["after"], args["rows"] = nullIfEmpty(after), rows
	statement := eraseAuditSQL
	if t.key != "" {
		statement = t.statement(after != "", e.DryRun)
	}
	batch := Batch{Table: t.name}
	var matched int64
	var last *string
	var exists bool
	err := s.Write(ctx, "erase rows of "+t.name, func(ctx context.Context, db storage.DB) error {
		return db.QueryRow(ctx, statement, args).Scan(&batch.Read, &matched, &batch.Rows, &last, &exists)
	})
	switch {
	case after != "" && strings.HasPrefix(storage.SQLState(err), "22"): // not a key of the table
		return Batch{}, process.InvalidPageToken()
	case err != nil:
		return Batch{}, err
	case exists:
		return Batch{}, ErrExists
	case batch.Rows < matched: // other transactions changed some rows: read the batch again
		return batch, nil
	case batch.Read == int64(rows) && last != nil:
		p.After = *last
		return batch, nil
	}
	*p = Progress{Table: p.Table + 1}
	batch.LastOfTables = p.Table == len(erasedTables)
	return batch, nil
}

// after returns the key after which the next batch begins, or "" if it begins with the first row.
// Engines before schema version 153 stored keys of job_events that begin with a transaction ID
// instead of a lane. In JSON, this ID is a text. For such a key, after returns "", so that the
// table is read from its beginning again.
func (t *erasedTable) after(p *Progress) string {
	if t.name == "job_events" && strings.HasPrefix(p.After, `["`) {
		return ""
	}
	return p.After
}

func nullIfEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// MaxChildren limits how many children EraseProcess erases with a run.
const MaxChildren = 10_000

// Runs returns the IDs of those runs whose processes are in ids.
func Runs(ids []string) (runs []string) {
	for _, id := range ids {
		if run, ok := strings.CutPrefix(id, process.FlowPrefix); ok {
			runs = append(runs, run)
		}
	}
	return runs
}

// StartedBy returns the IDs of the processes and runs that the steps of the runs in ids have
// started in the same namespace. It omits those that were already erased.
func StartedBy(
	ctx context.Context, s *storage.Store, namespace string, ids []string,
) (started []string, err error) {
	runs := Runs(ids)
	if len(runs) == 0 {
		return nil, nil
	}
	err = s.Search(ctx, "list the processes that runs have started", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT DISTINCT f.process_id FROM flow_steps f
			 WHERE f.namespace = $1
			   AND f.run_id = ANY ($2)
			   AND coalesce(f.process_namespace, f.namespace) = $1
			   AND NOT starts_with(f.process_id, '~job/')
			   AND f.process_id !~ '^erased:[0-9a-f]{64}$'
			 ORDER BY 1 LIMIT $3`, namespace, runs, MaxChildren+1)
		if err != nil {
			return err
		}
		started, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return slices.Clip(started), err
}

// fill puts names of tables and columns, which cannot be parameters, into a statement.
func fill(statement string, names ...string) string {
	return strings.NewReplacer(names...).Replace(statement)
}
