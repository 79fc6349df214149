package erasure

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Process is a process that EraseProcess removes.
type Process struct {
	ProcessID   string
	Status      process.Status
	CreatedTime time.Time
}

// Stopped reports whether the process has ended or is suspended.
func (p Process) Stopped() bool {
	return p.Status != process.StatusInit && p.Status != process.StatusRunning
}

// Check returns an error if a process cannot be erased.
func (e Set) Check(p Process) error {
	var reason string
	switch {
	case !p.Stopped():
		reason = "only a process that has ended or is suspended can be erased: cancel or suspend it first"
	case e.CreatedBefore != nil && !p.CreatedTime.Before(*e.CreatedBefore):
		reason = "it was created at " + p.CreatedTime.UTC().Format(time.RFC3339) +
			", which is not before created_before (" + e.CreatedBefore.UTC().Format(time.RFC3339) + ")"
	default:
		return nil
	}
	return &process.WrongStatusError{
		Key: process.Key{Namespace: e.Namespace, ProcessID: p.ProcessID}, Status: p.Status, Reason: reason,
	}
}

// maxProcesses limits the processes that Processes returns.
const maxProcesses = 1000

// processesSQL returns the processes of a set with their parts. depth is the number of slashes
// after the prefix of a part. A process that is being removed is listed as CANCELLED.
const processesSQL = `
	SELECT p.process_id, CASE WHEN p.removed_time IS NULL THEN p.status ELSE 'CANCELLED' END AS status,
	       p.created_time
	  FROM processes p
	 WHERE p.namespace = @namespace
	   AND p.process_id = ANY (@ids::text[])
	UNION ALL
	SELECT part.process_id, part.status, part.created_time
	  FROM unnest(@prefixes::text[], @depths::int[]) AS item(prefix, depth)
	 CROSS JOIN LATERAL (
	   SELECT p.process_id, CASE WHEN p.removed_time IS NULL THEN p.status ELSE 'CANCELLED' END AS status,
	          p.created_time
	     FROM processes p
	    WHERE p.namespace = @namespace
	      AND p.process_id > item.prefix
	      AND p.process_id < left(item.prefix, -1) || '0'
	      AND regexp_count(substr(p.process_id, length(item.prefix) + 1), '/') = item.depth) part`

// args returns the parameters of processesSQL.
func (e Set) args() pgx.NamedArgs {
	var prefixes []string
	var depths []int32
	for _, part := range e.partPrefixes() {
		prefixes, depths = append(prefixes, part.prefix), append(depths, part.depth)
	}
	return pgx.NamedArgs{
		"namespace": e.Namespace, "ids": e.IDs, "prefixes": prefixes, "depths": depths, "dry_run": e.DryRun,
		"created_before": e.CreatedBefore,
	}
}

// Processes returns the processes of a set with their parts, at most 1,000. A process that is being
// removed is listed as CANCELLED.
func Processes(ctx context.Context, s *storage.Store, e Set) (list []Process, err error) {
	return listProcesses(ctx, s, e, "true", maxProcesses)
}

// NotErasable returns a process of a set that cannot be erased, if there is one.
func NotErasable(ctx context.Context, s *storage.Store, e Set) (list []Process, err error) {
	const condition = "p.status IN ('INIT', 'RUNNING') OR p.created_time >= @created_before"
	return listProcesses(ctx, s, e, condition, 1)
}

func listProcesses(
	ctx context.Context, s *storage.Store, e Set, condition string, limit int,
) (list []Process, err error) {
	args := e.args()
	args["limit"] = limit
	err = s.Search(ctx, "list erased processes", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT p.process_id, p.status, p.created_time FROM ("+processesSQL+") p WHERE "+
			condition+" LIMIT @limit", args)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Process])
		return err
	})
	return list, err
}

// CountHistories counts the events and tasks that RemoveStopped deletes with these processes.
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

// Record adds an audit entry for each process of a set, with its hash as the subject. It skips an
// ID if the actor has added an entry for it within the given time.
func Record(ctx context.Context, s *storage.Store, e Set, by process.Actor, within time.Duration) error {
	return s.RunLocked(ctx, "record an erasure", nil, func(ctx context.Context, db storage.DB) error {
		rows, err := db.Query(ctx, `
			SELECT item.subject
			  FROM (SELECT erased_id($1, id) AS subject FROM unnest($2::text[]) AS id) item
			 WHERE NOT EXISTS (
			   SELECT FROM audit a
			    WHERE a.namespace = $1
			      AND a.method = 'EraseProcess'
			      AND a.subject = item.subject
			      AND a.actor = $3
			      AND a.time > statement_timestamp() - $4::interval)`, e.Namespace, e.IDs, by.Name, within)
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
