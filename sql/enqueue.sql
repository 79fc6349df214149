-- EnsureJobKeys creates the rows of unique keys, so that LockJobKeys can lock them. Both run before
-- EnqueueJobs, whose snapshot then contains the changes of all earlier holders of a key.
-- name: EnsureJobKeys :exec
INSERT INTO job_keys (namespace, unique_key)
SELECT DISTINCT item.namespace, item.unique_key
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@unique_keys::text[]))
       AS item(namespace, unique_key)
 ORDER BY item.namespace, item.unique_key
ON CONFLICT DO NOTHING;

-- LockJobKeys locks unique keys in order, after processes, as every transaction does.
-- name: LockJobKeys :exec
SELECT 1 FROM (
  SELECT DISTINCT item.namespace, item.unique_key
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@unique_keys::text[]))
         AS item(namespace, unique_key)) wanted
  JOIN job_keys j
    ON j.namespace = ANY (ARRAY[wanted.namespace])
   AND j.unique_key = wanted.unique_key
 ORDER BY wanted.namespace, wanted.unique_key FOR UPDATE OF j;

-- EnqueueJobs creates jobs: processes of kind job with their INIT tasks, which wait for a time or a
-- slot. The items of a statement have different processes. If another session creates the same
-- process at the same time, the transaction is repeated, as after PrepareInit. If several items
-- have the same unique key, the first one gets it, and the others must be sent again. A job holds
-- its unique key until it has ended and the TTL of the key has passed, even if retention removes
-- the job (held_until). With unique_waiting, it holds the key only until it starts.
--
-- A job that needs keys of constraints waits for the first of them. It was evaluated under
-- constraints_version. If the constraints have changed, it waits to be evaluated again.
-- fairness_key is "=" and the key, or empty if the namespace has none. If another job holds the
-- unique key, the request is stored without a task, because it has no task of its own, and the task
-- of the other job may be deleted before the idempotency key. outcome is enqueued, duplicate
-- (another job has the unique key; process_id is that job), again, replayed, mismatch or exists.
--
-- A job for which this node has a slot (capture) runs at once, without a row in schedule. It must
-- not have a start time, a fairness key or keys of constraints, and not be grouped. If constraints
-- were added to the namespace, the job waits to be evaluated.
-- name: EnqueueJobs :many
WITH input AS MATERIALIZED (
  SELECT item.*, request.process_id AS earlier_process_id, request.task_id AS earlier_task_id,
         request.fingerprint AS earlier_fingerprint, process.status AS process_status,
         CASE WHEN request.task_id IS NULL THEN holder.process_id END AS holder,
         request.task_id IS NULL
           AND item.unique_key <> ''
           AND holder.process_id IS NULL
           AND row_number() OVER (PARTITION BY item.namespace, item.unique_key ORDER BY item.ord)
                 > 1 AS again,
         nextval('task_ids') AS task_id,
         CASE WHEN item.capture THEN nextval('fencing_tokens') END AS fencing_token,
         greatest(item.run_time, statement_timestamp()) AS scheduled_time,
         NOT item.grouped
           AND coalesce((
             SELECT s.version FROM constraint_sets s WHERE s.namespace = item.namespace),
                        0) <> item.constraints_version AS stale
    FROM (
      SELECT job.*,
             CASE
               WHEN job.delay_us > 0
                 THEN statement_timestamp() + job.delay_us * interval '1 microsecond'
               ELSE job.start_time
             END AS run_time
        FROM ROWS FROM (
               unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
               unnest(@names::text[]), unnest(@args::bytea[]), unnest(@contexts::bytea[]),
               unnest(@metadatas::text[]), unnest(@tags::text[]), unnest(@options::text[]),
               unnest(@idempotency_keys::text[]), unnest(@request_ids::uuid[]),
               unnest(@fingerprints::bytea[]), unnest(@priorities::int[]),
               unnest(@run_times::timestamptz[]), unnest(@timeouts_us::bigint[]),
               unnest(@unique_keys::text[]), unnest(@unique_ttls_us::bigint[]),
               unnest(@unique_waitings::bool[]), unnest(@constraints_versions::bigint[]),
               unnest(@constraint_keys::text[]), unnest(@lines::text[]),
               unnest(@actors::text[]), unnest(@modes::int[]), unnest(@groupeds::bool[]),
               unnest(@delays_us::bigint[]), unnest(@fairness_keys::text[]),
               unnest(@captures::bool[]))
             AS job(ord, namespace, process_id, name, args, context, metadata, tags, options,
                    idempotency_key, request_id, fingerprint, priority, start_time, timeout_us,
                    unique_key, unique_ttl_us, unique_waiting, constraints_version, constraint_keys,
                    line, actor, mode, grouped, delay_us, fairness_key, capture)) item
    LEFT JOIN LATERAL (
      SELECT q.* FROM requests q
       WHERE item.idempotency_key <> ''
         AND q.request_id = item.request_id
       LIMIT 1) request ON true
    LEFT JOIN LATERAL (
      SELECT p.status FROM processes p
       WHERE p.namespace = item.namespace
         AND p.process_id = item.process_id
       LIMIT 1) process ON true
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (
          SELECT p.* FROM processes p
           WHERE p.namespace = k.namespace
             AND p.process_id = k.process_id
             AND p.removed_time IS NULL
           LIMIT 1) process ON true
       WHERE item.unique_key <> ''
         AND k.namespace = item.namespace
         AND k.unique_key = item.unique_key
         AND CASE
               WHEN process.status IS NULL THEN k.held_until > statement_timestamp()
               WHEN process.status IN ('COMPLETED', 'CANCELLED', 'ERROR')
                 THEN process.status_changed_time + k.ttl > statement_timestamp()
               ELSE NOT item.unique_waiting
                    OR (
                      SELECT r.task_id FROM running r
                       WHERE r.namespace = k.namespace
                         AND r.process_id = k.process_id
                       LIMIT 1) IS NULL
                       AND (
                         SELECT s.task_id FROM schedule s
                          WHERE s.namespace = k.namespace
                            AND s.process_id = k.process_id
                            AND s.taker = '~'
                            AND s.attempt > 0
                          LIMIT 1) IS NULL
             END
       LIMIT 1) holder ON true),
decided AS MATERIALIZED (
  SELECT checked.*,
         checked.created AND checked.capture AND checked.waits_for = 'place' AS captured
    FROM (
      SELECT input.*,
             input.earlier_task_id IS NULL
               AND input.holder IS NULL
               AND NOT input.again
               AND input.process_status IS NULL AS created,
             CASE
               WHEN input.run_time > statement_timestamp() THEN 'scheduled'
               ELSE 'available'
             END AS state,
             CASE
               WHEN input.run_time > statement_timestamp() THEN 'time'
               WHEN input.stale OR input.line <> '' THEN 'constraint'
               ELSE 'place'
             END::waits_for AS waits_for
        FROM input) checked),
inserted_processes AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time,
                         status_changed_time)
  SELECT namespace, process_id, 'INIT', 'job', NULLIF(metadata, '')::jsonb, statement_timestamp(),
         statement_timestamp()
    FROM decided WHERE created
   ORDER BY namespace, process_id),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT decided.namespace, 'RUNNING', count(*)
    FROM decided WHERE decided.created
   GROUP BY decided.namespace ORDER BY decided.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT decided.namespace, decided.name, decided.state, count(*)
    FROM decided WHERE decided.created
   GROUP BY decided.namespace, decided.name, decided.state
   ORDER BY decided.namespace, decided.name, decided.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, actor,
                          message)
  SELECT decided.namespace,
         (SELECT job_event_xid()),
         decided.process_id, change.type, change.from_status, change.to_status, change.attempt,
         CASE WHEN change.attempt = 0 THEN NULLIF(decided.actor, '') END,
         CASE WHEN decided.line <> '' AND NOT decided.stale THEN 'needs ' || decided.line END
    FROM decided
   CROSS JOIN LATERAL (
     VALUES ('enqueued', NULL, decided.state, 0), ('started', decided.state, 'running', 1))
                        AS change(type, from_status, to_status, attempt)
   WHERE decided.created
     AND decided.mode = 2
     AND (decided.captured OR change.attempt = 0)
   ORDER BY decided.ord, change.attempt),
inserted_jobs AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options, constraints_version,
                    constraint_keys, unique_key, fairness_key)
  SELECT namespace, process_id, name, timeout_us * interval '1 microsecond',
         NULLIF(tags, '')::jsonb, NULLIF(options, '')::jsonb, NULLIF(constraints_version, 0),
         NULLIF(constraint_keys, '')::jsonb,
         CASE WHEN unique_ttl_us > 0 THEN unique_key END,
         CASE WHEN fairness_key <> '' THEN substr(fairness_key, 2) END
    FROM decided WHERE created),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, idempotency_key, args,
                       context)
  SELECT namespace, process_id, task_id, 'INIT', 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + timeout_us * interval '1 microsecond',
         scheduled_time, statement_timestamp(), NULLIF(idempotency_key, ''), args, context
    FROM decided WHERE captured),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, idempotency_key, args, context, job_name, line, taker,
                        start_deadline, fairness_key, round)
  SELECT namespace, process_id, task_id, 'INIT', waits_for, priority, scheduled_time,
         NULLIF(idempotency_key, ''), args, context, name,
         CASE WHEN stale THEN '' ELSE NULLIF(line, '') END,
         CASE WHEN grouped THEN '~' END,
         scheduled_time + (NULLIF(options, '')::jsonb->>'startDeadline')::interval,
         CASE WHEN fairness_key <> '' THEN substr(fairness_key, 2) END,
         CASE
           WHEN fairness_key = '' THEN 0
           ELSE next_round(namespace, waits_for, name, CASE WHEN stale THEN '' ELSE line END,
                           priority, substr(fairness_key, 2))
         END
    FROM decided
   WHERE created
     AND NOT captured),
updated_job_keys AS (
  UPDATE job_keys k
     SET process_id = decided.process_id, ttl = decided.unique_ttl_us * interval '1 microsecond',
         held_until = NULL
    FROM decided
   WHERE decided.created
     AND decided.unique_key <> ''
     AND k.namespace = ANY (ARRAY[decided.namespace])
     AND k.unique_key = decided.unique_key),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, coalesce(holder, process_id),
         CASE WHEN created THEN task_id ELSE 0 END,
         fingerprint, statement_timestamp()
    FROM decided
   WHERE (created OR holder IS NOT NULL)
     AND idempotency_key <> '')
SELECT decided.ord::int AS ord,
       (CASE
          WHEN decided.created THEN 'enqueued'
          WHEN decided.earlier_task_id IS NOT NULL
            THEN CASE
                   WHEN decided.earlier_fingerprint = decided.fingerprint THEN 'replayed'
                   ELSE 'mismatch'
                 END
          WHEN decided.again THEN 'again'
          WHEN decided.holder IS NOT NULL THEN 'duplicate'
          ELSE 'exists'
        END)::text AS outcome,
       coalesce(decided.earlier_process_id, decided.holder, decided.process_id)::text AS process_id,
       (decided.run_time > statement_timestamp())::bool AS later,
       decided.captured::bool AS captured, decided.task_id::bigint AS task_id,
       coalesce(decided.fencing_token, 0)::bigint AS fencing_token,
       statement_timestamp()::timestamptz AS now
  FROM decided;

-- ReadKeyHolder returns the job that has a unique key, and the current time of the database.
-- name: ReadKeyHolder :one
SELECT coalesce((
         SELECT k.process_id FROM job_keys k
          WHERE k.namespace = @namespace
            AND k.unique_key = @unique_key), '')::text AS process_id,
       statement_timestamp()::timestamptz AS now;
