-- SimpleRepair returns a process in ERROR to RUNNING without a call of its processor. It also sets
-- the timers that the error had cancelled, including a failed timer, each as a new task with
-- attempt 1. It records the repair as a finished REPAIR task without an attempt. It handles one
-- process, and runs after LockProcesses. The outcome is repaired, replayed, mismatch, not_found,
-- job (a job must be retried instead), status, repairing or unsettled (see PrepareRepair).
-- name: SimpleRepair :one
WITH input AS MATERIALIZED (
  SELECT @namespace::text AS namespace, @process_id::text AS process_id, p.status, p.corrupted_by,
         q.process_id AS earlier_process_id, q.task_id AS earlier_task_id,
         q.fingerprint AS earlier_fingerprint, p.kind,
         coalesce(q.task_id IS NULL AND p.status = 'ERROR' AND p.kind <> 'job',
                  false) AS acceptable,
         EXISTS (
           SELECT 1 FROM running r
            WHERE r.namespace = @namespace::text
              AND r.process_id = @process_id::text)
           OR EXISTS (
             SELECT 1 FROM schedule s
              WHERE s.namespace = @namespace::text
                AND s.process_id = @process_id::text) AS repairing,
         EXISTS (
           SELECT 1 FROM queue_backlogs b
            WHERE b.namespace = @namespace::text
              AND b.process_id = @process_id::text) AS unsettled
    FROM (SELECT 1) one
    LEFT JOIN processes p
      ON p.namespace = @namespace::text
     AND p.process_id = @process_id::text
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN requests q ON q.request_id = @request_id::uuid),
accepted AS MATERIALIZED (
  SELECT * FROM input
   WHERE acceptable
     AND NOT repairing
     AND NOT unsettled),
-- The repair gets a smaller number than the timers that it sets.
repair AS MATERIALIZED (
  SELECT nextval('task_ids') AS task_id, accepted.corrupted_by FROM accepted),
repair_tasks AS MATERIALIZED (
  SELECT nextval('task_ids') AS new_task_id, repair_task.*
    FROM (
      SELECT k.task_id, k.task_type, k.timer_name, k.scheduled_time, k.context, k.priority,
             true AS culprit
        FROM repair
        JOIN tasks k
          ON k.namespace = @namespace::text
         AND k.process_id = @process_id::text
         AND k.task_id = repair.corrupted_by
       WHERE k.task_type IN ('TIMEOUT', 'REMOVE')
      UNION ALL
      SELECT k.task_id, k.task_type, k.timer_name, k.scheduled_time, k.context, k.priority, false
        FROM repair
        JOIN tasks k
          ON k.namespace = @namespace::text
         AND k.process_id = @process_id::text
         AND k.cancelled_by = repair.corrupted_by
       WHERE k.task_type IN ('TIMEOUT', 'REMOVE')) repair_task),
updated_processes AS (
  UPDATE processes p
     SET status = 'RUNNING', previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = NULL, attention_time = NULL,
         detail = NULL, corrupted_by = NULL
   WHERE p.namespace = @namespace::text
     AND p.process_id = @process_id::text
     AND EXISTS (SELECT 1 FROM accepted)
  RETURNING p.namespace, 'ERROR'::process_status AS old_status, p.status AS new_status),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, change.status, sum(change.n)
    FROM updated_processes
   CROSS JOIN LATERAL (
     VALUES (updated_processes.old_status, -1),
            (updated_processes.new_status, 1)) AS change(status, n)
   GROUP BY updated_processes.namespace, change.status HAVING sum(change.n) <> 0
   ORDER BY updated_processes.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, scheduled_time,
                     finished_time, context)
  SELECT @namespace::text, @process_id::text, task_id, 'REPAIR', 'FINISHED', 0,
         statement_timestamp(), statement_timestamp(), @context::bytea
    FROM repair),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, timer_name, context)
  SELECT @namespace::text, @process_id::text, new_task_id, task_type, 'time', priority,
         scheduled_time, timer_name, coalesce(@context::bytea, context)
    FROM repair_tasks),
inserted_requests AS (
  INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
  SELECT @request_id::uuid, namespace, process_id,
         coalesce((SELECT repair_tasks.new_task_id FROM repair_tasks WHERE repair_tasks.culprit),
                  0),
         @fingerprint::bytea, statement_timestamp()
    FROM accepted WHERE @request_id::uuid <> '00000000-0000-0000-0000-000000000000')
SELECT (CASE
          WHEN input.acceptable AND NOT input.repairing AND NOT input.unsettled THEN 'repaired'
          WHEN input.earlier_task_id IS NOT NULL AND input.earlier_fingerprint = @fingerprint::bytea
            THEN 'replayed'
          WHEN input.earlier_task_id IS NOT NULL THEN 'mismatch'
          WHEN input.status IS NULL THEN 'not_found'
          WHEN input.acceptable AND input.unsettled THEN 'unsettled'
          WHEN input.acceptable THEN 'repairing'
          WHEN input.kind = 'job' THEN 'job'
          ELSE 'status'
        END)::text AS outcome,
       coalesce(input.earlier_task_id,
                (SELECT repair_tasks.new_task_id FROM repair_tasks WHERE repair_tasks.culprit),
                0)::bigint AS task_id,
       coalesce(input.status, 'INIT')::process_status AS status
  FROM input;
