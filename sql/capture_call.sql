-- CaptureCall is PrepareCall for the most frequent request: the process is RUNNING and idle, no
-- task waits for it, and the key, if any, is new. Other items are missing in the result, and
-- nothing is stored for them; PrepareCall handles them. A statement contains at most one call per
-- process.
-- name: CaptureCall :many
WITH a AS MATERIALIZED (
  SELECT t.*, p.previous_status, p.status_changed_time, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
         nextval('task_ids') AS task_id, nextval('fencing_tokens') AS fencing_token
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
                 unnest(@task_types::text[]) AS task_type, unnest(@args::bytea[]) AS args, unnest(@contexts::bytea[]) AS context,
                 unnest(@idempotency_keys::text[]) AS idempotency_key, unnest(@request_ids::uuid[]) AS request_id,
                 unnest(@fingerprints::bytea[]) AS fingerprint, unnest(@history_ranges::text[]) AS history_range,
                 unnest(@priorities::int[]) AS priority, unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS t
   CROSS JOIN LATERAL (SELECT p.previous_status, p.status_changed_time, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
                         FROM processes p WHERE p.namespace = t.namespace AND p.process_id = t.process_id AND p.status = 'RUNNING'
                          AND p.cancel_deadline IS NULL AND p.removed_time IS NULL
                          AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid) LIMIT 1) p
    LEFT JOIN LATERAL (SELECT true AS found FROM running r WHERE r.namespace = t.namespace AND r.process_id = t.process_id LIMIT 1) r ON true
    LEFT JOIN LATERAL (SELECT true AS found FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id
                          AND s.waits_for IN ('process', 'place') LIMIT 1) w ON true
    LEFT JOIN LATERAL (SELECT true AS found FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true
   WHERE r.found IS NULL AND w.found IS NULL AND q.found IS NULL),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline,
                       scheduled_time, running_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type, 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', statement_timestamp(), statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM a),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp() FROM a WHERE idempotency_key <> '')
SELECT a.ord::int AS ord, a.task_id::bigint AS task_id, a.fencing_token::bigint AS fencing_token, statement_timestamp()::timestamptz AS now,
       coalesce(a.previous_status::text, '')::text AS previous_status, a.status_changed_time, a.created_time, a.last_event_id, a.first_event_id,
       coalesce(a.kind, '')::text AS kind, a.aux_state, a.metadata
  FROM a;
