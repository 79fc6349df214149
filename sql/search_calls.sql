-- SearchCalls claims tasks that wait for a slot, by priority, then round (see next_round), then
-- age. Locked rows are skipped without waiting. PostgreSQL evaluates the conditions again for rows
-- that were changed after the snapshot. If own is true, it takes only the tasks that the engine
-- itself runs in this namespace, because workers take the others. If urgent is true, it takes only
-- crons. It skips jobs of paused names if pauses is true. The columns kind_… are the columns of the
-- job in the table jobs.
--
-- Claimed rows are deleted by key. A row that was changed after the snapshot of the statement is
-- locked and read in its current version, but a search by the old ctid would not find it, and the
-- task would be in both tables. (From claimed on, SearchTimers, SearchCronTimers, Poll and
-- PollGroups are nearly equal. They are separate statements because each of them searches another
-- index, and sqlc cannot share SQL text.)
-- name: SearchCalls :many
WITH found AS MATERIALIZED (
  SELECT candidate.*,
         coalesce(octet_length(candidate.args), 0) + coalesce(octet_length(candidate.context), 0)
           + coalesce(octet_length(candidate.aux_state), 0) AS bytes,
         nextval('fencing_tokens') AS fencing_token, target.step_timeout_us, target.mode, job.*,
         c.version AS kind_keys_now
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@limits::int[]),
                    unnest(@step_timeouts_us::bigint[]), unnest(@owns::bool[]),
                    unnest(@urgents::bool[]), unnest(@modes::int[]), unnest(@pauses::bool[]))
         AS target(namespace, lim, step_timeout_us, own, urgent, mode, pauses)
    LEFT JOIN constraint_sets c ON c.namespace = target.namespace
   CROSS JOIN LATERAL (
     SELECT any_task.* FROM (
       SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt,
              coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval,
              s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child,
              s.job_name, p.status, p.previous_status, p.status_changed_time, p.detail,
              p.corrupted_by, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind,
              p.created_time
         FROM schedule s
         JOIN processes p
           ON p.namespace = ANY (ARRAY[s.namespace])
          AND p.process_id = s.process_id
        WHERE NOT target.own
          AND s.namespace COLLATE "POSIX" = target.namespace
          AND s.waits_for = 'place'
          AND s.taker IS NULL
          AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
          AND (NOT target.pauses
               OR s.job_name IS NULL
               OR (s.namespace, s.job_name) NOT IN (
                 SELECT x.namespace, x.name FROM job_pauses x))
          AND p.status = required_status(s.task_type)
        ORDER BY s.priority, s.round, s.task_id LIMIT target.lim
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) any_task
     UNION ALL
     SELECT own_task.* FROM (
       SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt,
              coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval,
              s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child,
              s.job_name, p.status, p.previous_status, p.status_changed_time, p.detail,
              p.corrupted_by, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind,
              p.created_time
         FROM schedule s
         JOIN processes p
           ON p.namespace = ANY (ARRAY[s.namespace])
          AND p.process_id = s.process_id
        WHERE target.own
          AND s.namespace COLLATE "POSIX" = target.namespace
          AND s.waits_for = 'place'
          AND starts_with(s.process_id, '~')
          AND NOT starts_with(s.process_id, '~job/')
          AND (NOT target.urgent OR starts_with(s.process_id, '~cron/'))
          AND p.status = required_status(s.task_type)
        ORDER BY s.priority, s.task_id LIMIT target.lim
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) own_task) candidate
    LEFT JOIN LATERAL (
      SELECT j.name AS kind_name, j.options AS kind_options,
             (extract(epoch FROM j.timeout) * 1000000)::bigint AS kind_timeout_us,
             j.takeovers AS kind_takeovers, j.tags AS kind_tags, j.failures AS kind_failures,
             j.constraints_version AS kind_keys_version, j.constraint_keys AS kind_keys,
             j.timeout
        FROM jobs j
       WHERE candidate.job_name IS NOT NULL
         AND j.namespace = candidate.namespace
         AND j.process_id = candidate.process_id
       LIMIT 1) job ON true),
-- One statement claims at most 2 MiB (maxScanBytes) in all namespaces together, but always at least
-- one task.
ready AS MATERIALIZED (
  SELECT summed.* FROM (
    SELECT f.*,
           sum(f.bytes) OVER (ROWS UNBOUNDED PRECEDING) - f.bytes AS bytes_before
      FROM found f) summed
   WHERE summed.bytes_before < 2 * 1024 * 1024),
claimed AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, retry_interval, timer_name,
                       history_range, idempotency_key, args, context, child)
  SELECT namespace, process_id, task_id, task_type, attempt + 1, priority, fencing_token,
         @node_id::bigint,
         statement_timestamp() + coalesce(timeout, step_timeout_us * interval '1 microsecond'),
         scheduled_time, statement_timestamp(), retry_interval, timer_name, history_range,
         idempotency_key, args, context, child
    FROM ready
  ON CONFLICT (namespace, process_id) DO NOTHING
  RETURNING namespace, process_id, task_id),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt)
  SELECT r.namespace,
         (SELECT job_event_xid()),
         r.process_id, 'started', 'available', 'running', r.attempt + 1
    FROM ready r
   WHERE r.job_name IS NOT NULL
     AND r.mode = 2
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE),
deleted_schedule AS (
  DELETE FROM schedule s USING claimed
   WHERE s.namespace = ANY (ARRAY[claimed.namespace])
     AND s.process_id = claimed.process_id
     AND s.task_id = claimed.task_id)
SELECT r.namespace, r.process_id, r.task_id, r.task_type, (r.attempt + 1)::int AS attempt,
       r.priority, r.fencing_token::bigint AS fencing_token, r.scheduled_time,
       statement_timestamp()::timestamptz AS running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range,
       coalesce(r.idempotency_key, '')::text AS idempotency_key, r.args, r.context, r.status,
       coalesce(r.previous_status::text, '')::text AS previous_status,
       r.status_changed_time, coalesce(r.detail, '')::text AS detail,
       coalesce(r.corrupted_by, 0)::bigint AS corrupted_by, r.aux_state, r.metadata,
       r.last_event_id, r.first_event_id, r.kind, r.created_time, r.child,
       coalesce(r.kind_name, '')::text AS kind_name, r.kind_options,
       coalesce(r.kind_timeout_us, 0)::bigint AS kind_timeout_us,
       coalesce(r.kind_takeovers, 0)::int AS kind_takeovers, r.kind_tags, r.kind_failures,
       coalesce(r.kind_keys_version, 0)::bigint AS kind_keys_version, r.kind_keys,
       coalesce(r.kind_keys_now, 0)::bigint AS kind_keys_now
  FROM ready r WHERE (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE;

-- ListSkippedCalls returns the namespaces in which a task that SearchCalls would take still waits
-- for a slot, because it was skipped while its process was locked.
-- name: ListSkippedCalls :many
SELECT target.namespace::text AS namespace
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@pauses::bool[]))
       AS target(namespace, pauses)
 CROSS JOIN LATERAL (
   SELECT 1 FROM schedule s
     JOIN processes p
       ON p.namespace = ANY (ARRAY[s.namespace])
      AND p.process_id = s.process_id
    WHERE s.namespace COLLATE "POSIX" = target.namespace
      AND s.waits_for = 'place'
      AND s.taker IS NULL
      AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
      AND (NOT target.pauses
           OR s.job_name IS NULL
           OR (s.namespace, s.job_name) NOT IN (
             SELECT x.namespace, x.name FROM job_pauses x))
      AND p.status = required_status(s.task_type)
    ORDER BY s.priority, s.round, s.task_id LIMIT 1) waiting;

-- LockFirstCall locks the process of the task that SearchCalls, or Poll if polls is true, would
-- take first in a namespace. It waits for other sessions, at most lock_timeout.
-- name: LockFirstCall :exec
SELECT 1 FROM schedule s
  JOIN processes p
    ON p.namespace = ANY (ARRAY[s.namespace])
   AND p.process_id = s.process_id
 WHERE s.namespace COLLATE "POSIX" = @namespace::text
   AND s.waits_for = 'place'
   AND s.taker IS NULL
   AND (NOT @polls::bool
        OR NOT starts_with(s.process_id, '~')
        OR starts_with(s.process_id, '~job/'))
   AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
   AND (NOT @pauses::bool
        OR s.job_name IS NULL
        OR (s.namespace, s.job_name) NOT IN (
          SELECT x.namespace, x.name FROM job_pauses x))
   AND p.status = required_status(s.task_type)
 ORDER BY s.priority, s.round, s.task_id LIMIT 1
   FOR NO KEY UPDATE OF p;
