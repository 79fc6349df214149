-- EnsureJobKeys creates the rows of unique keys, so that LockJobKeys can lock them. Both run before
-- EnqueueJobs, whose snapshot then contains the changes of all earlier holders of a key.
-- name: EnsureJobKeys :exec
INSERT INTO job_keys (namespace, unique_key)
SELECT DISTINCT k.namespace, k.unique_key FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@unique_keys::text[])) AS k(namespace, unique_key)
 ORDER BY k.namespace, k.unique_key
ON CONFLICT DO NOTHING;

-- LockJobKeys locks unique keys in order, after processes, as in every transaction.
-- name: LockJobKeys :exec
SELECT 1 FROM (SELECT DISTINCT k.namespace, k.unique_key FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@unique_keys::text[])) AS k(namespace, unique_key)) k
  JOIN job_keys j ON j.namespace = ANY (ARRAY[k.namespace]) AND j.unique_key = k.unique_key
 ORDER BY k.namespace, k.unique_key FOR UPDATE OF j;

-- EnqueueJobs creates jobs: processes of kind job with their INIT tasks, which wait for a time or a
-- slot. The items of a statement have different processes. If several have the same unique key, the
-- first one gets it, and the others must be sent again. A unique key is taken by a job that has not
-- ended, or that ended less than its TTL ago, even if retention has removed it (held_until); with
-- unique_waiting, only by a job that has not started.
--
-- A job that needs keys of constraints waits for the first of them. It was evaluated under
-- constraints_version; if the constraints have changed, it waits to be evaluated again. The request
-- of a twin is stored without a task: it has no task of its own, and that of the other job may be
-- deleted before the key. outcome: enqueued, twin (another job has the unique key; process_id is
-- that job), again, replayed, mismatch, exists.
-- name: EnqueueJobs :many
WITH i AS MATERIALIZED (
  SELECT t.*, q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         CASE WHEN q.task_id IS NULL THEN h.process_id END AS holder,
         q.task_id IS NULL AND t.unique_key <> '' AND h.process_id IS NULL
         AND row_number() OVER (PARTITION BY t.namespace, t.unique_key ORDER BY t.ord) > 1 AS again,
         nextval('task_ids') AS task_id, greatest(t.run_time, statement_timestamp()) AS scheduled_time,
         NOT t.grouped AND coalesce((SELECT s.version FROM constraint_sets s WHERE s.namespace = t.namespace), 0) <> t.constraints_version AS stale
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@names::text[]), unnest(@args::bytea[]), unnest(@contexts::bytea[]),
                    unnest(@metadatas::text[]), unnest(@tags::text[]), unnest(@options::text[]), unnest(@idempotency_keys::text[]),
                    unnest(@request_ids::uuid[]), unnest(@fingerprints::bytea[]), unnest(@priorities::int[]), unnest(@run_times::timestamptz[]),
                    unnest(@timeouts_us::bigint[]), unnest(@unique_keys::text[]), unnest(@unique_ttls_us::bigint[]), unnest(@unique_waitings::bool[]),
                    unnest(@constraints_versions::bigint[]), unnest(@constraint_keys::text[]), unnest(@lines::text[]), unnest(@actors::text[]), unnest(@modes::int[]), unnest(@groupeds::bool[]))
         AS t(ord, namespace, process_id, name, args, context, metadata, tags, options, idempotency_key, request_id, fingerprint, priority, run_time,
              timeout_us, unique_key, unique_ttl_us, unique_waiting, constraints_version, constraint_keys, line, actor, mode, grouped)
    LEFT JOIN LATERAL (SELECT q.* FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id AND p.removed_time IS NULL LIMIT 1) p ON true
       WHERE t.unique_key <> '' AND k.namespace = t.namespace AND k.unique_key = t.unique_key
         AND CASE WHEN p.status IS NULL THEN k.held_until > statement_timestamp()
                  WHEN p.status IN ('COMPLETED', 'CANCELLED', 'ERROR') THEN p.status_changed_time + k.ttl > statement_timestamp()
                  ELSE NOT t.unique_waiting OR (SELECT r.task_id FROM running r WHERE r.namespace = k.namespace AND r.process_id = k.process_id LIMIT 1) IS NULL
                       AND (SELECT s.task_id FROM schedule s WHERE s.namespace = k.namespace AND s.process_id = k.process_id AND s.taker = '~' AND s.attempt > 0 LIMIT 1) IS NULL END
       LIMIT 1) h ON true),
p AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time, status_changed_time)
  SELECT namespace, process_id, 'INIT', 'job', NULLIF(metadata, '')::jsonb, statement_timestamp(), statement_timestamp()
    FROM i WHERE twin_task_id IS NULL AND holder IS NULL AND NOT again ORDER BY namespace, process_id
  ON CONFLICT DO NOTHING RETURNING namespace, process_id),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT p.namespace, 'RUNNING', count(*) FROM p GROUP BY p.namespace ORDER BY p.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
-- The row comparison is a hashed subplan. A join of two CTEs would be a nested loop with quadratic
-- cost.
c AS MATERIALIZED (
  SELECT i.*, ((i.namespace, i.process_id) IN (SELECT p.namespace, p.process_id FROM p)) AS created,
         CASE WHEN i.run_time > statement_timestamp() THEN 'scheduled' ELSE 'available' END AS state FROM i),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT c.namespace, c.name, c.state, count(*) FROM c WHERE c.created GROUP BY c.namespace, c.name, c.state ORDER BY c.namespace, c.name, c.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, to_status, actor, message)
  SELECT c.namespace, (SELECT job_event_xid()), c.process_id, 'enqueued', c.state, NULLIF(c.actor, ''), CASE WHEN c.line <> '' AND NOT c.stale THEN 'needs ' || c.line END
    FROM c WHERE c.created AND c.mode = 2),
jb AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options, constraints_version, constraint_keys, unique_key)
  SELECT namespace, process_id, name, timeout_us * interval '1 microsecond', NULLIF(tags, '')::jsonb, NULLIF(options, '')::jsonb,
         NULLIF(constraints_version, 0), NULLIF(constraint_keys, '')::jsonb, CASE WHEN unique_ttl_us > 0 THEN unique_key END FROM c WHERE created),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, idempotency_key, args, context, job_name, line, taker)
  SELECT namespace, process_id, task_id, 'INIT',
         CASE WHEN run_time > statement_timestamp() THEN 'time' WHEN stale OR line <> '' THEN 'constraint' ELSE 'place' END::waits_for,
         priority, scheduled_time, NULLIF(idempotency_key, ''), args, context, name, CASE WHEN stale THEN '' ELSE NULLIF(line, '') END, CASE WHEN grouped THEN '~' END
    FROM c WHERE created),
ke AS (
  UPDATE job_keys k SET process_id = c.process_id, ttl = c.unique_ttl_us * interval '1 microsecond', held_until = NULL
    FROM c WHERE c.created AND c.unique_key <> '' AND k.namespace = ANY (ARRAY[c.namespace]) AND k.unique_key = c.unique_key),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, coalesce(holder, process_id), CASE WHEN created THEN task_id ELSE 0 END, fingerprint, statement_timestamp()
    FROM c WHERE (created OR holder IS NOT NULL) AND idempotency_key <> '')
SELECT c.ord::int AS ord,
       (CASE WHEN c.created THEN 'enqueued' WHEN c.twin_task_id IS NOT NULL THEN CASE WHEN c.twin_fingerprint = c.fingerprint THEN 'replayed' ELSE 'mismatch' END
             WHEN c.again THEN 'again' WHEN c.holder IS NOT NULL THEN 'twin' ELSE 'exists' END)::text AS outcome,
       coalesce(c.twin_process_id, c.holder, c.process_id)::text AS process_id, (c.run_time > statement_timestamp())::bool AS later
  FROM c;
