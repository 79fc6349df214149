-- WriteJobEvents stores the events of results. It runs after SaveResult and RemoveProcesses, and
-- selects its items like WriteJobs, so a fenced item writes nothing. The result of a run has
-- several events. Therefore the attempts are in arrays of their own (checks and the four after it),
-- and each event refers to its attempt (ords). The events are stored in the order of the arrays.
-- name: WriteJobEvents :exec
WITH accepted AS MATERIALIZED (
  SELECT attempt.ord FROM (
    SELECT unnest(@checks::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
           unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
           unnest(@fencing_tokens::bigint[]) AS fencing_token) AS attempt
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = attempt.namespace
        AND t.process_id = attempt.process_id
        AND t.task_id = attempt.task_id
        AND t.fencing_token = attempt.fencing_token
        AND is_saved(attempt.fencing_token)
     UNION ALL
     SELECT 1 FROM schedule s
      WHERE s.namespace = attempt.namespace
        AND s.process_id = attempt.process_id
        AND s.task_id = attempt.task_id
        AND s.fencing_token = attempt.fencing_token
        AND is_saved(attempt.fencing_token)
     UNION ALL
     SELECT 1 FROM answers a
      WHERE a.namespace = attempt.namespace
        AND a.process_id = attempt.process_id
        AND a.task_id = attempt.task_id
        AND a.fencing_token = attempt.fencing_token
        AND is_saved(attempt.fencing_token)
      LIMIT 1) ended)
INSERT INTO job_events (namespace, xid, job_id, of_run, step_id, index, type, from_status,
                        to_status, attempt, worker_id, actor, message, metadata)
SELECT item.namespace,
       (SELECT job_event_xid()),
       item.job_id, NULLIF(item.of_run, false), NULLIF(item.step_id, ''), NULLIF(item.index, -1),
       item.type,
       NULLIF(item.from_status, ''), NULLIF(item.to_status, ''), item.attempt,
       NULLIF(item.worker_id, ''), NULLIF(item.actor, ''), NULLIF(item.message, ''),
       NULLIF(item.metadata, '')::jsonb
  FROM (
    SELECT unnest(@ords::int[]) AS ord, unnest(@event_namespaces::text[]) AS namespace,
           unnest(@job_ids::text[]) AS job_id, unnest(@of_runs::bool[]) AS of_run,
           unnest(@step_ids::text[]) AS step_id, unnest(@indexes::int[]) AS index,
           unnest(@types::text[]) AS type,
           unnest(@from_statuses::text[]) AS from_status, unnest(@to_statuses::text[]) AS to_status,
           unnest(@attempts::int[]) AS attempt, unnest(@worker_ids::text[]) AS worker_id,
           unnest(@actors::text[]) AS actor, unnest(@messages::text[]) AS message,
           unnest(@metadatas::text[]) AS metadata) AS item
 WHERE (item.ord IN (SELECT accepted.ord FROM accepted)) IS TRUE;

-- EndJobs stores events and counts for ended attempts of jobs, except those that SaveCompleted has
-- ended. It runs directly after SaveResult, before other statements move the jobs, and selects its
-- items like WriteJobs. If an attempt would be retried although a cancel was requested, EndJobs
-- stores only the end of the attempt, and EndIfCancelled stores the end of the job. If the name of
-- an item is empty, EndJobs reads it from the table jobs. mode is the storage.EventMode of the
-- namespace.
-- name: EndJobs :exec
WITH input AS MATERIALIZED (
  SELECT item.namespace, item.process_id, item.attempt, item.worker_id, item.type, item.message,
         item.mode, process.cancelling,
         coalesce(NULLIF(item.name, ''),
                  (
                    SELECT j.name FROM jobs j
                     WHERE j.namespace = item.namespace
                       AND j.process_id = item.process_id)) AS name,
         coalesce(ended.state,
                  CASE process.status
                    WHEN 'COMPLETED' THEN 'succeeded'
                    WHEN 'CANCELLED' THEN 'cancelled'
                    ELSE 'failed'
                  END) AS state,
         ended.state IS NULL AS ended
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@names::text[]), unnest(@attempts::int[]), unnest(@worker_ids::text[]),
                    unnest(@types::text[]), unnest(@messages::text[]), unnest(@modes::int[]))
         AS item(namespace, process_id, task_id, fencing_token, name, attempt, worker_id, type,
                 message, mode)
   CROSS JOIN LATERAL (
     SELECT NULL::text AS state FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
     UNION ALL
     SELECT CASE
              WHEN s.waits_for <> 'time' THEN 'available'
              WHEN s.attempt > 0 THEN 'retryable'
              ELSE 'scheduled'
            END
       FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id
        AND s.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended
   CROSS JOIN LATERAL (
     SELECT p.status, p.cancel_requested_time IS NOT NULL AS cancelling
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id,
                          message)
  SELECT input.namespace,
         (SELECT job_event_xid()),
         input.process_id, input.type,
         CASE WHEN NOT input.cancelling THEN 'running' WHEN input.ended THEN 'cancel_requested' END,
         CASE WHEN NOT input.cancelling OR input.ended THEN input.state END,
         input.attempt, NULLIF(input.worker_id, ''), NULLIF(input.message, '')
    FROM input
   WHERE input.mode = 2
      OR input.mode = 1 AND input.ended)
INSERT INTO job_counts (namespace, name, state, n)
SELECT input.namespace, input.name, change.state, sum(change.n)
  FROM input
 CROSS JOIN LATERAL (VALUES ('available', -1), (input.state, 1)) AS change(state, n)
 WHERE NOT starts_with(input.process_id, '~job/~/')
 GROUP BY input.namespace, input.name, change.state HAVING sum(change.n) <> 0
 ORDER BY input.namespace, input.name, change.state
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;

-- WatchJobEvents returns events after given positions in the order of their numbers, at most lim
-- for each position. A position is a JSON object with the number of the last event of each lane.
-- All lanes are read from one snapshot: if an event of a job is visible, so is every earlier one,
-- because it was committed before the job was locked again. If a position has no events, it returns
-- one row with event_id 0. lost reports that events after the position were deleted.
-- name: WatchJobEvents :many
SELECT item.ord::int AS ord,
       (SELECT g.generation FROM database_generation g WHERE g.one_row)::uuid AS generation,
       item.lost::bool AS lost, item.namespace::text AS namespace,
       coalesce(event.lane, 0)::bigint AS lane,
       coalesce(event.event_id, 0)::bigint AS event_id, coalesce(event.job_id, '')::text AS job_id,
       coalesce(event.step_id, '')::text AS step_id, coalesce(event.index, -1)::int AS index,
       coalesce(event.type, '')::text AS type,
       coalesce(event.from_status, '')::text AS from_status,
       coalesce(event.to_status, '')::text AS to_status, coalesce(event.attempt, 0)::int AS attempt,
       coalesce(event.created_time, 'epoch')::timestamptz AS created_time,
       coalesce(event.worker_id, '')::text AS worker_id, coalesce(event.actor, '')::text AS actor,
       coalesce(event.message, '')::text AS message, event.metadata,
       coalesce(event.of_run, event.step_id IS NOT NULL)::bool AS of_run
  FROM (
    SELECT listed.ord, listed.namespace, listed.position::jsonb AS position, EXISTS (
             SELECT 1 FROM job_event_drops d
              WHERE d.namespace = listed.namespace
                AND d.event_id > coalesce((listed.position::jsonb->>d.lane::text)::bigint, 0)
             ) AS lost
      FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@positions::text[]))
           AS listed(ord, namespace, position) OFFSET 0) item
  LEFT JOIN LATERAL (
   SELECT found.*
     FROM job_event_lanes l
    CROSS JOIN LATERAL (
      SELECT e.* FROM job_events e
       WHERE e.namespace = item.namespace
         AND e.lane = l.lane
         AND e.event_id > coalesce((item.position->>l.lane::text)::bigint, 0)
       ORDER BY e.namespace, e.lane, e.event_id LIMIT @lim::int) found
    ORDER BY found.event_id LIMIT @lim::int) event ON true
 ORDER BY item.ord, event.event_id;

-- ReadJobEventHeads returns, for each lane, the number of the last event of a namespace, or of the
-- last deleted event if that is later. deleted_id is the number of the last deleted event.
-- name: ReadJobEventHeads :many
SELECT g.generation, l.lane, greatest(last.event_id, d.event_id, 0)::bigint AS event_id,
       coalesce(d.event_id, 0)::bigint AS deleted_id
  FROM database_generation g
 CROSS JOIN job_event_lanes l
  LEFT JOIN job_event_drops d
    ON d.namespace = @namespace
   AND d.lane = l.lane
  LEFT JOIN LATERAL (
    SELECT e.event_id
      FROM job_events e
     WHERE e.namespace = @namespace
       AND e.lane = l.lane
     ORDER BY e.namespace DESC, e.lane DESC, e.event_id DESC LIMIT 1) last ON true;

-- TranslateEventCursor returns, for each lane, the position of a cursor that an older engine has
-- issued. Such a cursor consists of a transaction ID and the number of an event. A watch that
-- begins at these positions gets all events after the cursor. It may get some events again, because
-- lanes do not have the order of transaction IDs. The statement reads all events of the namespace,
-- because no index contains transaction IDs. is_ahead reports that the cursor is ahead of the
-- database: it comes from another database, or from commits that a restore has lost.
-- name: TranslateEventCursor :many
WITH item AS MATERIALIZED (
  SELECT @namespace::text AS namespace, @xid::text AS xid, @event_id::bigint AS event_id),
next_events AS MATERIALIZED (
  SELECT e.lane, min(e.event_id) AS event_id
    FROM item
    JOIN job_events e
      ON e.namespace = item.namespace
     AND (e.xid, e.event_id) > (item.xid::xid8, item.event_id)
   GROUP BY e.lane)
SELECT g.generation, l.lane,
       greatest(coalesce(next_events.event_id - 1, last.event_id), d.event_id, 0)::bigint
         AS event_id,
       (item.xid::xid8 > pg_snapshot_xmax(pg_current_snapshot()))::bool AS is_ahead
  FROM database_generation g
 CROSS JOIN item
 CROSS JOIN job_event_lanes l
  LEFT JOIN next_events
    ON next_events.lane = l.lane
  LEFT JOIN job_event_drops d
    ON d.namespace = item.namespace
   AND d.lane = l.lane
  LEFT JOIN LATERAL (
    SELECT e.event_id
      FROM job_events e
     WHERE e.namespace = item.namespace
       AND e.lane = l.lane
     ORDER BY e.namespace DESC, e.lane DESC, e.event_id DESC LIMIT 1) last ON true;

-- ForgetJobEvents deletes the events of namespaces that are older than their retention, at most lim
-- of each lane, oldest first. It records the last deleted event of each lane.
-- name: ForgetJobEvents :execrows
WITH expired AS MATERIALIZED (
  SELECT item.namespace, l.lane, old.event_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[]))
         AS item(namespace, retention_us)
   CROSS JOIN job_event_lanes l
   CROSS JOIN LATERAL (
     SELECT statement_timestamp() - item.retention_us * interval '1 microsecond' AS kept_since
      OFFSET 0) limits
   CROSS JOIN LATERAL (
     SELECT e.created_time
       FROM job_events e
      WHERE e.namespace = item.namespace
        AND e.lane = l.lane
      ORDER BY e.namespace, e.lane, e.event_id LIMIT 1) oldest
   CROSS JOIN LATERAL (
     SELECT first.event_id,
            bool_and(first.created_time < limits.kept_since)
              OVER (ORDER BY first.event_id) AS all_old
       FROM (
         SELECT e.event_id, e.created_time
           FROM job_events e
          WHERE oldest.created_time < limits.kept_since
            AND e.namespace = item.namespace
            AND e.lane = l.lane
          ORDER BY e.namespace, e.lane, e.event_id LIMIT @lim::int) first) old
   WHERE old.all_old),
recorded AS (
  INSERT INTO job_event_drops AS d (namespace, lane, event_id)
  SELECT expired.namespace, expired.lane, max(expired.event_id)
    FROM expired GROUP BY expired.namespace, expired.lane
   ORDER BY expired.namespace, expired.lane
  ON CONFLICT (namespace, lane) DO UPDATE
    SET event_id = greatest(d.event_id, excluded.event_id))
DELETE FROM job_events e
 USING expired
 WHERE e.namespace = ANY (ARRAY[expired.namespace])
   AND e.lane = expired.lane
   AND e.event_id = expired.event_id;

-- EmptyJobNames returns names that have counts, but no jobs any more.
-- name: EmptyJobNames :many
SELECT counts.namespace, counts.name
  FROM (
    SELECT c.namespace, c.name, c.state, sum(c.n) AS n
      FROM job_counts c GROUP BY c.namespace, c.name, c.state) counts
 GROUP BY counts.namespace, counts.name HAVING bool_and(counts.n = 0) LIMIT @lim::int;

-- LockJobCounts locks the counts of names and returns their current values.
-- name: LockJobCounts :many
SELECT c.namespace, c.name, c.lane, c.state, c.n
  FROM job_counts c
 WHERE (c.namespace, c.name) IN (
   SELECT item.namespace, item.name
     FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@names::text[])) AS item(namespace, name))
 ORDER BY c.namespace, c.name, c.lane, c.state FOR UPDATE;

-- DropJobCounts deletes rows of job_counts.
-- name: DropJobCounts :exec
DELETE FROM job_counts c
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@names::text[]), unnest(@lanes::int[]),
                  unnest(@states::text[]))
       AS item(namespace, name, lane, state)
 WHERE c.namespace = item.namespace
   AND c.name = item.name
   AND c.lane = item.lane
   AND c.state = item.state;

-- ReadJobCounts returns the number of jobs of namespaces by name and state. It counts running and
-- cancel_requested jobs from their rows. In job_counts, these jobs count as available, so they are
-- also part of the number of available jobs. (Earlier versions of the engine stored counts of
-- running and cancel_requested jobs, which are ignored.) Members of jobs that several workers run
-- are not counted.
-- name: ReadJobCounts :many
SELECT c.namespace, c.name, c.state::text AS state, sum(c.n)::bigint AS n
  FROM job_counts c
 WHERE c.namespace = ANY (@namespaces::text[])
   AND c.state NOT IN ('running', 'cancel_requested')
 GROUP BY c.namespace, c.name, c.state
UNION ALL
SELECT r.namespace, job.name,
       CASE WHEN process.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END,
       count(*)
  FROM running r
 CROSS JOIN LATERAL (
   SELECT p.kind, p.cancel_deadline
     FROM processes p
    WHERE p.namespace = r.namespace
      AND p.process_id = r.process_id
    LIMIT 1) process
 CROSS JOIN LATERAL (
   SELECT j.name FROM jobs j
    WHERE process.kind = 'job'
      AND j.namespace = r.namespace
      AND j.process_id = r.process_id
    LIMIT 1) job
 WHERE r.namespace = ANY (@namespaces::text[])
   AND NOT starts_with(r.process_id, '~job/~/')
 GROUP BY 1, 2, 3
UNION ALL
SELECT p.namespace, waiting.job_name::text, 'cancel_requested', count(*)
  FROM processes p
 CROSS JOIN LATERAL (
   SELECT s.job_name FROM schedule s
    WHERE s.namespace = p.namespace
      AND s.process_id = p.process_id
      AND s.taker = '~'
      AND s.attempt > 0
    LIMIT 1) waiting
 WHERE p.cancel_deadline IS NOT NULL
   AND p.removed_time IS NULL
   AND p.kind = 'job'
   AND p.namespace = ANY (@namespaces::text[])
 GROUP BY 1, 2
UNION ALL
SELECT g.namespace, waiting.job_name::text, 'running', count(*)
  FROM job_groups g
 CROSS JOIN LATERAL (
   SELECT s.job_name FROM schedule s
    WHERE s.namespace = g.namespace
      AND s.process_id = g.process_id
      AND s.taker = '~'
    LIMIT 1) waiting
 CROSS JOIN LATERAL (
   SELECT 1 FROM processes p
    WHERE p.namespace = g.namespace
      AND p.process_id = g.process_id
      AND p.cancel_deadline IS NULL
    LIMIT 1) process
 WHERE g.running_time IS NOT NULL
   AND g.namespace = ANY (@namespaces::text[])
 GROUP BY 1, 2;

-- OldestAvailable returns how long (in µs) the oldest job of each namespace and name has been
-- available. It finds each pair of name and priority, and each key queue, with one index probe.
-- most limits the number of pairs and the number of key queues in a namespace. It reads the first
-- lim jobs of each pair and of each key queue.
-- name: OldestAvailable :many
WITH RECURSIVE priorities AS (
  SELECT item.namespace::text AS namespace, first_task.job_name, first_task.priority, 1 AS n
    FROM unnest(@namespaces::text[]) AS item(namespace)
   CROSS JOIN LATERAL (
     SELECT s.job_name, s.priority
       FROM schedule s
      WHERE s.namespace COLLATE "POSIX" = item.namespace
        AND s.waits_for = 'place'
        AND s.job_name IS NOT NULL
      ORDER BY s.job_name, s.priority LIMIT 1) first_task
  UNION ALL
  SELECT priorities.namespace, next_task.job_name, next_task.priority, priorities.n + 1
    FROM priorities
   CROSS JOIN LATERAL (
     SELECT s.job_name, s.priority
       FROM schedule s
      WHERE s.namespace COLLATE "POSIX" = priorities.namespace
        AND s.waits_for = 'place'
        AND s.job_name IS NOT NULL
        AND (s.job_name, s.priority) > (priorities.job_name, priorities.priority)
      ORDER BY s.job_name, s.priority LIMIT 1) next_task
   WHERE priorities.n < @most::int),
lines AS (
  SELECT item.namespace::text AS namespace, first_task.line, 1 AS n
    FROM unnest(@namespaces::text[]) AS item(namespace)
   CROSS JOIN LATERAL (
     SELECT s.line FROM schedule s
      WHERE s.namespace COLLATE "POSIX" = item.namespace
        AND s.waits_for = 'constraint'
      ORDER BY s.line LIMIT 1) first_task
  UNION ALL
  SELECT lines.namespace, next_task.line, lines.n + 1
    FROM lines
   CROSS JOIN LATERAL (
     SELECT s.line FROM schedule s
      WHERE s.namespace COLLATE "POSIX" = lines.namespace
        AND s.waits_for = 'constraint'
        AND s.line > lines.line
      ORDER BY s.line LIMIT 1) next_task
   WHERE lines.n < @most::int)
SELECT oldest.namespace, oldest.job_name::text AS name,
       (extract(epoch FROM statement_timestamp()
                   - min(oldest.scheduled_time)) * 1000000)::bigint AS age_us
  FROM (
    SELECT priorities.namespace, oldest_task.*
      FROM priorities
     CROSS JOIN LATERAL (
       SELECT s.job_name, s.scheduled_time
         FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = priorities.namespace
          AND s.waits_for = 'place'
          AND s.job_name IS NOT NULL
          AND s.job_name = priorities.job_name
          AND s.priority = priorities.priority
        ORDER BY s.round, s.task_id LIMIT @lim::int) oldest_task
    UNION ALL
    SELECT lines.namespace, oldest_task.*
      FROM lines
     CROSS JOIN LATERAL (
       SELECT s.job_name, s.scheduled_time
         FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = lines.namespace
          AND s.waits_for = 'constraint'
          AND s.line = lines.line
        ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int) oldest_task) oldest
 GROUP BY oldest.namespace, oldest.job_name;
