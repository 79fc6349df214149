-- CaptureCall replaces PrepareCall for the most frequent request: the process is RUNNING and idle,
-- no task waits for it, and the key, if any, is new. It stores nothing for other items and omits
-- them from the result. PrepareCall handles them. A statement contains at most one call per
-- process.
-- name: CaptureCall :many
WITH captured AS MATERIALIZED (
  SELECT item.*, process.previous_status, process.status_changed_time, process.aux_state,
         process.metadata, process.last_event_id, process.first_event_id, process.kind,
         process.created_time, nextval('task_ids') AS task_id,
         nextval('fencing_tokens') AS fencing_token
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_types::text[]) AS task_type,
             unnest(@args::bytea[]) AS args, unnest(@contexts::bytea[]) AS context,
             unnest(@idempotency_keys::text[]) AS idempotency_key,
             unnest(@request_ids::uuid[]) AS request_id,
             unnest(@fingerprints::bytea[]) AS fingerprint,
             unnest(@history_ranges::text[]) AS history_range,
             unnest(@priorities::int[]) AS priority,
             unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS item
   CROSS JOIN LATERAL (
     SELECT p.previous_status, p.status_changed_time, p.aux_state, p.metadata, p.last_event_id,
            p.first_event_id, p.kind, p.created_time
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
        AND p.status = 'RUNNING'
        AND p.cancel_deadline IS NULL
        AND p.removed_time IS NULL
        AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT true AS found FROM running r
       WHERE r.namespace = item.namespace
         AND r.process_id = item.process_id
       LIMIT 1) attempt ON true
    LEFT JOIN LATERAL (
      SELECT true AS found FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.waits_for IN ('process', 'place')
       LIMIT 1) waiting ON true
    LEFT JOIN LATERAL (
      SELECT true AS found FROM requests q
       WHERE item.idempotency_key <> ''
         AND q.request_id = item.request_id
       LIMIT 1) request ON true
   WHERE attempt.found IS NULL
     AND waiting.found IS NULL
     AND request.found IS NULL),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, history_range,
                       idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type, 1, priority, fencing_token,
         @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         statement_timestamp(), statement_timestamp(), NULLIF(history_range, '')::jsonb,
         NULLIF(idempotency_key, ''), args, context
    FROM captured),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM captured WHERE idempotency_key <> '')
SELECT captured.ord::int AS ord, captured.task_id::bigint AS task_id,
       captured.fencing_token::bigint AS fencing_token, statement_timestamp()::timestamptz AS now,
       coalesce(captured.previous_status::text, '')::text AS previous_status,
       captured.status_changed_time, captured.created_time, captured.last_event_id,
       captured.first_event_id, coalesce(captured.kind, '')::text AS kind, captured.aux_state,
       captured.metadata
  FROM captured;
