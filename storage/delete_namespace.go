package storage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// A namespace is deleted in steps, so that no transaction is large and a node can die at any time.
// RequestDeletion marks the namespace. When all nodes know about the deletion (see UnawareNodes),
// the processes of the namespace are removed as with RemoveProcess. DeleteRows deletes all other
// rows. DeleteNamespace deletes the row of the namespace.

// Deletion selects what a requested deletion may delete.
type Deletion int

const (
	// DeletesEmpty deletes a namespace only if it has no processes, tasks, templates or paused job
	// names.
	DeletesEmpty Deletion = iota
	// DeletesData deletes a namespace with all its data.
	DeletesData
)

// RequestDeletion marks a namespace for deletion. With DeletesData, it also pauses the namespace. A
// repeated request changes nothing, except that DeletesData replaces DeletesEmpty. The error is
// process.ErrNamespaceNotFound if the namespace does not exist.
func (s *Store) RequestDeletion(
	ctx context.Context, namespace string, d Deletion, by ...process.Actor,
) (Namespace, error) {
	var row Namespace
	var change ConfigChange
	err := s.audited(ctx, note{"DeleteNamespace", namespace, namespace, &change}, by, func(db DB) (err error) {
		row, err = s.q.RequestDeletion(ctx, db, dbsqlc.RequestDeletionParams{
			Namespace: namespace, WithData: d == DeletesData,
		})
		change.Before = row.Config
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.GetNamespace(ctx, namespace)
	}
	return row, mapped("delete namespace "+namespace, err)
}

// CancelDeletion cancels the deletion of a namespace that was thought to be empty but has data. It
// does nothing if the deletion was requested with DeletesData.
func (s *Store) CancelDeletion(ctx context.Context, namespace string) error {
	return s.Write(ctx, "cancel the deletion of namespace "+namespace, func(ctx context.Context, db DB) error {
		_, err := s.q.CancelDeletion(ctx, db, namespace)
		return err
	})
}

// DeleteNamespace deletes the row of a namespace whose deletion was requested at the given time.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string, requested time.Time) error {
	return s.Write(ctx, "delete namespace "+namespace, func(ctx context.Context, db DB) error {
		_, err := s.q.DeleteNamespace(ctx, db, dbsqlc.DeleteNamespaceParams{
			Namespace: namespace, RequestedTime: requested,
		})
		return err
	})
}

// AcknowledgeDeletions records the deletions that this node knows about. Each is identified by the
// time of its request. The node accepts no requests for these namespaces.
func (s *Store) AcknowledgeDeletions(ctx context.Context, requested []time.Time) error {
	return s.Write(ctx, "acknowledge deletions of namespaces", func(ctx context.Context, db DB) error {
		return s.q.AcknowledgeDeletions(ctx, db, dbsqlc.AcknowledgeDeletionsParams{
			NodeID: s.nodeID.Load(), Times: requested,
		})
	})
}

// UnawareNodes returns the number of live nodes that may still accept requests for a namespace
// whose deletion was requested at the given time.
func (s *Store) UnawareNodes(ctx context.Context, requested time.Time) (int, error) {
	n, err := s.q.CountUnawareNodes(ctx, s.general, requested)
	return int(n), mapped("count nodes", err)
}

// removeBatch is the number of processes that are removed at a time. Each is an operation of a
// lane.
const removeBatch = 200

// RemoveSomeProcesses removes the next processes of a namespace after an ID. It returns the ID of
// the last removed process, or "" if there was none.
func (s *Store) RemoveSomeProcesses(ctx context.Context, namespace, after string) (last string, err error) {
	ids, err := s.q.ListProcessIDs(ctx, s.general, dbsqlc.ListProcessIDsParams{
		Namespace: namespace, After: after, Lim: removeBatch,
	})
	if err != nil || len(ids) == 0 {
		return "", mapped("list processes", err)
	}
	keys := make([]process.Key, len(ids))
	for n, id := range ids {
		keys[n] = process.Key{Namespace: namespace, ProcessID: id}
	}
	return ids[len(ids)-1], s.RemoveProcesses(ctx, keys)
}

// DropStarts delivers the messages that start processes in a namespace that is being deleted. No
// process is started. The messages become dead letters, and their senders are notified. found
// reports whether there were any.
func (s *Store) DropStarts(ctx context.Context, namespace string) (found bool, err error) {
	ids, err := s.q.ListStartTargets(ctx, s.general, dbsqlc.ListStartTargetsParams{
		Namespace: namespace, Lim: removeBatch,
	})
	if err != nil {
		return false, mapped("list start messages", err)
	}
	for _, id := range ids {
		if _, _, err := s.DeliverMessages(process.Key{Namespace: namespace, ProcessID: id}); err != nil {
			return true, err
		}
	}
	return len(ids) > 0, nil
}

// namespaceTable is a table with a column namespace, other than processes.
type namespaceTable struct {
	name string
	key  []string // the columns of the primary key, without the namespace
	kind string   // name of its rows in counts; "" if they are not counted
	only string   // a further condition on the rows (x) that are deleted, or ""
	// walked is set if the primary key lacks the namespace. Then the whole table is read once.
	walked bool
}

// namespaceTables are all tables with a column namespace, except for processes, namespaces and
// audit. The entries of audit are kept. Tables whose rows refer to others come first. DropStarts
// handles start messages.
var namespaceTables = []namespaceTable{
	{name: "leases", key: []string{"process_id"}},
	{name: "running", key: []string{"process_id"}, kind: "running_tasks"},
	{name: "schedule", key: []string{"process_id", "task_id"}, kind: "waiting_tasks"},
	{name: "queue_backlogs", key: []string{"process_id"}},
	{name: "messages", key: []string{"process_id", "message_id"}, kind: "messages", only: "x.kind <> 'start'"},
	{name: "parents", key: []string{"process_id"}},
	{name: "events", key: []string{"process_id", "event_id"}, kind: "events"},
	{name: "failed_attempts", key: []string{"process_id", "task_id", "attempt"}},
	{name: "tasks", key: []string{"process_id", "task_id"}, kind: "ended_tasks"},
	{name: "job_places", key: []string{"process_id"}},
	{name: "job_groups", key: []string{"process_id"}},
	{name: "jobs", key: []string{"process_id"}},
	{name: "job_keys", key: []string{"unique_key"}, kind: "unique_keys"},
	{name: "job_pauses", key: []string{"name"}, kind: "paused_job_names"},
	{name: "job_events", key: []string{"lane", "event_id"}, kind: "job_events"},
	{name: "job_event_drops", key: []string{"lane"}},
	{name: "constraint_holds", key: []string{"process_id", "line"}},
	{name: "constraint_reservations", key: []string{"line"}},
	{name: "constraint_buckets", key: []string{"line"}},
	{name: "constraints", key: []string{"name"}, kind: "constraints"},
	{name: "constraint_sets"},
	{name: "flow_steps", key: []string{"run_id", "step_id", "index"}},
	{name: "flow_scopes", key: []string{"template_type", "dedupe_key", "run_id"}},
	{name: "flow_runs", key: []string{"run_id"}},
	{name: "flow_templates", key: []string{"template_type", "version"}},
	{name: "flow_types", key: []string{"template_type"}, kind: "templates"},
	{name: "cron_fires", key: []string{"cron_id", "fire_time"}, kind: "cron_fires"},
	{name: "sinks", key: []string{"sink_id"}, kind: "sinks"}, // first, so that no dead letter is added
	{name: "sink_dead_letters", key: []string{"sink_id", "change_id"}},
	{name: "changes", key: []string{"lane", "seq"}, kind: "changes"},
	{name: "change_drops", key: []string{"lane"}},
	{name: "change_heads", key: []string{"lane"}},
	{name: "workers", key: []string{"worker_id"}, kind: "workers"},
	{name: "answers", key: []string{"process_id", "task_id"}, kind: "answers"},
	{name: "status_counts", key: []string{"lane", "status"}},
	{name: "job_counts", key: []string{"name", "lane", "state"}},
	{name: "requests", key: []string{"request_id"}, kind: "idempotency_keys", walked: true},
	{name: "history_restarts", key: []string{"restart_id"}, walked: true},
	{name: "dead_letters", key: []string{"message_id"}, kind: "dead_letters", walked: true},
}

// deleteBatch limits the rows of a table that one transaction deletes, or reads if the table is
// walked.
const deleteBatch = 1000

// fill inserts the names of tables and columns into a statement, because they cannot be parameters.
func fill(statement string, names ...string) string {
	return strings.NewReplacer(names...).Replace(statement)
}

// deleteSQL returns the statement that deletes a batch of rows of a namespace ($1, at most $2). The
// statement returns how many rows it read and deleted, and the last key as a JSON object. If
// continues is set, it begins after the last key of the previous batch ($3), so that it does not
// read the dead rows of all earlier batches.
func (t *namespaceTable) deleteSQL(continues bool) string {
	var key, after, descending []string
	join := "t.namespace = ANY (ARRAY[page.namespace])"
	for _, column := range t.key {
		key = append(key, "x."+column)
		after = append(after, fill("(jsonb_populate_record(NULL::{table}, $3::jsonb)).", "{table}", t.name)+column)
		descending = append(descending, "page."+column+" DESC")
		join += " AND t." + column + " = page." + column
	}
	columns := strings.Join(append([]string{"x.namespace"}, key...), ", ")
	where, order, last := "x.namespace = $1", columns, "NULL"
	if t.walked {
		where, order = "true", strings.Join(key, ", ")
		join += " AND t.namespace = $1"
	}
	if len(key) > 0 {
		last = fill("SELECT to_jsonb(page)::text FROM page ORDER BY {descending} LIMIT 1", "{descending}",
			strings.Join(descending, ", "))
	}
	if continues {
		where += " AND (" + strings.Join(key, ", ") + ") > (" + strings.Join(after, ", ") + ")"
	}
	if t.only != "" {
		where += " AND " + t.only
	}
	return fill(`
		WITH page AS MATERIALIZED (
		  SELECT {columns} FROM {table} x WHERE {where} ORDER BY {order} LIMIT $2),
		deleted AS (
		  DELETE FROM {table} t USING page WHERE {join} RETURNING 1)
		SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM deleted), ({last})`,
		"{columns}", columns, "{table}", t.name, "{where}", where, "{order}", order, "{join}", join, "{last}", last)
}

// DeletionProgress is the start of the next batch of DeleteRows. The zero value begins with the
// first table.
type DeletionProgress struct {
	table     int
	after     string // the last key in that table, as JSON
	continues bool
}

// DeleteRows deletes one batch of the rows of a namespace whose processes were removed. It returns
// the number of deleted rows. ended is true if all tables have been read. The next call then begins
// with the first table.
func (s *Store) DeleteRows(
	ctx context.Context, namespace string, p *DeletionProgress,
) (deleted int, ended bool, err error) {
	t := &namespaceTables[p.table]
	args := []any{namespace, deleteBatch}
	if p.continues {
		args = append(args, p.after)
	}
	var read int
	var last *string
	err = s.Write(ctx, "delete rows of "+t.name, func(ctx context.Context, db DB) error {
		return db.QueryRow(ctx, t.deleteSQL(p.continues), args...).Scan(&read, &deleted, &last)
	})
	if err != nil {
		return 0, false, err
	}
	if read == deleteBatch && last != nil {
		p.after, p.continues = *last, true
		return deleted, false, nil
	}
	*p = DeletionProgress{table: p.table + 1}
	if p.table == len(namespaceTables) {
		p.table, ended = 0, true
	}
	return deleted, ended, nil
}

// KindCount is the number of objects of a kind in a namespace.
type KindCount struct {
	Kind, Status string
	N            int64
	OrMore       bool // not all were counted
}

// CountData counts the objects in a namespace by kind. It reads the numbers of processes and jobs
// from counters, and counts the objects of every other kind up to limit. scope decides whether it
// also counts rows of tables without an index on the namespace.
func (s *Store) CountData(
	ctx context.Context, namespace string, limit int, scope CountScope,
) (counts []KindCount, err error) {
	err = s.Search(ctx, "count the data of namespace "+namespace, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, countStatusesSQL, namespace, limit)
		if err != nil {
			return err
		}
		if counts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[KindCount]); err != nil {
			return err
		}
		for n := range namespaceTables {
			t := &namespaceTables[n]
			if t.kind == "" || t.walked && scope == CountsIndexed {
				continue
			}
			c := KindCount{Kind: t.kind}
			if err := tx.QueryRow(ctx, t.countSQL(), namespace, limit).Scan(&c.N, &c.OrMore); err != nil {
				return err
			}
			counts = append(counts, c)
		}
		return nil
	})
	counts = slices.DeleteFunc(counts, func(c KindCount) bool { return c.N <= 0 })
	return counts, err
}

// CountScope selects the tables that CountData reads.
type CountScope int

const (
	// CountsIndexed counts only rows that an index finds.
	CountsIndexed CountScope = iota
	// CountsAll also counts rows of tables without an index on the namespace. It reads at most
	// limit rows of such a table.
	CountsAll
)

// countStatusesSQL counts processes, jobs, runs and crons of a namespace ($1). It counts runs and
// crons up to $2.
const countStatusesSQL = `
	SELECT 'processes', c.status::text, sum(c.n)::bigint, false
	  FROM status_counts c WHERE c.namespace = $1 GROUP BY c.status
	UNION ALL
	SELECT 'jobs', c.state, sum(c.n)::bigint, false
	  FROM job_counts c WHERE c.namespace = $1 GROUP BY c.state
	UNION ALL
	SELECT 'runs', '', count(*), count(*) = $2
	  FROM (SELECT FROM flow_runs r WHERE r.namespace = $1 LIMIT $2) run
	UNION ALL
	SELECT 'crons', '', count(*), count(*) = $2
	  FROM (
	    SELECT FROM processes p
	     WHERE p.namespace = $1
	       AND p.process_id >= '~cron/'
	       AND p.process_id < '~cron0'
	       AND p.removed_time IS NULL LIMIT $2) cron
	 ORDER BY 1 DESC, 2`

// countSQL returns the statement that counts the rows of a namespace ($1), up to $2.
func (t *namespaceTable) countSQL() string {
	statement := "SELECT count(*), count(*) = $2 FROM (SELECT FROM {table} x WHERE x.namespace = $1 LIMIT $2) found"
	if t.walked {
		statement = `SELECT count(*) FILTER (WHERE found.namespace = $1), count(*) = $2
		  FROM (SELECT x.namespace FROM {table} x LIMIT $2) found`
	}
	return fill(statement, "{table}", t.name)
}

// HasData returns the counts that keep a namespace from being empty: processes, tasks, templates
// and paused job names.
func HasData(counts []KindCount) (held []KindCount) {
	for _, c := range counts {
		switch c.Kind {
		case "processes", "running_tasks", "waiting_tasks", "templates", "paused_job_names":
			held = append(held, c)
		}
	}
	return held
}
