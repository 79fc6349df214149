-- PrepareCall accepts calls (CALL, NOTIFY) to processes that TryLockProcesses has locked. If a
-- process is idle and the node has a slot for the first call of the process (capture), that call
-- runs at once. All other calls wait in schedule, in the order of their task IDs. A process with a
-- cancel request counts as busy. The outcome of a call is:
--
--   captured    The call runs.
--   place       The process is idle, but the call waits for a slot.
--   postponed   The call waits until the process is free.
--   replayed    An earlier call had the same idempotency key and the same content.
--   mismatch    An earlier call had the same idempotency key, but another content.
--   not_found   The process does not exist.
--   job         The process is a job, which accepts no calls.
--   status      The process does not accept calls in its status.
--   overloaded  max_waiting calls already wait for the process.
-- name: PrepareCall :many
WITH input AS MATERIALIZED (
  SELECT item.*, p.status, p.previous_status, p.status_changed_time, p.aux_state, p.metadata,
         p.last_event_id, p.first_event_id, p.kind, p.created_time,
         request.process_id AS earlier_process_id, request.task_id AS earlier_task_id,
         request.fingerprint AS earlier_fingerprint, nextval('task_ids') AS task_id,
         r.task_id IS NOT NULL AS runs,
         r.task_id IS NOT NULL OR p.cancel_deadline IS NOT NULL AS busy,
         queued.waiting,
         coalesce(request.task_id IS NULL AND p.status IN ('INIT', 'RUNNING') AND p.kind <> 'job',
                  false) AS acceptable
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_types::text[]), unnest(@args::bytea[]), unnest(@contexts::bytea[]),
                    unnest(@idempotency_keys::text[]), unnest(@request_ids::uuid[]),
                    unnest(@fingerprints::bytea[]), unnest(@history_ranges::text[]),
                    unnest(@priorities::int[]), unnest(@captures::bool[]),
                    unnest(@step_timeouts_us::bigint[]), unnest(@max_waitings::int[]))
         AS item(ord, namespace, process_id, task_type, args, context, idempotency_key, request_id,
                 fingerprint, history_range, priority, capture, step_timeout_us, max_waiting)
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
       LIMIT 1) request ON true
   CROSS JOIN LATERAL (
     SELECT count(*) AS waiting
       FROM (
         SELECT 1 FROM schedule s
          WHERE s.namespace = item.namespace
            AND s.process_id = item.process_id
            AND s.waits_for IN ('process', 'place')
          LIMIT item.max_waiting) queued_task) queued),
-- n numbers the acceptable calls of a process in this statement: only the first of them can find
-- the process idle. queue_priority is the smallest priority among those that must wait.
decided AS MATERIALIZED (
  SELECT numbered_items.*, nextval('fencing_tokens') AS fencing_token,
         min(CASE
               WHEN numbered_items.accepted AND NOT numbered_items.captured
                 THEN numbered_items.priority
             END) OVER (PARTITION BY numbered_items.namespace, numbered_items.process_id,
                        numbered_items.acceptable) AS queue_priority
    FROM (
      SELECT numbered.*,
             numbered.acceptable
               AND numbered.waiting + numbered.n - 1
                     - CASE WHEN numbered.free THEN 1 ELSE 0 END < numbered.max_waiting AS accepted,
             numbered.free AND numbered.n = 1 AND numbered.capture AS captured
        FROM (
          SELECT input.*,
                 input.status = 'RUNNING' AND NOT input.busy AND input.waiting = 0 AS free,
                 row_number() OVER (
                   PARTITION BY input.namespace, input.process_id, input.acceptable
                   ORDER BY input.ord) AS n
            FROM input) numbered) numbered_items),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, history_range,
                       idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type, 1, priority, fencing_token,
         @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         statement_timestamp(), statement_timestamp(), NULLIF(history_range, '')::jsonb,
         NULLIF(idempotency_key, ''), args, context
    FROM decided
   WHERE accepted
     AND captured),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        own_priority, scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type,
         CASE WHEN free AND n = 1 THEN 'place' ELSE 'process' END::waits_for,
         CASE WHEN free AND n = 1 THEN queue_priority ELSE priority END,
         CASE WHEN free AND n = 1 AND queue_priority < priority THEN priority END,
         statement_timestamp(), NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args,
         context
    FROM decided
   WHERE accepted
     AND NOT captured),
-- A process waits for a slot with the smallest priority among its waiting tasks.
lowered AS (
  UPDATE schedule s
     SET priority = lower.queue_priority, own_priority = coalesce(s.own_priority, s.priority)
    FROM (
      SELECT DISTINCT decided.namespace, decided.process_id, decided.queue_priority
        FROM decided
       WHERE decided.accepted
         AND NOT decided.free
         AND NOT decided.runs
         AND decided.waiting > 0) lower
   WHERE s.namespace = ANY (ARRAY[lower.namespace])
     AND s.process_id = lower.process_id
     AND s.waits_for::text = 'place'
     AND s.priority > lower.queue_priority),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM decided
   WHERE accepted
     AND idempotency_key <> '')
SELECT decided.ord::int AS ord,
       (CASE
          WHEN decided.accepted AND decided.captured THEN 'captured'
          WHEN decided.accepted AND decided.free AND decided.n = 1 THEN 'place'
          WHEN decided.accepted THEN 'postponed'
          WHEN decided.earlier_task_id IS NOT NULL
               AND decided.earlier_fingerprint = decided.fingerprint
            THEN 'replayed'
          WHEN decided.earlier_task_id IS NOT NULL THEN 'mismatch'
          WHEN decided.status IS NULL THEN 'not_found'
          WHEN decided.acceptable THEN 'overloaded'
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
       coalesce(decided.kind, '')::text AS kind,
       (CASE WHEN decided.captured THEN decided.aux_state END)::bytea AS aux_state,
       (CASE WHEN decided.captured THEN decided.metadata END)::jsonb AS metadata
  FROM decided;
