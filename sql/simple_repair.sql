-- SimpleRepair returns a process in ERROR to RUNNING without its processor, and sets the timers
-- that its error had cancelled, including a failed timer, as a new task with attempt 1. It handles
-- one process, and runs after LockProcesses. outcome: repaired, replayed, mismatch, not_found, job
-- (which must be retried instead), status, repairing, unsettled (see PrepareRepair).
-- name: SimpleRepair :one
WITH i AS MATERIALIZED (
  SELECT @namespace::text AS namespace, @process_id::text AS process_id, p.status, p.corrupted_by,
         q.process_id AS twin_process_id, q.task_id AS twin_task_id, q.fingerprint AS twin_fingerprint,
         p.kind, coalesce(q.task_id IS NULL AND p.status = 'ERROR' AND p.kind <> 'job', false) AS acceptable,
         EXISTS (SELECT 1 FROM running r WHERE r.namespace = @namespace::text AND r.process_id = @process_id::text)
         OR EXISTS (SELECT 1 FROM schedule s WHERE s.namespace = @namespace::text AND s.process_id = @process_id::text) AS repairing,
         EXISTS (SELECT 1 FROM queue_backlogs b WHERE b.namespace = @namespace::text AND b.process_id = @process_id::text) AS unsettled
    FROM (SELECT 1) one
    LEFT JOIN processes p ON p.namespace = @namespace::text AND p.process_id = @process_id::text AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
    LEFT JOIN requests q ON q.request_id = @request_id::uuid),
ok AS MATERIALIZED (SELECT * FROM i WHERE acceptable AND NOT repairing AND NOT unsettled),
t AS MATERIALIZED (
  SELECT nextval('task_ids') AS new_task_id, x.* FROM (
    SELECT k.task_id, k.task_type, k.timer_name, k.scheduled_time, k.context, k.priority, true AS culprit
      FROM ok JOIN tasks k ON k.namespace = @namespace::text AND k.process_id = @process_id::text AND k.task_id = ok.corrupted_by
     WHERE k.task_type IN ('TIMEOUT', 'REMOVE')
    UNION ALL
    SELECT k.task_id, k.task_type, k.timer_name, k.scheduled_time, k.context, k.priority, false
      FROM ok JOIN tasks k ON k.namespace = @namespace::text AND k.process_id = @process_id::text AND k.cancelled_by = ok.corrupted_by
     WHERE k.task_type IN ('TIMEOUT', 'REMOVE')) x),
up AS (
  UPDATE processes p SET status = 'RUNNING', previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = NULL, attention_time = NULL, detail = NULL, corrupted_by = NULL
   WHERE p.namespace = @namespace::text AND p.process_id = @process_id::text AND EXISTS (SELECT 1 FROM ok)
  RETURNING p.namespace, 'ERROR'::process_status AS old_status, p.status AS new_status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, x.status, sum(x.n) FROM up CROSS JOIN LATERAL (VALUES (up.old_status, -1), (up.new_status, 1)) AS x(status, n)
   GROUP BY up.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY up.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, timer_name, context)
  SELECT @namespace::text, @process_id::text, new_task_id, task_type, 'time', priority, scheduled_time, timer_name,
         coalesce(@context::bytea, context) FROM t),
req AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT @request_id::uuid, namespace, process_id, coalesce((SELECT t.new_task_id FROM t WHERE t.culprit), 0), @fingerprint::bytea, statement_timestamp()
    FROM ok WHERE @request_id::uuid <> '00000000-0000-0000-0000-000000000000')
SELECT (CASE WHEN i.acceptable AND NOT i.repairing AND NOT i.unsettled THEN 'repaired'
             WHEN i.twin_task_id IS NOT NULL AND i.twin_fingerprint = @fingerprint::bytea THEN 'replayed' WHEN i.twin_task_id IS NOT NULL THEN 'mismatch'
             WHEN i.status IS NULL THEN 'not_found' WHEN i.acceptable AND i.unsettled THEN 'unsettled' WHEN i.acceptable THEN 'repairing' WHEN i.kind = 'job' THEN 'job' ELSE 'status' END)::text AS outcome,
       coalesce(i.twin_task_id, (SELECT t.new_task_id FROM t WHERE t.culprit), 0)::bigint AS task_id,
       coalesce(i.status, 'INIT')::process_status AS status
  FROM i;
