-- ReadLease returns a leased task as Poll returned it, with the same columns, if the token is that
-- of its lease. Any node can handle it.
-- name: ReadLease :one
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.priority, r.fencing_token, r.scheduled_time, r.running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval, coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range, coalesce(r.idempotency_key, '')::text AS idempotency_key,
       r.args, r.context, p.status, coalesce(p.previous_status::text, '')::text AS previous_status, p.status_changed_time,
       coalesce(p.detail, '')::text AS detail, coalesce(p.corrupted_by, 0)::bigint AS corrupted_by, p.aux_state, p.metadata,
       p.last_event_id, p.first_event_id, p.kind, p.created_time, r.child,
       (SELECT json_build_object('name', j.name, 'takeovers', j.takeovers, 'tags', j.tags, 'options', j.options, 'failures', j.failures,
         'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint) FROM jobs j WHERE p.kind = 'job' AND j.namespace = p.namespace AND j.process_id = p.process_id)::json AS job,
       l.salt, l.worker_id, (extract(epoch FROM l.lease_duration) * 1000000)::bigint AS lease_us,
       (extract(epoch FROM l.heartbeat_interval) * 1000000)::bigint AS beat_us, (extract(epoch FROM r.deadline - r.running_time) * 1000000)::bigint AS timeout_us
  FROM leases l
 CROSS JOIN LATERAL (SELECT r.* FROM running r WHERE r.namespace = l.namespace AND r.process_id = l.process_id AND r.fencing_token = l.fencing_token LIMIT 1) r
 CROSS JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = l.namespace AND p.process_id = l.process_id LIMIT 1) p
 WHERE l.namespace = @namespace AND l.process_id = @process_id AND l.fencing_token = @fencing_token AND l.salt = @salt;

-- BeatLeases extends valid leases of a worker, stores the progress of jobs, and returns the state
-- of each. lease_us 0: unchanged. The interval is at most half of the lease. A missing item means
-- that the lease is lost.
-- name: BeatLeases :many
WITH i AS MATERIALIZED (
  SELECT t.ord, l.namespace, l.process_id, l.fencing_token, t.progress, d.lease_us,
         least(coalesce(j.beat_us, d.lease_us / 3), d.lease_us / 2) AS beat_us,
         p.cancel_deadline IS NOT NULL AND p.kind = 'job' AS cancelling, p.cancel_reason
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@fencing_tokens::bigint[]), unnest(@salts::bytea[]),
                    unnest(@progresses::text[]), unnest(@leases_us::bigint[]))
         AS t(ord, namespace, process_id, fencing_token, salt, progress, lease_us)
    JOIN leases l ON l.namespace = ANY (ARRAY[t.namespace]) AND l.process_id = t.process_id AND l.fencing_token = t.fencing_token AND l.salt = t.salt
   CROSS JOIN LATERAL (SELECT 1 FROM running r WHERE r.namespace = l.namespace AND r.process_id = l.process_id AND r.fencing_token = l.fencing_token LIMIT 1) r
   CROSS JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = l.namespace AND p.process_id = l.process_id AND p.removed_time IS NULL LIMIT 1) p
   CROSS JOIN LATERAL (SELECT coalesce(NULLIF(t.lease_us, 0), (extract(epoch FROM l.lease_duration) * 1000000)::bigint) AS lease_us) d
    LEFT JOIN LATERAL (
      SELECT (extract(epoch FROM (j.options->>'heartbeatInterval')::interval) * 1000000)::bigint AS beat_us FROM jobs j
       WHERE j.namespace = l.namespace AND j.process_id = l.process_id LIMIT 1) j ON true
   WHERE l.worker_id = @worker_id::text),
up AS (
  UPDATE leases l SET beat_time = statement_timestamp(), expires_time = statement_timestamp() + i.lease_us * interval '1 microsecond',
         lease_duration = i.lease_us * interval '1 microsecond', heartbeat_interval = i.beat_us * interval '1 microsecond'
    FROM i WHERE l.namespace = ANY (ARRAY[i.namespace]) AND l.process_id = i.process_id AND l.fencing_token = i.fencing_token
  RETURNING i.ord, l.expires_time),
pr AS (
  UPDATE jobs j SET progress = i.progress::jsonb, updated_time = statement_timestamp()
    FROM i WHERE i.progress <> '' AND j.namespace = ANY (ARRAY[i.namespace]) AND j.process_id = i.process_id)
SELECT i.ord::int AS ord, i.cancelling::bool AS cancelling, coalesce(i.cancel_reason, '')::text AS cancel_reason, up.expires_time, i.beat_us::bigint AS beat_us
  FROM i JOIN up ON up.ord = i.ord;

-- UpdateLeases changes the duration of the leases of a running job: its own, or those of its
-- members. It takes effect with the next heartbeat. It locks them in the order of BeatLeases,
-- before UpdateJob changes rows that heartbeats change after them.
-- name: UpdateLeases :exec
WITH job AS (SELECT @namespace::text AS namespace, @process_id::text AS process_id, @lease_us::bigint AS lease_us),
attempts AS (
  SELECT job.process_id FROM job
  UNION ALL
  SELECT m.process_id FROM job JOIN job_places m ON m.namespace = job.namespace AND m.job_id = job.process_id AND m.state IS NULL),
locked AS MATERIALIZED (
  SELECT l.namespace, l.process_id, job.lease_us FROM job CROSS JOIN attempts
    JOIN leases l ON l.namespace = ANY (ARRAY[job.namespace]) AND l.process_id = attempts.process_id
   ORDER BY l.process_id COLLATE "POSIX" FOR UPDATE OF l)
UPDATE leases l SET lease_duration = locked.lease_us * interval '1 microsecond'
  FROM locked
 WHERE l.namespace = ANY (ARRAY[locked.namespace])
   AND l.process_id = locked.process_id;

-- EndLeases deletes the leases of attempts whose result this transaction has stored. The attempt of
-- an item that the fast path has not stored still runs.
-- name: EndLeases :exec
DELETE FROM leases l USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@fencing_tokens::bigint[])) AS t(namespace, process_id, fencing_token)
 WHERE l.namespace = ANY (ARRAY[t.namespace]) AND l.process_id = t.process_id AND l.fencing_token = t.fencing_token
   AND NOT EXISTS (SELECT 1 FROM running r WHERE r.namespace = ANY (ARRAY[l.namespace]) AND r.process_id = l.process_id AND r.fencing_token = l.fencing_token);

-- ForgetLeases deletes leftovers: leases of attempts that ended in another way.
-- name: ForgetLeases :execrows
DELETE FROM leases l WHERE (l.namespace, l.process_id) IN (
  SELECT x.namespace, x.process_id FROM leases x
   WHERE x.leased_time < statement_timestamp() - interval '10 seconds'
     AND NOT EXISTS (SELECT 1 FROM running r WHERE r.namespace = x.namespace AND r.process_id = x.process_id AND r.fencing_token = x.fencing_token)
   LIMIT 1000)
  AND NOT EXISTS (SELECT 1 FROM running r WHERE r.namespace = l.namespace AND r.process_id = l.process_id AND r.fencing_token = l.fencing_token);

-- LeaseAnswered returns the stored result of an attempt that has ended one of the newest tasks of
-- its process, or after whose failure the task waits for a retry. It is compared with a response
-- that may be a duplicate. A released attempt has no failure. For a succeeded job it returns the
-- result while that is kept, which jobs has only for the newest task.
-- name: LeaseAnswered :one
SELECT x.task_type, (x.status = 'FINISHED')::bool AS finished, x.response, x.failure, x.rejection, coalesce(p.kind, '')::text AS kind,
       (CASE WHEN j.name IS NOT NULL THEN json_build_object('name', j.name, 'options', j.options) END)::json AS job,
       (CASE WHEN x.status = 'FINISHED' AND NOT EXISTS (SELECT 1 FROM tasks n WHERE n.namespace = x.namespace AND n.process_id = x.process_id AND n.task_id > x.task_id)
             THEN j.result END)::bytea AS result
  FROM (
    (SELECT t.namespace, t.process_id, t.task_id, t.task_type, t.fencing_token, t.status, t.response, t.failure, t.rejection
       FROM tasks t WHERE t.namespace = @namespace AND t.process_id = @process_id
      ORDER BY t.namespace DESC, t.process_id DESC, t.task_id DESC LIMIT 100)
    UNION ALL
    SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.fencing_token, 'ERROR', NULL, s.failure, NULL
      FROM schedule s WHERE s.namespace = @namespace AND s.process_id = @process_id AND s.failure IS NOT NULL) x
  LEFT JOIN LATERAL (SELECT p.kind FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.namespace = x.namespace AND j.process_id = x.process_id LIMIT 1) j ON true
 WHERE x.fencing_token = @fencing_token::bigint;
