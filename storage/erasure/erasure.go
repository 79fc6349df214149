// Package erasure removes what the database has of processes that EraseProcess erases. First, their
// processes are removed. Then rows of other tables are deleted, or the IDs in them are replaced by
// hashes (erased_id). It reads whole tables, in batches of their primary keys, because most of them
// have no index on these IDs.
package erasure

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Set are processes of a namespace that are erased together.
type Set struct {
	Namespace string
	IDs       []string
	DryRun    bool // only count
}

// parts returns a regular expression of the IDs of processes that belong to those of the set: jobs
// of the steps of a run, and members of a job that several workers run.
func (e Set) parts() string {
	var list []string
	for _, id := range e.IDs {
		list = append(list, process.MemberPrefix+regexp.QuoteMeta(id)+"/[^/]+")
		if run, ok := strings.CutPrefix(id, process.FlowPrefix); ok {
			job := process.StepPrefix + regexp.QuoteMeta(run) + "/[^/]+"
			list = append(list, job, process.MemberPrefix+job+"/[^/]+")
		}
	}
	return "^(" + strings.Join(list, "|") + ")$"
}

// erasedTable is a table with IDs of processes. In its SQL, is(EXPRESSION) is true for the ID of an
// erased process, x is a row, t a row that is updated, and $1 the namespace.
type erasedTable struct {
	name  string
	key   string // columns of the primary key with their types, without the namespace unless whole
	match string // condition on rows
	set   string // how a row that matches is updated; "" deletes it
	whole bool   // rows of other namespaces can match, or the namespace is not in the primary key
}

const (
	// ofRemoved are rows of a process that has not been started again.
	ofRemoved = "is(x.process_id) AND NOT EXISTS (SELECT FROM processes p " +
		"WHERE p.namespace = x.namespace AND p.process_id = x.process_id)"
	// changeOfErased are changes of a process. Those of runs and steps have the ID of the run.
	changeOfErased = "(is(x.process_id) OR is('~flow/' || x.process_id) AND x.kind IN ('job', 'step', 'run'))"
	sentByErased   = "x.sender_namespace = $1 AND is(x.sender_process_id)"
	endOfErased    = "x.child->>'namespace' = $1 AND is(x.child->>'processId')"
)

// erasedTables are all tables that can have the ID of a process after RemoveProcess. The table
// flow_steps is the last, because it says what a run has started. Tasks of other processes, and
// messages to them, belong to these processes, which would have to be locked: they are not changed.
var erasedTables = []erasedTable{
	{name: "answers", key: "process_id text, task_id bigint", match: "is(x.process_id)"},
	{name: "leases", key: "process_id text", match: ofRemoved},
	{name: "queue_backlogs", key: "process_id text", match: ofRemoved},
	{name: "job_groups", key: "process_id text", match: ofRemoved},
	{name: "job_places", key: "process_id text", match: "is(x.process_id) OR is(x.job_id)"},
	{name: "job_keys", key: "unique_key text", match: "is(x.process_id)"},
	{name: "job_events", key: "xid xid8, event_id bigint", match: "is(x.job_id) OR is('~flow/' || x.job_id)"},
	{name: "constraint_holds", key: "process_id text, line text", match: ofRemoved},
	{name: "constraint_reservations", key: "line text", match: ofRemoved},
	{name: "requests", key: "request_id uuid", match: "x.namespace = $1 AND is(x.process_id)", whole: true},
	{name: "history_restarts", key: "restart_id bigint", match: "x.namespace = $1 AND is(x.process_id)", whole: true},
	{name: "dead_letters", key: "message_id bigint", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR " + sentByErased + " OR " + endOfErased},
	{name: "parents", key: "namespace text, process_id text", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR x.parent_namespace = $1 AND is(x.parent_process_id)"},
	{name: "messages", key: "process_id text, message_id bigint", match: ofRemoved},
	{name: "cron_fires", key: "cron_id text, fire_time timestamptz", match: "is(x.process_id)",
		set: "process_id = erased_id($1, t.process_id), reason = NULL, detail = NULL"},
	{name: "sink_dead_letters", key: "sink_id text, change_id bigint", match: changeOfErased},
	{name: "changes", key: `lane bigint, seq bigint, "time" timestamptz`,
		match: changeOfErased + " OR is(x.details->>'run_id')",
		set: `process_id = CASE
		  WHEN is(t.process_id) OR is('~flow/' || t.process_id) THEN erased_id($1, t.process_id)
		  ELSE t.process_id END,
		  event_id = NULL, from_status = NULL, to_status = NULL, reason = NULL, metadata = NULL, payload = NULL,
		  details = NULL`},
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
	{name: "audit"}, // by erase_audit
	{name: "flow_steps", key: "namespace text, run_id text, step_id text, index int", whole: true,
		match: "coalesce(x.process_namespace, x.namespace) = $1 AND is(x.process_id)",
		set: `process_id = erased_id($1, t.process_id), worker_id = NULL, reason = NULL, input = NULL, result = NULL,
		  failure = NULL, progress = NULL`},
}

// eraseBatch is how many rows of a table one transaction of EraseRows reads.
const eraseBatch = 2000

// erasedIDs matches is(EXPRESSION). The expressions have no parentheses.
var erasedIDs = regexp.MustCompile(`\bis\(([^()]*)\)`)

// eraseAuditSQL has the parameters and the result of statement.
const eraseAuditSQL = `SELECT a.read, a.erased, a.last::text
  FROM erase_audit($1, $2, $3, coalesce($5::text, '0')::bigint, $4, $6) a`

// statement returns the statement that erases a batch. Its parameters are the namespace, the IDs,
// the expression of their parts and the size of the batch, and the last key of the batch before if
// it continues. It returns how many rows it read and erased, and the last key.
func (t *erasedTable) statement(continues, dryRun bool) string {
	var columns, values, joins []string
	for _, column := range strings.Split(t.key, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		columns = append(columns, "x."+name)
		values = append(values, "($5::jsonb->>"+string(rune('0'+len(values)))+")::"+kind)
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
	join := strings.Join(joins, " AND ")
	change := fill("DELETE FROM {table} t USING page WHERE page.matches AND {join} RETURNING 1",
		"{table}", t.name, "{join}", join)
	switch {
	case dryRun:
		change = "SELECT 1 FROM page WHERE page.matches"
	case t.set != "":
		change = fill("UPDATE {table} t SET {set} FROM page WHERE page.matches AND {join} RETURNING 1",
			"{table}", t.name, "{set}", t.set, "{join}", join)
	}
	pageKey := strings.ReplaceAll(key, "x.", "page.")
	statement := fill(`
		WITH page AS MATERIALIZED (
		  SELECT {key}, coalesce({match}, false) AS matches
		    FROM {table} x WHERE {where} ORDER BY {order} LIMIT $4),
		changed AS ({change})
		SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM changed),
		       (SELECT jsonb_build_array({page_key})::text FROM page ORDER BY {descending} DESC LIMIT 1)`,
		"{key}", key, "{match}", t.match, "{table}", t.name, "{where}", where, "{order}", key, "{change}", change,
		"{page_key}", pageKey, "{descending}", strings.ReplaceAll(pageKey, ", ", " DESC, "))
	return erasedIDs.ReplaceAllString(statement, "(($1) = ANY ($$2::text[]) OR ($1) ~ $$3::text)")
}

// Progress is where the next batch of EraseRows begins. The zero value begins with the first
// table.
type Progress struct {
	Table int    `json:"t"`
	After string `json:"a,omitempty"` // the last key in that table, as JSON
}

// Batch is the result of EraseRows.
type Batch struct {
	Table        string
	Rows         int64 // erased
	Read         int64
	LastOfTables bool // all tables were read
}

// EraseRows erases a batch of what tables have of removed processes.
func EraseRows(ctx context.Context, s *storage.Store, e Set, p *Progress) (Batch, error) {
	if p.Table < 0 || p.Table >= len(erasedTables) {
		return Batch{}, process.InvalidPageToken()
	}
	t := &erasedTables[p.Table]
	batch := Batch{Table: t.name}
	args := []any{e.Namespace, e.IDs, e.parts(), eraseBatch}
	statement := eraseAuditSQL
	if t.key == "" {
		args = append(args, nullIfEmpty(p.After), e.DryRun)
	} else if statement = t.statement(p.After != "", e.DryRun); p.After != "" {
		args = append(args, p.After)
	}
	var last *string
	err := s.Write(ctx, "erase rows of "+t.name, func(ctx context.Context, db storage.DB) error {
		return db.QueryRow(ctx, statement, args...).Scan(&batch.Read, &batch.Rows, &last)
	})
	if p.After != "" && strings.HasPrefix(storage.SQLState(err), "22") { // not a key of the table
		return Batch{}, process.InvalidPageToken()
	}
	if err != nil {
		return Batch{}, err
	}
	if batch.Read == eraseBatch && last != nil {
		p.After = *last
		return batch, nil
	}
	*p = Progress{Table: p.Table + 1}
	batch.LastOfTables = p.Table == len(erasedTables)
	return batch, nil
}

func nullIfEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Process is a process that EraseProcess removes.
type Process struct {
	ProcessID string
	Status    process.Status
}

// maxProcesses limits the processes that Processes returns.
const maxProcesses = 1000

// Processes returns the processes of a set with their parts, at most 1,000. Those that are being
// removed are CANCELLED.
func Processes(ctx context.Context, s *storage.Store, e Set) (list []Process, err error) {
	err = s.Search(ctx, "list erased processes", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT p.process_id, CASE WHEN p.removed_time IS NULL THEN p.status ELSE 'CANCELLED' END
			  FROM processes p
			 WHERE p.namespace = $1
			   AND p.process_id = ANY ($2)
			UNION ALL (
			  SELECT p.process_id, CASE WHEN p.removed_time IS NULL THEN p.status ELSE 'CANCELLED' END
			    FROM processes p
			   WHERE p.namespace = $1
			     AND p.process_id >= '~job/'
			     AND p.process_id < '~job0'
			     AND p.process_id ~ $3 LIMIT $4)`, e.Namespace, e.IDs, e.parts(), maxProcesses)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Process])
		return err
	})
	return list, err
}

// CountHistories counts the events and tasks of processes, which RemoveProcesses deletes.
func CountHistories(
	ctx context.Context, s *storage.Store, namespace string, ids []string,
) (events, tasks int64, err error) {
	err = s.Search(ctx, "count histories", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM events e WHERE e.namespace = $1 AND e.process_id = ANY ($2)),
			       (SELECT count(*) FROM tasks t WHERE t.namespace = $1 AND t.process_id = ANY ($2))`,
			namespace, ids).Scan(&events, &tasks)
	})
	return events, tasks, err
}

// Record adds an audit entry for each process of a set, with its hash as the subject.
func Record(ctx context.Context, s *storage.Store, e Set, by process.Actor) error {
	return s.RunLocked(ctx, "record an erasure", nil, func(ctx context.Context, db storage.DB) error {
		rows, err := db.Query(ctx, "SELECT erased_id($1, item.id) FROM unnest($2::text[]) AS item(id)",
			e.Namespace, e.IDs)
		if err != nil {
			return err
		}
		subjects, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			err := storage.AuditCommand(ctx, db, "EraseProcess", e.Namespace, subject, []process.Actor{by})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// MaxChildren limits what EraseProcess erases with a run.
const MaxChildren = 10_000

// StartedBy returns the processes and runs that steps of runs have started in the same namespace
// and that are not erased.
func StartedBy(
	ctx context.Context, s *storage.Store, namespace string, ids []string,
) (started []string, err error) {
	var runs []string
	for _, id := range ids {
		if run, ok := strings.CutPrefix(id, process.FlowPrefix); ok {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return nil, nil
	}
	err = s.Search(ctx, "list what runs have started", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT DISTINCT f.process_id FROM flow_steps f
			 WHERE f.namespace = $1
			   AND f.run_id = ANY ($2)
			   AND coalesce(f.process_namespace, f.namespace) = $1
			   AND NOT starts_with(f.process_id, '~job/')
			   AND NOT starts_with(f.process_id, 'erased:')
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
