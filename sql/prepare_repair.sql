-- PrepareRepair accepts repairs by the processor for processes in ERROR, one at a time per process.
-- The outcome is captured, place, replayed, mismatch, not_found, job (a job must be retried
-- instead), status, repairing or unsettled (tasks that the error cancels still wait: see
-- queue_backlogs).
-- name: PrepareRepair :many
WITH input AS MATERIALIZED (
  SELECT item.*, p.status, p.previous_status, p.status_changed_time, p.aux_state, p.metadata,
         p.last_event_id, p.first_event_id, p.kind, p.created_time, p.detail, p.corrupted_by,
         request.process_id AS earlier_process_id, request.task_id AS earlier_task_id,
         request.fingerprint AS earlier_fingerprint, nextval('task_ids') AS task_id,
         nextval('fencing_tokens') AS fencing_token,
         coalesce(request.task_id IS NULL AND p.status = 'ERROR' AND p.kind <> 'job',
                  false) AS acceptable,
         r.task_id IS NOT NULL
           OR (
             SELECT 1 FROM schedule s
              WHERE s.namespace = item.namespace
                AND s.process_id = item.process_id
              LIMIT 1) IS NOT NULL AS repairing,
         (
           SELECT 1 FROM queue_backlogs b
            WHERE b.namespace = item.namespace
              AND b.process_id = item.process_id
            LIMIT 1) IS NOT NULL AS unsettled
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@args::bytea[]), unnest(@contexts::bytea[]),
                    unnest(@idempotency_keys::text[]), unnest(@request_ids::uuid[]),
                    unnest(@fingerprints::bytea[]), unnest(@history_ranges::text[]),
                    unnest(@captures::bool[]), unnest(@step_timeouts_us::bigint[]))
         AS item(ord, namespace, process_id, args, context, idempotency_key, request_id,
                 fingerprint, history_range, capture, step_timeout_us)
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
    LEFT JOIN LATERAL (
      SELECT q.* FROM requests q
       WHERE item.idempotency_key <> ''
         AND q.request_id = item.request_id
       LIMIT 1) request ON true),
decided AS MATERIALIZED (
  SELECT input.*,
         input.acceptable
           AND NOT input.repairing
           AND NOT input.unsettled
           AND row_number() OVER (
             PARTITION BY input.namespace, input.process_id, input.acceptable
             ORDER BY input.ord) = 1 AS accepted
    FROM input),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id,
                       deadline, scheduled_time, running_time, history_range, idempotency_key, args,
                       context)
  SELECT namespace, process_id, task_id, 'REPAIR', 1, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         statement_timestamp(), statement_timestamp(), NULLIF(history_range, '')::jsonb,
         NULLIF(idempotency_key, ''), args, context
    FROM decided
   WHERE accepted
     AND capture),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time,
                        history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, 'REPAIR', 'place', statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM decided
   WHERE accepted
     AND NOT capture),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM decided
   WHERE accepted
     AND idempotency_key <> '')
SELECT decided.ord::int AS ord,
       (CASE
          WHEN decided.accepted AND decided.capture THEN 'captured'
          WHEN decided.accepted THEN 'place'
          WHEN decided.earlier_task_id IS NOT NULL
               AND decided.earlier_fingerprint = decided.fingerprint
            THEN 'replayed'
          WHEN decided.earlier_task_id IS NOT NULL THEN 'mismatch'
          WHEN decided.status IS NULL THEN 'not_found'
          WHEN decided.acceptable AND decided.unsettled THEN 'unsettled'
          WHEN decided.acceptable THEN 'repairing'
          WHEN decided.kind = 'job' THEN 'job'
          ELSE 'status'
        END)::text AS outcome,
       coalesce(decided.earlier_process_id, decided.process_id)::text AS process_id,
       coalesce(decided.earlier_task_id, decided.task_id)::bigint AS task_id,
       decided.fencing_token::bigint AS fencing_token, statement_timestamp()::timestamptz AS now,
       coalesce(decided.status, 'INIT')::process_status AS status,
       coalesce(decided.previous_status::text, '')::text AS previous_status,
       coalesce(decided.status_changed_time, statement_timestamp())::timestamptz
         AS status_changed_time,
       coalesce(decided.created_time, statement_timestamp())::timestamptz AS created_time,
       coalesce(decided.last_event_id, 0)::bigint AS last_event_id,
       coalesce(decided.first_event_id, 1)::bigint AS first_event_id,
       coalesce(decided.kind, '')::text AS kind, decided.aux_state::bytea AS aux_state,
       decided.metadata::jsonb AS metadata, coalesce(decided.detail, '')::text AS detail,
       coalesce(decided.corrupted_by, 0)::bigint AS corrupted_by
  FROM decided;
