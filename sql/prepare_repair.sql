-- PrepareRepair accepts repairs with the processor for processes in ERROR, one at a time per
-- process. outcome: captured, place, replayed, mismatch, not_found, job (which must be retried
-- instead), status, repairing, unsettled (tasks that the error cancels still wait: see
-- queue_backlogs).
-- name: PrepareRepair :many
WITH i AS MATERIALIZED (
  SELECT t.*, p.status, p.previous_status, p.status_changed_time, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
         p.detail, p.corrupted_by, q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         nextval('task_ids') AS task_id, nextval('fencing_tokens') AS fencing_token,
         coalesce(q.task_id IS NULL AND p.status = 'ERROR' AND p.kind <> 'job', false) AS acceptable,
         r.task_id IS NOT NULL OR (SELECT 1 FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id LIMIT 1) IS NOT NULL AS repairing,
         (SELECT 1 FROM queue_backlogs b WHERE b.namespace = t.namespace AND b.process_id = t.process_id LIMIT 1) IS NOT NULL AS unsettled
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@args::bytea[]), unnest(@contexts::bytea[]), unnest(@idempotency_keys::text[]),
                    unnest(@request_ids::uuid[]), unnest(@fingerprints::bytea[]), unnest(@history_ranges::text[]),
                    unnest(@captures::bool[]), unnest(@step_timeouts_us::bigint[]))
         AS t(ord, namespace, process_id, args, context, idempotency_key, request_id, fingerprint, history_range, capture, step_timeout_us)
    LEFT JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
    LEFT JOIN running r ON r.namespace = ANY (ARRAY[t.namespace]) AND r.process_id = t.process_id
    LEFT JOIN LATERAL (SELECT q.* FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true),
a AS MATERIALIZED (
  SELECT i.*, i.acceptable AND NOT i.repairing AND NOT i.unsettled
         AND row_number() OVER (PARTITION BY i.namespace, i.process_id, i.acceptable ORDER BY i.ord) = 1 AS accepted FROM i),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline,
                       scheduled_time, running_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'REPAIR', 1, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', statement_timestamp(), statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM a WHERE accepted AND capture),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'REPAIR', 'place', statement_timestamp(), NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM a WHERE accepted AND NOT capture),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM a WHERE accepted AND idempotency_key <> '')
SELECT a.ord::int AS ord,
       (CASE WHEN a.accepted AND a.capture THEN 'captured' WHEN a.accepted THEN 'place'
             WHEN a.twin_task_id IS NOT NULL AND a.twin_fingerprint = a.fingerprint THEN 'replayed' WHEN a.twin_task_id IS NOT NULL THEN 'mismatch'
             WHEN a.status IS NULL THEN 'not_found' WHEN a.acceptable AND a.unsettled THEN 'unsettled' WHEN a.acceptable THEN 'repairing' WHEN a.kind = 'job' THEN 'job' ELSE 'status' END)::text AS outcome,
       coalesce(a.twin_process_id, a.process_id)::text AS process_id, coalesce(a.twin_task_id, a.task_id)::bigint AS task_id,
       a.fencing_token::bigint AS fencing_token, statement_timestamp()::timestamptz AS now,
       coalesce(a.status, 'INIT')::process_status AS status, coalesce(a.previous_status::text, '')::text AS previous_status,
       coalesce(a.status_changed_time, statement_timestamp())::timestamptz AS status_changed_time,
       coalesce(a.created_time, statement_timestamp())::timestamptz AS created_time,
       coalesce(a.last_event_id, 0)::bigint AS last_event_id, coalesce(a.first_event_id, 1)::bigint AS first_event_id, coalesce(a.kind, '')::text AS kind,
       a.aux_state::bytea AS aux_state, a.metadata::jsonb AS metadata,
       coalesce(a.detail, '')::text AS detail, coalesce(a.corrupted_by, 0)::bigint AS corrupted_by
  FROM a;
