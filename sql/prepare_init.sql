-- PrepareInit creates processes with their INIT tasks. If a key is already used, no process is
-- created, and the outcome is replayed or mismatch. The items of a statement have different
-- processes. The other outcomes are captured (runs on this node), postponed (waits) and exists.
--
-- If another session creates the same process at the same time, and its row is not visible yet,
-- there is a unique violation. The flush is repeated and then sees the row. That is cheaper than ON
-- CONFLICT, which takes a lock and writes a WAL record for each row. Items are sorted by key, so
-- that two sessions that create the same processes wait for each other in a consistent order. The
-- lateral join of processes reads a column that is in no index. Otherwise the planner may choose
-- the index processes_by_created in an empty table.
-- name: PrepareInit :many
WITH input AS MATERIALIZED (
  SELECT item.*, request.process_id AS earlier_process_id, request.task_id AS earlier_task_id,
         request.fingerprint AS earlier_fingerprint, nextval('task_ids') AS task_id,
         nextval('fencing_tokens') AS fencing_token,
         greatest(item.start_time, statement_timestamp()) AS scheduled_time,
         item.capture AND item.start_time <= statement_timestamp() AS captures,
         request.task_id IS NULL AND process.status IS NULL AS created
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@kinds::text[]) AS kind,
             unnest(@args::bytea[]) AS args, unnest(@contexts::bytea[]) AS context,
             unnest(@metadatas::text[]) AS metadata,
             unnest(@idempotency_keys::text[]) AS idempotency_key,
             unnest(@request_ids::uuid[]) AS request_id,
             unnest(@fingerprints::bytea[]) AS fingerprint,
             unnest(@history_ranges::text[]) AS history_range,
             unnest(@priorities::int[]) AS priority,
             unnest(@start_times::timestamptz[]) AS start_time,
             unnest(@captures::bool[]) AS capture,
             unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS item
    LEFT JOIN LATERAL (
      SELECT q.* FROM requests q
       WHERE item.idempotency_key <> ''
         AND q.request_id = item.request_id
       LIMIT 1) request ON true
    LEFT JOIN LATERAL (
      SELECT p.status FROM processes p
       WHERE p.namespace = item.namespace
         AND p.process_id = item.process_id
       LIMIT 1) process ON true),
inserted_processes AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time,
                         status_changed_time)
  SELECT namespace, process_id, 'INIT', kind, NULLIF(metadata, '')::jsonb, statement_timestamp(),
         statement_timestamp()
    FROM input WHERE created),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT input.namespace, 'RUNNING', count(*)
    FROM input WHERE input.created
   GROUP BY input.namespace ORDER BY input.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, history_range,
                       idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT', 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         scheduled_time, statement_timestamp(), NULLIF(history_range, '')::jsonb,
         NULLIF(idempotency_key, ''), args, context
    FROM input
   WHERE created
     AND captures),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'INIT',
         CASE WHEN start_time > statement_timestamp() THEN 'time' ELSE 'place' END::waits_for,
         priority, scheduled_time, NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''),
         args, context
    FROM input
   WHERE created
     AND NOT captures),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM input
   WHERE created
     AND idempotency_key <> '')
SELECT input.ord::int AS ord,
       (CASE
          WHEN input.created AND input.captures THEN 'captured'
          WHEN input.created THEN 'postponed'
          WHEN input.earlier_task_id IS NULL THEN 'exists'
          WHEN input.earlier_fingerprint = input.fingerprint THEN 'replayed'
          ELSE 'mismatch'
        END)::text AS outcome,
       coalesce(input.earlier_process_id, input.process_id)::text AS process_id,
       coalesce(input.earlier_task_id, input.task_id)::bigint AS task_id,
       input.fencing_token::bigint AS fencing_token,
       input.scheduled_time::timestamptz AS scheduled_time,
       statement_timestamp()::timestamptz AS now
  FROM input;
