-- PrepareCall accepts calls (CALL, NOTIFY) to processes that LockProcesses has locked. An idle
-- process runs the first one at once, if its item has a slot; all others wait in schedule, in
-- task_id order. A process with a cancel request counts as busy. outcome: captured, postponed,
-- place (waits for a slot), replayed, mismatch, not_found, job (which accepts no calls), status,
-- overloaded.
-- name: PrepareCall :many
WITH i AS MATERIALIZED (
  SELECT t.*, p.status, p.previous_status, p.status_changed_time, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time,
         q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         nextval('task_ids') AS task_id, r.task_id IS NOT NULL AS runs, r.task_id IS NOT NULL OR p.cancel_deadline IS NOT NULL AS busy, w.waiting,
         coalesce(q.task_id IS NULL AND p.status IN ('INIT', 'RUNNING') AND p.kind <> 'job', false) AS acceptable
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_types::text[]),
                    unnest(@args::bytea[]), unnest(@contexts::bytea[]), unnest(@idempotency_keys::text[]),
                    unnest(@request_ids::uuid[]), unnest(@fingerprints::bytea[]), unnest(@history_ranges::text[]),
                    unnest(@priorities::int[]), unnest(@captures::bool[]), unnest(@step_timeouts_us::bigint[]), unnest(@max_waitings::int[]))
         AS t(ord, namespace, process_id, task_type, args, context, idempotency_key, request_id, fingerprint, history_range,
              priority, capture, step_timeout_us, max_waiting)
    LEFT JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
    LEFT JOIN running r ON r.namespace = ANY (ARRAY[t.namespace]) AND r.process_id = t.process_id
    LEFT JOIN LATERAL (SELECT q.* FROM requests q WHERE t.idempotency_key <> '' AND q.request_id = t.request_id LIMIT 1) q ON true
    CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (
        SELECT 1 FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id
           AND s.waits_for IN ('process', 'place') LIMIT t.max_waiting) x) w),
-- n counts the accepted items of a process in this statement: only the first one can find it idle.
-- queue_priority is the smallest priority of the waiting ones.
a AS MATERIALIZED (
  SELECT m.*, nextval('fencing_tokens') AS fencing_token,
         min(CASE WHEN m.accepted AND NOT m.captured THEN m.priority END) OVER (PARTITION BY m.namespace, m.process_id, m.acceptable) AS queue_priority
    FROM (SELECT n.*, n.acceptable AND n.waiting + n.n - 1 - CASE WHEN n.free THEN 1 ELSE 0 END < n.max_waiting AS accepted,
                 n.free AND n.n = 1 AND n.capture AS captured
            FROM (SELECT i.*, i.status = 'RUNNING' AND NOT i.busy AND i.waiting = 0 AS free,
                         row_number() OVER (PARTITION BY i.namespace, i.process_id, i.acceptable ORDER BY i.ord) AS n FROM i) n) m),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline,
                       scheduled_time, running_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type, 1, priority, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', statement_timestamp(), statement_timestamp(),
         NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM a WHERE accepted AND captured),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, own_priority, scheduled_time, history_range, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type::task_type, CASE WHEN free AND n = 1 THEN 'place' ELSE 'process' END::waits_for,
         CASE WHEN free AND n = 1 THEN queue_priority ELSE priority END, CASE WHEN free AND n = 1 AND queue_priority < priority THEN priority END,
         statement_timestamp(), NULLIF(history_range, '')::jsonb, NULLIF(idempotency_key, ''), args, context
    FROM a WHERE accepted AND NOT captured),
-- A process waits for a slot with the smallest priority of its waiting tasks.
lowered AS (
  UPDATE schedule s SET priority = x.queue_priority, own_priority = coalesce(s.own_priority, s.priority)
    FROM (SELECT DISTINCT a.namespace, a.process_id, a.queue_priority FROM a WHERE a.accepted AND NOT a.free AND NOT a.runs AND a.waiting > 0) x
   WHERE s.namespace = ANY (ARRAY[x.namespace]) AND s.process_id = x.process_id AND s.waits_for::text = 'place' AND s.priority > x.queue_priority),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT request_id, namespace, process_id, task_id, fingerprint, statement_timestamp()
    FROM a WHERE accepted AND idempotency_key <> '')
SELECT a.ord::int AS ord,
       (CASE WHEN a.accepted AND a.captured THEN 'captured' WHEN a.accepted AND a.free AND a.n = 1 THEN 'place' WHEN a.accepted THEN 'postponed'
             WHEN a.twin_task_id IS NOT NULL AND a.twin_fingerprint = a.fingerprint THEN 'replayed' WHEN a.twin_task_id IS NOT NULL THEN 'mismatch'
             WHEN a.status IS NULL THEN 'not_found' WHEN a.acceptable THEN 'overloaded' WHEN a.kind = 'job' THEN 'job' ELSE 'status' END)::text AS outcome,
       coalesce(a.twin_process_id, a.process_id)::text AS process_id, coalesce(a.twin_task_id, a.task_id)::bigint AS task_id,
       a.fencing_token::bigint AS fencing_token, statement_timestamp()::timestamptz AS now,
       coalesce(a.status, 'INIT')::process_status AS status, coalesce(a.previous_status::text, '')::text AS previous_status,
       coalesce(a.status_changed_time, statement_timestamp())::timestamptz AS status_changed_time,
       coalesce(a.created_time, statement_timestamp())::timestamptz AS created_time,
       coalesce(a.last_event_id, 0)::bigint AS last_event_id, coalesce(a.first_event_id, 1)::bigint AS first_event_id, coalesce(a.kind, '')::text AS kind,
       (CASE WHEN a.captured THEN a.aux_state END)::bytea AS aux_state, (CASE WHEN a.captured THEN a.metadata END)::jsonb AS metadata
  FROM a;
