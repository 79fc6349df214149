-- WriteJobEvents writes the events of results. It runs after SaveResult and RemoveProcesses and
-- applies only to items whose task row this transaction has written, like WriteJobs: a fenced item
-- writes nothing. Each attempt is searched once, because a run has several events. They are stored
-- in the order of the arrays, which nothing below changes.
-- name: WriteJobEvents :exec
WITH a AS MATERIALIZED (
  SELECT x.ord
    FROM (SELECT unnest(@checks::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
                 unnest(@fencing_tokens::bigint[]) AS fencing_token) AS x
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT 1 FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
        AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT 1 FROM answers a WHERE a.namespace = x.namespace AND a.process_id = x.process_id AND a.task_id = x.task_id
        AND a.fencing_token = x.fencing_token AND a.xmin = pg_current_xact_id()::xid
     LIMIT 1) e)
INSERT INTO job_events (namespace, xid, job_id, step_id, index, type, from_status, to_status, attempt, worker_id, actor, message, metadata)
SELECT x.namespace, (SELECT job_event_xid()), x.job_id, NULLIF(x.step_id, ''), NULLIF(x.index, -1), x.type, NULLIF(x.from_status, ''), NULLIF(x.to_status, ''),
       x.attempt, NULLIF(x.worker_id, ''), NULLIF(x.actor, ''), NULLIF(x.message, ''), NULLIF(x.metadata, '')::jsonb
  FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@event_namespaces::text[]) AS namespace, unnest(@job_ids::text[]) AS job_id, unnest(@step_ids::text[]) AS step_id,
               unnest(@indexes::int[]) AS index, unnest(@types::text[]) AS type, unnest(@from_statuses::text[]) AS from_status, unnest(@to_statuses::text[]) AS to_status,
               unnest(@attempts::int[]) AS attempt, unnest(@worker_ids::text[]) AS worker_id, unnest(@actors::text[]) AS actor, unnest(@messages::text[]) AS message,
               unnest(@metadatas::text[]) AS metadata) AS x
 WHERE (x.ord IN (SELECT a.ord FROM a)) IS TRUE;

-- EndJobs stores events and counts for ended attempts of jobs, except those that SaveCompleted has
-- ended. It runs directly after SaveResult, before other statements move the jobs, and selects its
-- items like WriteJobs. For an attempt that would be retried although a cancel was requested, it
-- stores only the end of the attempt; CancelRetried stores the end of the job. name '': it is read
-- from the row.
-- name: EndJobs :exec
WITH i AS MATERIALIZED (
  SELECT x.namespace, x.process_id, x.attempt, x.worker_id, x.type, x.message, x.mode, p.cancelling,
         coalesce(NULLIF(x.name, ''), (SELECT j.name FROM jobs j WHERE j.namespace = x.namespace AND j.process_id = x.process_id)) AS name,
         coalesce(e.state, CASE p.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'CANCELLED' THEN 'cancelled' ELSE 'failed' END) AS state, e.state IS NULL AS ended
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]), unnest(@names::text[]),
                    unnest(@attempts::int[]), unnest(@worker_ids::text[]), unnest(@types::text[]), unnest(@messages::text[]), unnest(@modes::int[]))
         AS x(namespace, process_id, task_id, fencing_token, name, attempt, worker_id, type, message, mode)
   CROSS JOIN LATERAL (
     SELECT NULL::text AS state FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT CASE WHEN s.waits_for <> 'time' THEN 'available' WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END
       FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
        AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid
     LIMIT 1) e
   CROSS JOIN LATERAL (SELECT p.status, p.cancel_requested_time IS NOT NULL AS cancelling FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id LIMIT 1) p),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id, message)
  SELECT i.namespace, (SELECT job_event_xid()), i.process_id, i.type, CASE WHEN NOT i.cancelling THEN 'running' WHEN i.ended THEN 'cancel_requested' END,
         CASE WHEN NOT i.cancelling OR i.ended THEN i.state END, i.attempt, NULLIF(i.worker_id, ''), NULLIF(i.message, '')
    FROM i WHERE i.mode = 2 OR i.mode = 1 AND i.ended)
INSERT INTO job_counts (namespace, name, state, n)
SELECT i.namespace, i.name, x.state, sum(x.n) FROM i CROSS JOIN LATERAL (VALUES ('available', -1), (i.state, 1)) AS x(state, n)
 GROUP BY i.namespace, i.name, x.state HAVING sum(x.n) <> 0 ORDER BY i.namespace, i.name, x.state
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;

-- WatchJobEvents returns the events after positions in the order of a watch, at most lim for each,
-- up to the oldest running transaction.
-- name: WatchJobEvents :many
SELECT n.ord::int AS ord, e.namespace, e.xid::text AS xid, e.event_id, e.job_id, coalesce(e.step_id, '')::text AS step_id, coalesce(e.index, -1)::int AS index, e.type,
       coalesce(e.from_status, '')::text AS from_status, coalesce(e.to_status, '')::text AS to_status, e.attempt, e.created_time, coalesce(e.worker_id, '')::text AS worker_id,
       coalesce(e.actor, '')::text AS actor, coalesce(e.message, '')::text AS message, e.metadata
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@xids::text[]), unnest(@event_ids::bigint[])) AS n(ord, namespace, xid, event_id)
 CROSS JOIN LATERAL (
   SELECT e.* FROM job_events e
    WHERE e.namespace = n.namespace AND (e.xid, e.event_id) > (n.xid::xid8, n.event_id) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.namespace, e.xid, e.event_id LIMIT @lim::int) e
 ORDER BY n.ord, e.xid, e.event_id;

-- EventsFromNow returns the position after all finished events.
-- name: EventsFromNow :one
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xid;

-- IsAhead reports whether this cluster has not yet reached a position: it is from another cluster,
-- or from a time that a restore has undone.
-- name: IsAhead :one
SELECT (n.xid::xid8 > pg_snapshot_xmax(pg_current_snapshot()))::bool AS ahead FROM (SELECT @xid::text AS xid) n;

-- ForgetJobEvents deletes events that a namespace no longer keeps, oldest first, lim at a time.
-- name: ForgetJobEvents :execrows
DELETE FROM job_events e USING (
  SELECT d.* FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[])) AS n(namespace, retention_us)
   CROSS JOIN LATERAL (
    SELECT x.namespace, x.xid, x.event_id FROM (
      SELECT v.namespace, v.xid, v.event_id, v.created_time FROM job_events v WHERE v.namespace = n.namespace ORDER BY v.namespace, v.xid, v.event_id LIMIT @lim::int) x
     WHERE x.created_time < statement_timestamp() - n.retention_us * interval '1 microsecond') d) k
 WHERE e.namespace = ANY (ARRAY[k.namespace]) AND e.xid = k.xid AND e.event_id = k.event_id;

-- EmptyJobNames returns names without jobs.
-- name: EmptyJobNames :many
SELECT x.namespace, x.name FROM (SELECT c.namespace, c.name, c.state, sum(c.n) AS n FROM job_counts c GROUP BY c.namespace, c.name, c.state) x
 GROUP BY x.namespace, x.name HAVING bool_and(x.n = 0) LIMIT @lim::int;

-- LockJobCounts locks the counts of names and returns their current values.
-- name: LockJobCounts :many
SELECT c.namespace, c.name, c.lane, c.state, c.n FROM job_counts c
 WHERE (c.namespace, c.name) IN (SELECT k.namespace, k.name FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@names::text[])) AS k(namespace, name))
 ORDER BY c.namespace, c.name, c.lane, c.state FOR UPDATE;

-- name: DropJobCounts :exec
DELETE FROM job_counts c USING ROWS FROM (unnest(@namespaces::text[]), unnest(@names::text[]), unnest(@lanes::int[]), unnest(@states::text[])) AS k(namespace, name, lane, state)
 WHERE c.namespace = k.namespace AND c.name = k.name AND c.lane = k.lane AND c.state = k.state;

-- ReadJobCounts returns the number of jobs of namespaces by name and state. running are those that
-- run; they count as available.
-- name: ReadJobCounts :many
SELECT c.namespace, c.name, c.state::text AS state, sum(c.n)::bigint AS n FROM job_counts c WHERE c.namespace = ANY (@namespaces::text[])
 GROUP BY c.namespace, c.name, c.state
UNION ALL
SELECT r.namespace, j.name, CASE WHEN p.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, count(*)
  FROM running r CROSS JOIN LATERAL (SELECT p.kind, p.cancel_deadline FROM processes p WHERE p.namespace = r.namespace AND p.process_id = r.process_id LIMIT 1) p
 CROSS JOIN LATERAL (SELECT j.name FROM jobs j WHERE p.kind = 'job' AND j.namespace = r.namespace AND j.process_id = r.process_id LIMIT 1) j
 WHERE r.namespace = ANY (@namespaces::text[]) GROUP BY 1, 2, 3;

-- OldestAvailable returns how long (µs) the oldest job of each namespace and name has been
-- available: among the first lim of each priority and of each key of a constraint. Each of them
-- costs one index probe; there are at most most of them.
-- name: OldestAvailable :many
WITH RECURSIVE p AS (
  SELECT n.namespace::text AS namespace, f.job_name, f.priority, 1 AS n FROM unnest(@namespaces::text[]) AS n(namespace)
   CROSS JOIN LATERAL (SELECT s.job_name, s.priority FROM schedule s WHERE s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place' AND s.job_name IS NOT NULL
                        ORDER BY s.job_name, s.priority LIMIT 1) f
  UNION ALL
  SELECT p.namespace, f.job_name, f.priority, p.n + 1 FROM p
   CROSS JOIN LATERAL (SELECT s.job_name, s.priority FROM schedule s WHERE s.namespace COLLATE "POSIX" = p.namespace AND s.waits_for = 'place' AND s.job_name IS NOT NULL
                          AND (s.job_name, s.priority) > (p.job_name, p.priority) ORDER BY s.job_name, s.priority LIMIT 1) f
   WHERE p.n < @most::int),
l AS (
  SELECT n.namespace::text AS namespace, f.line, 1 AS n FROM unnest(@namespaces::text[]) AS n(namespace)
   CROSS JOIN LATERAL (SELECT s.line FROM schedule s WHERE s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'constraint' ORDER BY s.line LIMIT 1) f
  UNION ALL
  SELECT l.namespace, f.line, l.n + 1 FROM l
   CROSS JOIN LATERAL (SELECT s.line FROM schedule s WHERE s.namespace COLLATE "POSIX" = l.namespace AND s.waits_for = 'constraint' AND s.line > l.line ORDER BY s.line LIMIT 1) f
   WHERE l.n < @most::int)
SELECT x.namespace, x.job_name::text AS name, (extract(epoch FROM statement_timestamp() - min(x.scheduled_time)) * 1000000)::bigint AS age_us FROM (
  SELECT p.namespace, f.* FROM p CROSS JOIN LATERAL (
    SELECT s.job_name, s.scheduled_time FROM schedule s WHERE s.namespace COLLATE "POSIX" = p.namespace AND s.waits_for = 'place' AND s.job_name IS NOT NULL
       AND s.job_name = p.job_name AND s.priority = p.priority ORDER BY s.task_id LIMIT @lim::int) f
  UNION ALL
  SELECT l.namespace, f.* FROM l CROSS JOIN LATERAL (
    SELECT s.job_name, s.scheduled_time FROM schedule s WHERE s.namespace COLLATE "POSIX" = l.namespace AND s.waits_for = 'constraint' AND s.line = l.line
     ORDER BY s.priority, s.task_id LIMIT @lim::int) f) x
 GROUP BY x.namespace, x.job_name;
