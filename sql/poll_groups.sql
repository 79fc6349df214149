-- PollGroups is Poll for namespaces in which members of groups wait. It is a separate statement
-- because its additional CTEs make a poll of a hundred jobs 10% slower, and most namespaces have no
-- groups. A place goes to the worker that already has it, or to an allowed worker without a place.
-- PollGroups also locks the row of the group. So if a worker sends two polls at once, the second
-- one sees what the first one has taken, or skips the group. Within a priority, the places of this
-- worker and of groups that name it come first.
--
-- The first member that a worker takes starts the group. Therefore a poll locks the groups of its
-- members. Polls share the lock of a group that runs, and RestGroups waits for them. A poll that
-- starts a group also locks the process of the group, which prevents a cancel or an end. No poll
-- waits for a lock: members of locked groups are left to the next poll.
-- name: PollGroups :many
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
              p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
              NULL::text AS job_id, NULL::text AS taker, false AS named
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
              p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
              NULL::text AS job_id, NULL::text AS taker, false AS named
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
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) named_job
     UNION ALL
     SELECT own_place.* FROM (
       SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority,
              s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range,
              s.idempotency_key, s.args, s.context, s.child, s.job_name, s.round, p.status,
              p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state,
              p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time, lease.job_id,
              s.taker, true AS named
         FROM schedule s
         JOIN processes p
           ON p.namespace = ANY (ARRAY[s.namespace])
          AND p.process_id = s.process_id
        CROSS JOIN LATERAL (
          SELECT l.job_id FROM job_places l
           WHERE l.namespace = s.namespace
             AND l.process_id = s.process_id
           LIMIT 1) lease
        CROSS JOIN LATERAL (
          SELECT 1 FROM processes o
           WHERE o.namespace = s.namespace
             AND o.process_id = lease.job_id
             AND o.status = 'INIT'
             AND o.cancel_deadline IS NULL
           LIMIT 1) process
        WHERE s.taker = '=' || @worker_id::text
          AND s.namespace COLLATE "POSIX" = target.namespace
          AND (s.waits_for = 'place')::int = 1
          AND (target.job_name = '' OR s.job_name = target.job_name)
          AND (NOT target.pauses
               OR s.job_name IS NULL
               OR (s.namespace, s.job_name) NOT IN (
                 SELECT x.namespace, x.name FROM job_pauses x))
          AND p.status = 'INIT'
          AND s.task_type = 'INIT'
        ORDER BY s.priority, s.task_id LIMIT @lim::int
          FOR NO KEY UPDATE OF s, p SKIP LOCKED) own_place
     UNION ALL
     SELECT open_place.* FROM (
       SELECT DISTINCT ON (place_candidate.job_id) place_candidate.*
         FROM (
           SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority,
                  s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range,
                  s.idempotency_key, s.args, s.context, s.child, s.job_name, s.round, p.status,
                  p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state,
                  p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
                  place.job_id, s.taker, g.worker_ids IS NOT NULL AS named
             FROM schedule s
             JOIN processes p
               ON p.namespace = ANY (ARRAY[s.namespace])
              AND p.process_id = s.process_id
            CROSS JOIN LATERAL (
              SELECT l.namespace, l.job_id
                FROM job_places l
               WHERE l.namespace = s.namespace
                 AND l.process_id = s.process_id
               LIMIT 1) place
             JOIN job_groups g
               ON g.namespace = ANY (ARRAY[place.namespace])
              AND g.process_id = place.job_id
            CROSS JOIN LATERAL (
              SELECT 1 FROM processes o
               WHERE o.namespace = s.namespace
                 AND o.process_id = place.job_id
                 AND o.status = 'INIT'
                 AND o.cancel_deadline IS NULL
               LIMIT 1) process
            WHERE s.taker = ''
              AND s.namespace COLLATE "POSIX" = target.namespace
              AND (s.waits_for = 'place')::int = 1
              AND (target.job_name = '' OR s.job_name = target.job_name)
              AND (NOT target.pauses
                   OR s.job_name IS NULL
                   OR (s.namespace, s.job_name) NOT IN (
                     SELECT x.namespace, x.name FROM job_pauses x))
              AND p.status = 'INIT'
              AND s.task_type = 'INIT'
              AND NOT @worker_id::text = ANY (g.takers)
              AND (g.worker_ids IS NULL OR @worker_id::text = ANY (g.worker_ids))
            ORDER BY s.priority, g.worker_ids IS NULL, s.task_id LIMIT @lim::int
              FOR NO KEY UPDATE OF s, p, g SKIP LOCKED) place_candidate
        ORDER BY place_candidate.job_id, place_candidate.priority,
                 place_candidate.task_id) open_place) candidate
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
   ORDER BY candidate.priority, candidate.named DESC, candidate.round, candidate.task_id
   LIMIT @lim::int),
running_groups AS MATERIALIZED (
  SELECT running_group.*
    FROM found f
   CROSS JOIN LATERAL (
     SELECT g.namespace, g.process_id
       FROM job_groups g
      WHERE g.namespace = f.namespace
        AND g.process_id = f.job_id
        AND (g.running_time IS NOT NULL)::int = 1
      LIMIT 1 FOR SHARE SKIP LOCKED) running_group),
started_groups AS MATERIALIZED (
  SELECT waiting_group.*
    FROM found f
   CROSS JOIN LATERAL (
     SELECT g.namespace, g.process_id
       FROM job_groups g
      WHERE g.namespace = f.namespace
        AND g.process_id = f.job_id
        AND (g.running_time IS NULL)::int = 1
      LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) waiting_group
   CROSS JOIN LATERAL (
     SELECT 1 FROM processes p
      WHERE p.namespace = f.namespace
        AND p.process_id = f.job_id
        AND p.status = 'INIT'
        AND p.cancel_deadline IS NULL
      LIMIT 1 FOR SHARE SKIP LOCKED) process),
-- A response has at most 4 MiB of tasks (process.MaxPollBytes), but always contains the first task.
ready AS MATERIALIZED (
  SELECT summed.* FROM (
    SELECT f.*,
           sum(f.bytes) OVER (ROWS UNBOUNDED PRECEDING) - f.bytes AS bytes_before,
           ((f.namespace, f.job_id) IN (
             SELECT s.namespace, s.process_id FROM started_groups s)) IS TRUE AS starts
      FROM found f
     WHERE f.job_id IS NULL
        OR ((f.namespace, f.job_id) IN (
             SELECT s.namespace, s.process_id FROM started_groups s)) IS TRUE
        OR ((f.namespace, f.job_id) IN (
             SELECT r.namespace, r.process_id FROM running_groups r)) IS TRUE) summed
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
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, worker_id)
  SELECT r.namespace, r.process_id, 'started', 'available', 'running', r.attempt + 1,
         @worker_id::text
    FROM ready r
   WHERE r.job_name IS NOT NULL
     AND r.mode = 2
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE
  UNION ALL
  SELECT r.namespace, r.job_id, 'started', 'available', 'running', 1, @worker_id::text
    FROM ready r
   WHERE r.starts
     AND r.mode = 2
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE),
updated_job_groups AS (
  UPDATE job_groups g
     SET takers = CASE WHEN r.taker = '' THEN g.takers || @worker_id::text ELSE g.takers END,
         running_time = coalesce(g.running_time, statement_timestamp())
    FROM ready r
   WHERE (r.taker = '' OR r.starts)
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE
     AND g.namespace = ANY (ARRAY[r.namespace])
     AND g.process_id = r.job_id),
updated_job_places AS (
  UPDATE job_places l
     SET worker_id = @worker_id::text,
         running_time = coalesce(l.running_time, statement_timestamp())
    FROM ready r
   WHERE r.taker IS NOT NULL
     AND (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE
     AND l.namespace = ANY (ARRAY[r.namespace])
     AND l.process_id = r.process_id),
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
