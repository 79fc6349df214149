-- Poll leases to a worker tasks that wait for a slot: at most lim in all, by priority, then round
-- (see next_round), then age. It takes jobs of the given names. If job_name is empty, it takes all
-- tasks that the engine does not run itself, or only jobs if jobs_only is true. It skips jobs of
-- paused names if pauses is true. (A poll for a paused name is not executed.) PostgreSQL evaluates
-- the conditions again for rows that were changed after the snapshot, as in SearchCalls.
--
-- A worker must send at least two heartbeats per lease, and one within half of the timeout. A lease
-- that was never renewed expires after two intervals, because the response to the poll may have
-- been lost. Poll ignores places of groups: see PollGroups.
-- name: Poll :many
WITH found AS MATERIALIZED (
  SELECT candidate.*, nextval('fencing_tokens') AS fencing_token, target.mode,
         uuid_send(gen_random_uuid()) AS salt, job.progress, lease.lease_us, job.kind_name,
         job.kind_options, job.timeout_us AS kind_timeout_us, job.kind_takeovers, job.kind_tags,
         job.kind_failures, job.kind_keys_version, job.kind_keys, c.version AS kind_keys_now,
         coalesce(job.timeout_us, target.step_timeout_us) AS timeout_us,
         least(coalesce(job.beat_us, lease.lease_us / 3), lease.lease_us / 2,
               coalesce(job.timeout_us, target.step_timeout_us) / 2) AS beat_us,
         coalesce(octet_length(candidate.args), 0) + coalesce(octet_length(candidate.context), 0)
           + coalesce(octet_length(candidate.aux_state), 0)
           + coalesce(octet_length(job.kind_options::text), 0)
           + coalesce(octet_length(job.kind_failures::text), 0)
           + coalesce(octet_length(job.kind_tags::text), 0)
           + coalesce(octet_length(job.kind_keys::text), 0)
           + coalesce(octet_length(job.progress::text), 0) AS bytes
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_names::text[]),
                    unnest(@step_timeouts_us::bigint[]), unnest(@leases_us::bigint[]),
                    unnest(@max_leases_us::bigint[]), unnest(@modes::int[]),
                    unnest(@jobs_only::bool[]), unnest(@pauses::bool[]))
         AS target(namespace, job_name, step_timeout_us, lease_us, max_lease_us, mode, jobs_only,
                   pauses)
    LEFT JOIN constraint_sets c ON c.namespace = target.namespace
   CROSS JOIN LATERAL (
     SELECT any_task.* FROM (
       SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority,
              s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range,
              s.idempotency_key, s.args, s.context, s.child, s.job_name, s.round, p.status,
              p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state,
              p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
         FROM schedule s
         JOIN processes p
           ON p.namespace = ANY (ARRAY[s.namespace])
          AND p.process_id = s.process_id
        WHERE target.job_name = ''
          AND s.namespace COLLATE "POSIX" = target.namespace
          AND s.waits_for = 'place'
          AND s.taker IS NULL
          AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/'))
          AND (s.job_name IS NOT NULL OR NOT target.jobs_only)
          AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
          AND (NOT target.pauses
               OR s.job_name IS NULL
               OR (s.namespace, s.job_name) NOT IN (
                 SELECT x.namespace, x.name FROM job_pauses x))
          AND p.status = required_status(s.task_type)
        ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) any_task
     UNION ALL
     SELECT named_job.* FROM (
       SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority,
              s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range,
              s.idempotency_key, s.args, s.context, s.child, s.job_name, s.round, p.status,
              p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state,
              p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
         FROM schedule s
         JOIN processes p
           ON p.namespace = ANY (ARRAY[s.namespace])
          AND p.process_id = s.process_id
        WHERE target.job_name <> ''
          AND s.namespace COLLATE "POSIX" = target.namespace
          AND s.waits_for = 'place'
          AND s.job_name = target.job_name
          AND s.job_name IS NOT NULL
          AND s.taker IS NULL
          AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
          AND p.status = 'INIT'
          AND s.task_type = 'INIT'
        ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) named_job) candidate
    LEFT JOIN LATERAL (
      SELECT (extract(epoch FROM j.timeout) * 1000000)::bigint AS timeout_us,
             j.name AS kind_name, j.options AS kind_options, j.takeovers AS kind_takeovers,
             j.tags AS kind_tags, j.failures AS kind_failures,
             j.constraints_version AS kind_keys_version, j.constraint_keys AS kind_keys,
             (extract(epoch FROM (j.options->>'leaseDuration')::interval)
                 * 1000000)::bigint AS lease_us,
             (extract(epoch FROM (j.options->>'heartbeatInterval')::interval)
                 * 1000000)::bigint AS beat_us,
             j.progress
        FROM jobs j
       WHERE candidate.job_name IS NOT NULL
         AND j.namespace = candidate.namespace
         AND j.process_id = candidate.process_id
       LIMIT 1) job ON true
   CROSS JOIN LATERAL (
     SELECT least(coalesce(job.lease_us, target.lease_us), target.max_lease_us) AS lease_us) lease
   ORDER BY candidate.priority, candidate.round, candidate.task_id LIMIT @lim::int),
-- A response has at most 4 MiB of tasks (process.MaxPollBytes), but always contains the first task.
ready AS MATERIALIZED (
  SELECT summed.* FROM (
    SELECT f.*,
           sum(f.bytes) OVER (ROWS UNBOUNDED PRECEDING) - f.bytes AS bytes_before
      FROM found f) summed
   WHERE summed.bytes_before < 4 * 1024 * 1024),
claimed AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, retry_interval, timer_name,
                       history_range, idempotency_key, args, context, child)
  SELECT namespace, process_id, task_id, task_type, attempt + 1, coalesce(own_priority, priority),
         fencing_token, @node_id::bigint,
         statement_timestamp() + timeout_us * interval '1 microsecond',
         scheduled_time, statement_timestamp(), retry_interval, timer_name, history_range,
         idempotency_key, args, context, child
    FROM ready
  ON CONFLICT (namespace, process_id) DO NOTHING
  RETURNING namespace, process_id, task_id),
inserted_leases AS (
  INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time,
                      expires_time, lease_duration, heartbeat_interval)
  SELECT r.namespace, r.process_id, r.fencing_token, @worker_id::text, r.salt,
         statement_timestamp(),
         statement_timestamp() + 2 * r.beat_us * interval '1 microsecond',
         r.lease_us * interval '1 microsecond', r.beat_us * interval '1 microsecond'
    FROM ready r WHERE (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         fencing_token = excluded.fencing_token, worker_id = excluded.worker_id,
         salt = excluded.salt, leased_time = excluded.leased_time, beat_time = NULL,
         expires_time = excluded.expires_time, lease_duration = excluded.lease_duration,
         heartbeat_interval = excluded.heartbeat_interval, pending_result = NULL,
         worker_token = NULL),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id)
  SELECT r.namespace,
         (SELECT job_event_xid()),
         r.process_id, 'started', 'available', 'running', r.attempt + 1, @worker_id::text
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
       coalesce(r.own_priority, r.priority)::int AS priority,
       r.fencing_token::bigint AS fencing_token, r.scheduled_time,
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
       coalesce(r.kind_keys_now, 0)::bigint AS kind_keys_now,
       r.salt::bytea AS salt, @worker_id::text AS worker_id, r.lease_us::bigint AS lease_us,
       r.beat_us::bigint AS beat_us, r.timeout_us::bigint AS timeout_us,
       r.progress::jsonb AS progress
  FROM ready r WHERE (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE;

-- CountPollable returns the number of tasks that wait for a Poll, at most lim, for each pair of
-- namespace and job name. An empty name means any task, or any job if jobs_only is true.
-- CountPollable does not check the status of processes.
-- name: CountPollable :many
SELECT target.ord::int AS ord, count(*)::int AS n
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@job_names::text[]),
                  unnest(@jobs_only::bool[]), unnest(@pauses::bool[]))
       AS target(ord, namespace, job_name, jobs_only, pauses)
 CROSS JOIN LATERAL (
   SELECT 1 FROM (
     SELECT 1 FROM schedule s
      WHERE target.job_name = ''
        AND s.namespace COLLATE "POSIX" = target.namespace
        AND s.waits_for = 'place'
        AND s.taker IS NULL
        AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/'))
        AND (s.job_name IS NOT NULL OR NOT target.jobs_only)
        AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
        AND (NOT target.pauses
             OR s.job_name IS NULL
             OR (s.namespace, s.job_name) NOT IN (
               SELECT x.namespace, x.name FROM job_pauses x))
      LIMIT @lim::int) any_task
   UNION ALL
   SELECT 1 FROM (
     SELECT 1 FROM schedule s
      WHERE target.job_name <> ''
        AND s.namespace COLLATE "POSIX" = target.namespace
        AND s.waits_for = 'place'
        AND s.job_name = target.job_name
        AND s.job_name IS NOT NULL
        AND s.taker IS NULL
        AND (s.start_deadline > statement_timestamp()) IS NOT FALSE
      LIMIT @lim::int) named_job) waiting
 GROUP BY target.ord;

-- ReleaseTimers moves due tasks in pull namespaces to the queue for workers, longest due first. It
-- skips timers of busy processes, timers of processes with a cancel request, and jobs that need
-- keys. Unlike SearchTimers, it moves tasks of paused names and those whose start deadline has
-- passed.
-- name: ReleaseTimers :many
WITH due_timers AS MATERIALIZED (
  SELECT due_timer.namespace, due_timer.process_id, due_timer.task_id, target.mode
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@modes::int[])) AS target(namespace, mode)
   CROSS JOIN LATERAL (
     SELECT s.namespace, s.process_id, s.task_id
       FROM schedule s
       JOIN processes p
         ON p.namespace = ANY (ARRAY[s.namespace])
        AND p.process_id = s.process_id
      WHERE s.namespace COLLATE "POSIX" = target.namespace
        AND s.waits_for = 'time'
        AND s.scheduled_time <= statement_timestamp()
        AND s.line IS NULL
        AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/'))
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
      ORDER BY s.scheduled_time LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED) due_timer),
-- If two timers of a process are due, the one with the smaller task_id is first.
first_due AS (
  SELECT DISTINCT ON (namespace, process_id) namespace, process_id, task_id, mode
    FROM due_timers ORDER BY namespace, process_id, task_id),
released AS (
  UPDATE schedule s
     SET waits_for = 'place',
         priority = CASE
                      WHEN s.job_name IS NULL
                        THEN least(queue_priority(s.namespace, s.process_id), s.priority)
                      ELSE s.priority
                    END,
         own_priority = CASE WHEN s.job_name IS NULL THEN coalesce(s.own_priority, s.priority) END,
         round = CASE
                   WHEN s.fairness_key IS NULL THEN 0
                   ELSE next_round(s.namespace, 'place', s.job_name, s.line, s.priority,
                                   s.fairness_key)
                 END
    FROM first_due
   WHERE s.namespace = ANY (ARRAY[first_due.namespace])
     AND s.process_id = first_due.process_id
     AND s.task_id = first_due.task_id
  RETURNING s.namespace, s.process_id, s.job_name, first_due.mode,
            CASE WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT released.namespace, released.job_name, change.state, sum(change.n)
    FROM released
   CROSS JOIN LATERAL (VALUES (released.state, -1), ('available', 1)) AS change(state, n)
   WHERE released.job_name IS NOT NULL
     AND NOT starts_with(released.process_id, '~job/~/')
   GROUP BY released.namespace, released.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY released.namespace, released.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status)
  SELECT released.namespace,
         (SELECT job_event_xid()),
         released.process_id, 'due', released.state, 'available'
    FROM released
   WHERE released.job_name IS NOT NULL
     AND released.mode = 2)
SELECT released.namespace FROM released;
