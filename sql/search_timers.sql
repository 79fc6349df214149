-- SearchTimers claims due tasks, longest due first: timers, retries, delayed starts. It skips
-- timers of processes that are busy or have a waiting call, because the SaveResult of such a
-- process promotes them. It also skips timers of processes with a cancel request, and jobs that
-- need keys (see DueInLine). If own is true, it takes only the tasks that the engine itself runs,
-- because ReleaseTimers has already moved the others to the queue for workers. ON CONFLICT is
-- needed because another task of the process may have started after the snapshot of this statement.
-- The columns are those of SearchCalls.
-- name: SearchTimers :many
WITH found AS MATERIALIZED (
  SELECT candidate.*,
         coalesce(octet_length(candidate.args), 0) + coalesce(octet_length(candidate.context), 0)
           + coalesce(octet_length(candidate.aux_state), 0) AS bytes,
         nextval('fencing_tokens') AS fencing_token, target.step_timeout_us, target.mode, job.*,
         c.version AS kind_keys_now
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@limits::int[]),
                    unnest(@step_timeouts_us::bigint[]), unnest(@owns::bool[]),
                    unnest(@modes::int[]), unnest(@pauses::bool[]))
         AS target(namespace, lim, step_timeout_us, own, mode, pauses)
    LEFT JOIN constraint_sets c ON c.namespace = target.namespace
   CROSS JOIN LATERAL (
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
      WHERE s.namespace COLLATE "POSIX" = target.namespace
        AND s.waits_for = 'time'
        AND s.scheduled_time <= statement_timestamp()
        AND s.line IS NULL
        AND s.taker IS NULL
        AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
        AND (NOT target.pauses
             OR s.job_name IS NULL
             OR (s.namespace, s.job_name) NOT IN (
               SELECT x.namespace, x.name FROM job_pauses x))
        AND (NOT target.own
             OR starts_with(s.process_id, '~') AND NOT starts_with(s.process_id, '~job/'))
        AND NOT EXISTS (
          SELECT 1 FROM running r
           WHERE r.namespace = ANY (ARRAY[s.namespace])
             AND r.process_id = s.process_id)
        AND NOT EXISTS (
          SELECT 1 FROM schedule c
           WHERE c.namespace = ANY (ARRAY[s.namespace])
             AND c.process_id = s.process_id
             AND c.waits_for::text = 'place')
        AND p.status = required_status(s.task_type)
        AND (p.cancel_deadline IS NULL OR s.task_type IN ('INIT', 'CANCEL'))
      ORDER BY s.scheduled_time LIMIT target.lim FOR NO KEY UPDATE OF s, p SKIP LOCKED) candidate
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
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT r.namespace, r.job_name, change.state, sum(change.n)
    FROM ready r
   CROSS JOIN LATERAL (
     VALUES (CASE WHEN r.attempt > 0 THEN 'retryable' ELSE 'scheduled' END, -1),
            ('available', 1)) AS change(state, n)
   WHERE r.job_name IS NOT NULL
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE
   GROUP BY r.namespace, r.job_name, change.state ORDER BY r.namespace, r.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt)
  SELECT r.namespace,
         (SELECT job_event_xid()),
         r.process_id, 'started',
         CASE WHEN r.attempt > 0 THEN 'retryable' ELSE 'scheduled' END,
         'running', r.attempt + 1
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

-- NextTimes returns, for each namespace, the time until its next timer (µs), so that a node can
-- sleep until then. It also returns for how long the newest due timer has been due (µs). Each value
-- is -1 if there is no such timer. It runs after SearchTimers in the same transaction. now() is the
-- start of that transaction, so no timer is missed between the two.
-- name: NextTimes :many
SELECT target.namespace::text AS namespace,
       (CASE
          WHEN next_timer.scheduled_time IS NULL THEN -1
          ELSE greatest(
            extract(epoch FROM next_timer.scheduled_time - statement_timestamp()) * 1000000,
            0)
        END)::bigint AS delay_us,
       (CASE
          WHEN due_timer.scheduled_time IS NULL THEN -1
          ELSE extract(epoch FROM statement_timestamp() - due_timer.scheduled_time) * 1000000
        END)::bigint AS passed_us
  FROM unnest(@namespaces::text[]) AS target(namespace)
  LEFT JOIN LATERAL (
    SELECT s.scheduled_time FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = target.namespace
       AND s.waits_for = 'time'
       AND s.scheduled_time > now()
     ORDER BY s.scheduled_time LIMIT 1) next_timer ON true
  LEFT JOIN LATERAL (
    SELECT s.scheduled_time FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = target.namespace
       AND s.waits_for = 'time'
       AND s.scheduled_time <= now()
     ORDER BY s.scheduled_time DESC LIMIT 1) due_timer ON true;
