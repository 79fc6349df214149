-- PrepareInit creates processes with their INIT tasks. A key that is taken already makes no process: its item is answered
-- replayed or mismatch. Items of one statement are of different processes; the caller sees to that.
-- outcome: captured (runs on this node), postponed (waits), replayed, mismatch, exists.
-- name: PrepareInit :many
WITH i AS MATERIALIZED (
  SELECT t.*, q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         nextval('task_ids') AS task_id, nextval('fencing_tokens') AS fencing_token,
         greatest(t.start_time, statement_timestamp()) AS scheduled_time,
         t.capture AND t.start_time <= statement_timestamp() AS captures
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@kinds::text[]),
                    unnest(@args::bytea[]), unnest(@contexts::bytea[]), unnest(@metadatas::text[]), unnest(@idempotency_keys::text[]),
                    unnest(@request_ids::uuid[]), unnest(@fingerprints::bytea[]), unnest(@history_ranges::text[]),
                    unnest(@priorities::int[]), unnest(@start_times::timestamptz[]), unnest(@captures::bool[]), unnest(@step_timeouts_us::bigint[]))
         AS t(ord, namespace, process_id, kind, args, context, metadata, idempotency_key, request_id, fingerprint, history_range,
              priority, start_time, capture, step_timeout_us)
    LEFT JOIN LATERAL (SELECT q.* FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true),
p AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time, status_changed_time)
  SELECT namespace, process_id, 'INIT', kind, NULLIF(metadata, '')::jsonb, statement_timestamp(), statement_timestamp()
    FROM i WHERE twin_task_id IS NULL ORDER BY namespace, process_id
  ON CONFLICT DO NOTHING RETURNING namespace, process_id),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT p.namespace, 'RUNNING', count(*) FROM p GROUP BY p.namespace ORDER BY p.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
-- The row comparison stays a hashed subplan: a join of two CTEs would be a nested loop here, and grow with the square.
c AS MATERIALIZED (
  SELECT i.*, ((i.namespace, i.process_id) IN (SELECT p.namespace, p.process_id FROM p)) AS created FROM i),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline,
                       scheduled_time, running_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT', 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', scheduled_time, statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM c WHERE created AND captures),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT', CASE WHEN start_time > statement_timestamp() THEN 'time' ELSE 'place' END::waits_for,
         priority, scheduled_time, NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM c WHERE created AND NOT captures),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM c WHERE created AND idempotency_key <> '')
SELECT c.ord::int AS ord,
       (CASE WHEN c.created AND c.captures THEN 'captured' WHEN c.created THEN 'postponed'
             WHEN c.twin_task_id IS NULL THEN 'exists' WHEN c.twin_fingerprint = c.fingerprint THEN 'replayed' ELSE 'mismatch' END)::text AS outcome,
       coalesce(c.twin_process_id, c.process_id)::text AS process_id, coalesce(c.twin_task_id, c.task_id)::bigint AS task_id,
       c.fencing_token::bigint AS fencing_token, c.scheduled_time::timestamptz AS scheduled_time, statement_timestamp()::timestamptz AS now
  FROM c;
