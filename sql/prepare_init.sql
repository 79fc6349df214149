-- PrepareInit creates processes with their INIT tasks. If a key is already used, no process is
-- created, and the item is replayed or mismatch. The items of a statement have different processes.
--
-- If another session creates the same process at the same time, and its row is not visible yet,
-- there is a unique violation; the flush is repeated and then sees it. That is cheaper than ON
-- CONFLICT, which takes a lock and writes a WAL record for each row. Items are sorted by key, so
-- that two sessions that create the same processes wait for each other in a consistent order. (p
-- reads a column that is in no index, because in an empty table all of processes_created looked
-- equally cheap to the planner.) outcome: captured (runs on this node), postponed (waits),
-- replayed, mismatch, exists.
-- name: PrepareInit :many
WITH i AS MATERIALIZED (
  SELECT t.*, q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         nextval('task_ids') AS task_id, nextval('fencing_tokens') AS fencing_token,
         greatest(t.start_time, statement_timestamp()) AS scheduled_time,
         t.capture AND t.start_time <= statement_timestamp() AS captures, q.task_id IS NULL AND p.status IS NULL AS created
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
                 unnest(@kinds::text[]) AS kind, unnest(@args::bytea[]) AS args, unnest(@contexts::bytea[]) AS context,
                 unnest(@metadatas::text[]) AS metadata, unnest(@idempotency_keys::text[]) AS idempotency_key,
                 unnest(@request_ids::uuid[]) AS request_id, unnest(@fingerprints::bytea[]) AS fingerprint,
                 unnest(@history_ranges::text[]) AS history_range, unnest(@priorities::int[]) AS priority,
                 unnest(@start_times::timestamptz[]) AS start_time, unnest(@captures::bool[]) AS capture,
                 unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS t
    LEFT JOIN LATERAL (SELECT q.* FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true
    LEFT JOIN LATERAL (SELECT p.status FROM processes p WHERE p.namespace = t.namespace AND p.process_id = t.process_id LIMIT 1) p ON true),
p AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time, status_changed_time)
  SELECT namespace, process_id, 'INIT', kind, NULLIF(metadata, '')::jsonb, statement_timestamp(), statement_timestamp()
    FROM i WHERE created),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT i.namespace, 'RUNNING', count(*) FROM i WHERE i.created GROUP BY i.namespace ORDER BY i.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline,
                       scheduled_time, running_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT', 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', scheduled_time, statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM i WHERE created AND captures),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT', CASE WHEN start_time > statement_timestamp() THEN 'time' ELSE 'place' END::waits_for,
         priority, scheduled_time, NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM i WHERE created AND NOT captures),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM i WHERE created AND idempotency_key <> '')
SELECT i.ord::int AS ord,
       (CASE WHEN i.created AND i.captures THEN 'captured' WHEN i.created THEN 'postponed'
             WHEN i.twin_task_id IS NULL THEN 'exists' WHEN i.twin_fingerprint = i.fingerprint THEN 'replayed' ELSE 'mismatch' END)::text AS outcome,
       coalesce(i.twin_process_id, i.process_id)::text AS process_id, coalesce(i.twin_task_id, i.task_id)::bigint AS task_id,
       i.fencing_token::bigint AS fencing_token, i.scheduled_time::timestamptz AS scheduled_time, statement_timestamp()::timestamptz AS now
  FROM i;
