-- ReadLease returns a leased task with the columns of Poll, if fencing_token and salt are those of
-- its lease. A node that did not create the lease needs these columns to end the attempt. progress
-- is NULL.
-- name: ReadLease :one
SELECT attempt.namespace, attempt.process_id, attempt.task_id, attempt.task_type, attempt.attempt,
       attempt.priority, attempt.fencing_token, attempt.scheduled_time, attempt.running_time,
       coalesce(attempt.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(attempt.timer_name, '')::text AS timer_name,
       coalesce(attempt.history_range::text, '')::text AS history_range,
       coalesce(attempt.idempotency_key, '')::text AS idempotency_key,
       attempt.args, attempt.context, process.status,
       coalesce(process.previous_status::text, '')::text AS previous_status,
       process.status_changed_time, coalesce(process.detail, '')::text AS detail,
       coalesce(process.corrupted_by, 0)::bigint AS corrupted_by, process.aux_state,
       process.metadata, process.last_event_id, process.first_event_id, process.kind,
       process.created_time, attempt.child,
       coalesce(job.kind_name, '')::text AS kind_name, job.kind_options,
       coalesce(job.kind_timeout_us, 0)::bigint AS kind_timeout_us,
       coalesce(job.kind_takeovers, 0)::int AS kind_takeovers, job.kind_tags, job.kind_failures,
       coalesce(job.kind_keys_version, 0)::bigint AS kind_keys_version, job.kind_keys,
       0::bigint AS kind_keys_now,
       l.salt, l.worker_id,
       (extract(epoch FROM l.lease_duration) * 1000000)::bigint AS lease_us,
       (extract(epoch FROM l.heartbeat_interval) * 1000000)::bigint AS beat_us,
       (extract(epoch FROM attempt.deadline - attempt.running_time)
           * 1000000)::bigint AS timeout_us,
       NULL::jsonb AS progress
  FROM leases l
 CROSS JOIN LATERAL (
   SELECT r.* FROM running r
    WHERE r.namespace = l.namespace
      AND r.process_id = l.process_id
      AND r.fencing_token = l.fencing_token
    LIMIT 1) attempt
 CROSS JOIN LATERAL (
   SELECT p.* FROM processes p
    WHERE p.namespace = l.namespace
      AND p.process_id = l.process_id
    LIMIT 1) process
  LEFT JOIN LATERAL (
    SELECT j.name AS kind_name, j.options AS kind_options,
           (extract(epoch FROM j.timeout) * 1000000)::bigint AS kind_timeout_us,
           j.takeovers AS kind_takeovers, j.tags AS kind_tags, j.failures AS kind_failures,
           j.constraints_version AS kind_keys_version, j.constraint_keys AS kind_keys
      FROM jobs j
     WHERE process.kind = 'job'
       AND j.namespace = process.namespace
       AND j.process_id = process.process_id
     LIMIT 1) job ON true
 WHERE l.namespace = @namespace
   AND l.process_id = @process_id
   AND l.fencing_token = @fencing_token
   AND l.salt = @salt;

-- ReadHolders returns the worker of each given lease whose attempt still runs, and the name of the
-- job. job_name is empty if the task does not belong to a job.
-- name: ReadHolders :many
SELECT item.ord::int AS ord, l.worker_id, coalesce(job.name, '')::text AS job_name
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]), unnest(@salts::bytea[]))
       AS item(ord, namespace, process_id, fencing_token, salt)
  JOIN leases l
    ON l.namespace = ANY (ARRAY[item.namespace])
   AND l.process_id = item.process_id
   AND l.fencing_token = item.fencing_token
   AND l.salt = item.salt
 CROSS JOIN LATERAL (
   SELECT 1 FROM running r
    WHERE r.namespace = l.namespace
      AND r.process_id = l.process_id
      AND r.fencing_token = l.fencing_token
    LIMIT 1) attempt
  LEFT JOIN LATERAL (
    SELECT j.name FROM jobs j
     WHERE j.namespace = l.namespace
       AND j.process_id = l.process_id
     LIMIT 1) job ON true;

-- BeatLeases extends leases of a worker, stores the progress of jobs, and returns the state of each
-- lease. It extends a lease whose attempt still runs, even if the lease has expired. If the
-- collector has ended the attempt, the result omits the item, and the worker gets DIRECTIVE_LOST.
-- If lease_us is 0, the duration of the lease does not change. The heartbeat interval is at most
-- half of the duration. BeatLeases does not wait for a locked lease, because then the other leases
-- would also wait. A lease that is locked is being extended or ended by another transaction, so
-- BeatLeases returns it unchanged, and skipped is true.
-- name: BeatLeases :many
WITH input AS MATERIALIZED (
  SELECT item.ord, l.namespace, l.process_id, l.fencing_token, item.progress, l.expires_time,
         durations.lease_us,
         least(coalesce(job.beat_us, durations.lease_us / 3), durations.lease_us / 2) AS beat_us,
         process.cancel_deadline IS NOT NULL AND process.kind = 'job' AS cancelling,
         process.cancel_reason
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@fencing_tokens::bigint[]), unnest(@salts::bytea[]),
                    unnest(@progresses::text[]), unnest(@leases_us::bigint[]))
         AS item(ord, namespace, process_id, fencing_token, salt, progress, lease_us)
    JOIN leases l
      ON l.namespace = ANY (ARRAY[item.namespace])
     AND l.process_id = item.process_id
     AND l.fencing_token = item.fencing_token
     AND l.salt = item.salt
   CROSS JOIN LATERAL (
     SELECT 1 FROM running r
      WHERE r.namespace = l.namespace
        AND r.process_id = l.process_id
        AND r.fencing_token = l.fencing_token
      LIMIT 1) attempt
   CROSS JOIN LATERAL (
     SELECT p.* FROM processes p
      WHERE p.namespace = l.namespace
        AND p.process_id = l.process_id
        AND p.removed_time IS NULL
      LIMIT 1) process
   CROSS JOIN LATERAL (
     SELECT coalesce(NULLIF(item.lease_us, 0),
                     (extract(epoch
                                 FROM l.lease_duration) * 1000000)::bigint) AS lease_us) durations
    LEFT JOIN LATERAL (
      SELECT (extract(epoch FROM (j.options->>'heartbeatInterval')::interval)
                 * 1000000)::bigint AS beat_us
        FROM jobs j
       WHERE j.namespace = l.namespace
         AND j.process_id = l.process_id
       LIMIT 1) job ON true
   WHERE l.worker_id = @worker_id::text),
locked AS MATERIALIZED (
  SELECT input.*, lease.process_id IS NULL AS skipped
    FROM input
    LEFT JOIN LATERAL (
      SELECT l.process_id FROM leases l
       WHERE l.namespace = ANY (ARRAY[input.namespace])
         AND l.process_id = input.process_id
         AND l.fencing_token = input.fencing_token
         FOR NO KEY UPDATE OF l SKIP LOCKED) lease ON true),
updated_leases AS (
  UPDATE leases l
     SET beat_time = statement_timestamp(),
         expires_time = statement_timestamp() + locked.lease_us * interval '1 microsecond',
         lease_duration = locked.lease_us * interval '1 microsecond',
         heartbeat_interval = locked.beat_us * interval '1 microsecond'
    FROM locked
   WHERE NOT locked.skipped
     AND l.namespace = ANY (ARRAY[locked.namespace])
     AND l.process_id = locked.process_id
     AND l.fencing_token = locked.fencing_token),
updated_jobs AS (
  UPDATE jobs j
     SET progress = locked.progress::jsonb, updated_time = statement_timestamp()
    FROM locked
   WHERE NOT locked.skipped
     AND locked.progress <> ''
     AND j.namespace = ANY (ARRAY[locked.namespace])
     AND j.process_id = locked.process_id)
SELECT locked.ord::int AS ord, locked.skipped::bool AS skipped,
       locked.cancelling::bool AS cancelling,
       coalesce(locked.cancel_reason, '')::text AS cancel_reason,
       (CASE
          WHEN locked.skipped
            THEN locked.expires_time
          ELSE statement_timestamp() + locked.lease_us * interval '1 microsecond'
        END)::timestamptz AS expires_time,
       locked.beat_us::bigint AS beat_us
  FROM locked;

-- UpdateLeases changes the duration of the leases of a running job: its own, or those of its
-- members. The new duration takes effect with the next heartbeat. To prevent deadlocks, it locks
-- leases in the same order as BeatLeases, and runs before UpdateJob changes the row of the job:
-- BeatLeases also locks the leases first and then changes the jobs.
-- name: UpdateLeases :exec
WITH input AS (
  SELECT @namespace::text AS namespace, @process_id::text AS process_id,
         @lease_us::bigint AS lease_us),
attempts AS (
  SELECT input.process_id FROM input
  UNION ALL
  SELECT m.process_id FROM input
    JOIN job_places m
      ON m.namespace = input.namespace
     AND m.job_id = input.process_id
     AND m.state IS NULL),
locked AS MATERIALIZED (
  SELECT l.namespace, l.process_id, input.lease_us
    FROM input
   CROSS JOIN attempts
    JOIN leases l
      ON l.namespace = ANY (ARRAY[input.namespace])
     AND l.process_id = attempts.process_id
   ORDER BY l.process_id COLLATE "POSIX" FOR UPDATE OF l)
UPDATE leases l
   SET lease_duration = locked.lease_us * interval '1 microsecond'
  FROM locked
 WHERE l.namespace = ANY (ARRAY[locked.namespace])
   AND l.process_id = locked.process_id;

-- EndLeases deletes the leases of attempts whose result this transaction has stored. It ignores
-- items that the fast path did not store, because their attempts still run. It locks the leases in
-- the order of the items, which must be the same as in BeatLeases.
-- name: EndLeases :exec
DELETE FROM leases l
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]))
       AS item(namespace, process_id, fencing_token)
 WHERE l.namespace = ANY (ARRAY[item.namespace])
   AND l.process_id = item.process_id
   AND l.fencing_token = item.fencing_token
   AND NOT EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = ANY (ARRAY[l.namespace])
        AND r.process_id = l.process_id
        AND r.fencing_token = l.fencing_token);

-- ForgetLeases deletes leases that remain because their attempts ended without an answer of the
-- worker. It locks leases in an arbitrary order, so it must not wait for locks and skips locked
-- leases.
-- name: ForgetLeases :execrows
DELETE FROM leases l
 WHERE (l.namespace, l.process_id) IN (
   SELECT x.namespace, x.process_id
     FROM leases x
    WHERE x.leased_time < statement_timestamp() - interval '10 seconds'
      AND NOT EXISTS (
        SELECT 1 FROM running r
         WHERE r.namespace = x.namespace
           AND r.process_id = x.process_id
           AND r.fencing_token = x.fencing_token)
    LIMIT 1000 FOR UPDATE OF x SKIP LOCKED)
   AND NOT EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = l.namespace
        AND r.process_id = l.process_id
        AND r.fencing_token = l.fencing_token);

-- ListPendingResults returns the results that workers have stored with the function complete,
-- oldest first, except those with known_tokens. Nodes end the attempts with these results.
-- name: ListPendingResults :many
SELECT l.namespace, l.process_id, l.fencing_token, l.salt, l.pending_result,
       coalesce(l.worker_token, 0)::bigint AS worker_token
  FROM leases l
 WHERE l.pending_result IS NOT NULL
   AND NOT (l.fencing_token = ANY (@known_tokens::bigint[]))
   AND EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = l.namespace
        AND r.process_id = l.process_id
        AND r.fencing_token = l.fencing_token)
 ORDER BY l.fencing_token LIMIT @lim::int;

-- LeaseAnswered returns what the result of an attempt has stored, so that the caller can compare it
-- with an answer that a worker may have sent twice. It finds the attempt if it ended one of the 100
-- newest tasks of the process, or if its task now waits for a retry or a later reply. A task that
-- waits because the attempt was released has no failure, and is not found. For a succeeded job,
-- result is the result of the job, if the task is the newest one and the result is still kept.
-- name: LeaseAnswered :one
SELECT ended_task.task_id, ended_task.task_type, (ended_task.status = 'FINISHED')::bool AS finished,
       ended_task.response, ended_task.failure, ended_task.rejection,
       coalesce(process.kind, '')::text AS kind,
       coalesce(job.name, '')::text AS kind_name, job.options AS kind_options,
       (CASE
          WHEN ended_task.status = 'FINISHED'
               AND NOT EXISTS (
                 SELECT 1 FROM tasks n
                  WHERE n.namespace = ended_task.namespace
                    AND n.process_id = ended_task.process_id
                    AND n.task_id > ended_task.task_id)
            THEN job.result
        END)::bytea AS result
  FROM (
    (
      SELECT t.namespace, t.process_id, t.task_id, t.task_type, t.fencing_token, t.status,
             t.response, t.failure, t.rejection
        FROM tasks t
       WHERE t.namespace = @namespace
         AND t.process_id = @process_id
       ORDER BY t.namespace DESC, t.process_id DESC, t.task_id DESC LIMIT 100)
    UNION ALL
    SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.fencing_token,
           CASE WHEN s.running_time IS NULL THEN 'ERROR' ELSE 'FINISHED' END::task_status, NULL,
           s.failure, NULL
      FROM schedule s
     WHERE s.namespace = @namespace
       AND s.process_id = @process_id
       AND (s.failure IS NOT NULL OR s.running_time IS NOT NULL)) ended_task
  LEFT JOIN LATERAL (
    SELECT p.kind FROM processes p
     WHERE p.namespace = ended_task.namespace
       AND p.process_id = ended_task.process_id
     LIMIT 1) process ON true
  LEFT JOIN LATERAL (
    SELECT j.* FROM jobs j
     WHERE j.namespace = ended_task.namespace
       AND j.process_id = ended_task.process_id
     LIMIT 1) job ON true
 WHERE ended_task.fencing_token = @fencing_token::bigint;

-- ReadAttempt returns the task of a running attempt, which the checkpoints of a pushed task need.
-- name: ReadAttempt :one
SELECT r.task_id, r.task_type, r.attempt, p.kind
  FROM running r
 CROSS JOIN LATERAL (
   SELECT process.kind FROM processes process
    WHERE process.namespace = r.namespace
      AND process.process_id = r.process_id
    LIMIT 1) p
 WHERE r.namespace = @namespace
   AND r.process_id = @process_id
   AND r.fencing_token = @fencing_token;
