-- Poll leases tasks that wait for a slot to a worker, by priority, then age, at most lim in all. It
-- takes jobs of the given names or, if job_name is empty, all tasks that the engine does not run
-- itself; with jobs_only, only jobs. The locked rows carry the whole condition, as in SearchCalls.
-- A worker must send at least two heartbeats per lease, and one within half of the timeout. A lease
-- that was never renewed expires after two intervals: its response may have been lost. Poll does
-- not see places of groups: see PollGroups.
-- name: Poll :many
WITH found AS MATERIALIZED (
  SELECT d.*, nextval('fencing_tokens') AS fencing_token, n.mode, uuid_send(gen_random_uuid()) AS salt, j.job,
         l.lease_us, coalesce(j.timeout_us, n.step_timeout_us) AS timeout_us,
         least(coalesce(j.beat_us, l.lease_us / 3), l.lease_us / 2, coalesce(j.timeout_us, n.step_timeout_us) / 2) AS beat_us,
         coalesce(octet_length(d.args), 0) + coalesce(octet_length(d.context), 0) + coalesce(octet_length(d.aux_state), 0)
         + coalesce(octet_length(j.job::text), 0) AS bytes
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_names::text[]), unnest(@step_timeouts_us::bigint[]), unnest(@leases_us::bigint[]), unnest(@max_leases_us::bigint[]), unnest(@modes::int[]),
                    unnest(@jobs_only::bool[]))
         AS n(namespace, job_name, step_timeout_us, lease_us, max_lease_us, mode, jobs_only)
  LEFT JOIN constraint_sets c ON c.namespace = n.namespace
  CROSS JOIN LATERAL (
    SELECT a.* FROM (
      SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority, s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name,
             s.history_range, s.idempotency_key, s.args, s.context, s.child, s.job_name, p.status, p.previous_status, p.status_changed_time, p.detail,
             p.corrupted_by, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
        FROM schedule s JOIN processes p ON p.namespace = ANY (ARRAY[s.namespace]) AND p.process_id = s.process_id
       WHERE n.job_name = '' AND s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place' AND s.taker IS NULL
         AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/')) AND (s.job_name IS NOT NULL OR NOT n.jobs_only)
         AND p.status = CASE s.task_type WHEN 'INIT' THEN 'INIT' WHEN 'REPAIR' THEN 'ERROR' ELSE 'RUNNING' END::process_status
       ORDER BY s.priority, s.task_id LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED) a
    UNION ALL
    SELECT b.* FROM (
      SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt, s.priority, s.own_priority, s.scheduled_time, s.retry_interval, s.timer_name,
             s.history_range, s.idempotency_key, s.args, s.context, s.child, s.job_name, p.status, p.previous_status, p.status_changed_time, p.detail,
             p.corrupted_by, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
        FROM schedule s JOIN processes p ON p.namespace = ANY (ARRAY[s.namespace]) AND p.process_id = s.process_id
       WHERE n.job_name <> '' AND s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place' AND s.job_name = n.job_name AND s.job_name IS NOT NULL
         AND s.taker IS NULL AND p.status = 'INIT' AND s.task_type = 'INIT'
       ORDER BY s.priority, s.task_id LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED) b) d
  LEFT JOIN LATERAL (
    SELECT (extract(epoch FROM j.timeout) * 1000000)::bigint AS timeout_us, CASE WHEN (j.tags, j.options, j.failures, j.constraints_version, j.constraint_keys) IS NULL AND j.takeovers = 0
         THEN json_build_object('name', j.name, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint, 'constraints_now', c.version)
         WHEN (j.tags, j.options, j.failures) IS NULL AND j.takeovers = 0
         THEN json_build_object('name', j.name, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint, 'constraints_now', c.version,
                                'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys)
         ELSE json_build_object('name', j.name, 'takeovers', j.takeovers, 'tags', j.tags, 'options', j.options, 'failures', j.failures,
         'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint,
                         'constraints_now', c.version) END AS job, (extract(epoch FROM (j.options->>'leaseDuration')::interval) * 1000000)::bigint AS lease_us,
           (extract(epoch FROM (j.options->>'heartbeatInterval')::interval) * 1000000)::bigint AS beat_us
      FROM jobs j WHERE d.job_name IS NOT NULL AND j.namespace = d.namespace AND j.process_id = d.process_id LIMIT 1) j ON true
  CROSS JOIN LATERAL (SELECT least(coalesce(j.lease_us, n.lease_us), n.max_lease_us) AS lease_us) l
   ORDER BY d.priority, d.task_id LIMIT @lim::int),
-- A response has at most 4 MiB of tasks (process.MaxPollBytes), but always contains the first task.
ready AS MATERIALIZED (
  SELECT b.* FROM (
    SELECT f.*, sum(f.bytes) OVER (ROWS UNBOUNDED PRECEDING) - f.bytes AS bytes_before FROM found f) b
   WHERE b.bytes_before < 4 * 1024 * 1024),
ins AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline, scheduled_time, running_time,
                       retry_interval, timer_name, history_range, idempotency_key, args, context, child)
  SELECT namespace, process_id, task_id, task_type, attempt + 1, coalesce(own_priority, priority), fencing_token, @node_id::bigint,
         statement_timestamp() + timeout_us * interval '1 microsecond', scheduled_time, statement_timestamp(),
         retry_interval, timer_name, history_range, idempotency_key, args, context, child FROM ready
  ON CONFLICT (namespace, process_id) DO NOTHING RETURNING namespace, process_id, task_id),
le AS (
  INSERT INTO leases (namespace, process_id, fencing_token, worker_id, salt, leased_time, expires_time, lease_duration, heartbeat_interval)
  SELECT r.namespace, r.process_id, r.fencing_token, @worker_id::text, r.salt, statement_timestamp(),
         statement_timestamp() + 2 * r.beat_us * interval '1 microsecond',
         r.lease_us * interval '1 microsecond', r.beat_us * interval '1 microsecond'
    FROM ready r WHERE (r.task_id IN (SELECT ins.task_id FROM ins)) IS TRUE
  ON CONFLICT (namespace, process_id) DO UPDATE SET fencing_token = excluded.fencing_token, worker_id = excluded.worker_id, salt = excluded.salt,
     leased_time = excluded.leased_time, beat_time = NULL, expires_time = excluded.expires_time, lease_duration = excluded.lease_duration,
     heartbeat_interval = excluded.heartbeat_interval),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id)
  SELECT r.namespace, (SELECT job_event_xid()), r.process_id, 'started', 'available', 'running', r.attempt + 1, @worker_id::text
    FROM ready r WHERE r.job_name IS NOT NULL AND r.mode = 2 AND (r.task_id IN (SELECT ins.task_id FROM ins)) IS TRUE),
del AS (
  DELETE FROM schedule s USING ins WHERE s.namespace = ANY (ARRAY[ins.namespace]) AND s.process_id = ins.process_id AND s.task_id = ins.task_id)
SELECT r.namespace, r.process_id, r.task_id, r.task_type, (r.attempt + 1)::int AS attempt, coalesce(r.own_priority, r.priority)::int AS priority, r.fencing_token::bigint AS fencing_token,
       r.scheduled_time, statement_timestamp()::timestamptz AS running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval, coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range, coalesce(r.idempotency_key, '')::text AS idempotency_key,
       r.args, r.context, r.status, coalesce(r.previous_status::text, '')::text AS previous_status, r.status_changed_time,
       coalesce(r.detail, '')::text AS detail, coalesce(r.corrupted_by, 0)::bigint AS corrupted_by, r.aux_state, r.metadata,
       r.last_event_id, r.first_event_id, r.kind, r.created_time, r.child, r.job::json AS job, r.salt::bytea AS salt, @worker_id::text AS worker_id,
       r.lease_us::bigint AS lease_us, r.beat_us::bigint AS beat_us,
       r.timeout_us::bigint AS timeout_us
  FROM ready r WHERE (r.task_id IN (SELECT ins.task_id FROM ins)) IS TRUE;

-- CountPollable returns, for each pair of namespace and job name (empty: any), the number of tasks
-- that a Poll would find, at most lim.
-- name: CountPollable :many
SELECT n.ord::int AS ord, count(*)::int AS n
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@job_names::text[]), unnest(@jobs_only::bool[])) AS n(ord, namespace, job_name, jobs_only)
 CROSS JOIN LATERAL (
   SELECT 1 FROM (
     SELECT 1 FROM schedule s WHERE n.job_name = '' AND s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place' AND s.taker IS NULL
        AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/')) AND (s.job_name IS NOT NULL OR NOT n.jobs_only) LIMIT @lim::int) a
   UNION ALL
   SELECT 1 FROM (
     SELECT 1 FROM schedule s WHERE n.job_name <> '' AND s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place' AND s.job_name = n.job_name
        AND s.job_name IS NOT NULL AND s.taker IS NULL LIMIT @lim::int) b) x
 GROUP BY n.ord;

-- ReleaseTimers lets due tasks wait for a worker in pull namespaces, longest due first. It skips
-- what SearchTimers skips.
-- name: ReleaseTimers :many
WITH due AS MATERIALIZED (
  SELECT d.namespace, d.process_id, d.task_id, n.mode FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@modes::int[])) AS n(namespace, mode)
  CROSS JOIN LATERAL (
    SELECT s.namespace, s.process_id, s.task_id FROM schedule s JOIN processes p ON p.namespace = ANY (ARRAY[s.namespace]) AND p.process_id = s.process_id
     WHERE s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'time' AND s.scheduled_time <= statement_timestamp() AND s.line IS NULL
       AND (NOT starts_with(s.process_id, '~') OR starts_with(s.process_id, '~job/'))
       AND NOT EXISTS (SELECT 1 FROM running r WHERE r.namespace = ANY (ARRAY[s.namespace]) AND r.process_id = s.process_id)
       AND NOT EXISTS (SELECT 1 FROM schedule c WHERE c.namespace = ANY (ARRAY[s.namespace]) AND c.process_id = s.process_id AND c.waits_for::text = 'place')
       AND p.status = CASE s.task_type WHEN 'INIT' THEN 'INIT' WHEN 'REPAIR' THEN 'ERROR' ELSE 'RUNNING' END::process_status
       AND (p.cancel_deadline IS NULL OR s.task_type IN ('INIT', 'CANCEL'))
     ORDER BY s.scheduled_time LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED) d),
-- Of two due timers of a process, the earlier one is first.
one AS (SELECT DISTINCT ON (namespace, process_id) namespace, process_id, task_id, mode FROM due ORDER BY namespace, process_id, task_id),
m AS (
  UPDATE schedule s SET waits_for = 'place',
         priority = CASE WHEN s.job_name IS NULL THEN least(queue_priority(s.namespace, s.process_id), s.priority) ELSE s.priority END,
         own_priority = CASE WHEN s.job_name IS NULL THEN coalesce(s.own_priority, s.priority) END
    FROM one WHERE s.namespace = ANY (ARRAY[one.namespace]) AND s.process_id = one.process_id AND s.task_id = one.task_id
  RETURNING s.namespace, s.process_id, s.job_name, one.mode, CASE WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, x.state, sum(x.n) FROM m CROSS JOIN LATERAL (VALUES (m.state, -1), ('available', 1)) AS x(state, n)
   WHERE m.job_name IS NOT NULL GROUP BY m.namespace, m.job_name, x.state HAVING sum(x.n) <> 0 ORDER BY m.namespace, m.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status)
  SELECT m.namespace, (SELECT job_event_xid()), m.process_id, 'due', m.state, 'available' FROM m WHERE m.job_name IS NOT NULL AND m.mode = 2)
SELECT m.namespace FROM m;
