-- FindLateJobs locks jobs whose start deadline passed before an attempt began, longest overdue
-- first. Every claim skips them, so they only wait for their end. Locked rows are left to the next
-- call.
-- name: FindLateJobs :many
SELECT s.namespace, s.process_id, s.job_name::text AS name, s.scheduled_time,
       s.start_deadline::timestamptz AS start_deadline
  FROM schedule s
  JOIN processes p
    ON p.namespace = ANY (ARRAY[s.namespace])
   AND p.process_id = s.process_id
 WHERE s.start_deadline <= statement_timestamp()
   AND p.status IN ('INIT', 'SUSPENDED')
 ORDER BY s.start_deadline LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED;

-- EndLateJobs ends jobs without an attempt as FAILED. It runs after FindLateJobs. The attempt of
-- the failure is 0. mode defines which events the namespace keeps.
-- name: EndLateJobs :many
WITH input AS MATERIALIZED (
  SELECT item.*, waiting.task_id, waiting.priority, waiting.own_priority, waiting.scheduled_time,
         waiting.idempotency_key, waiting.args, waiting.context, waiting.job_name,
         CASE waiting.waits_for WHEN 'time' THEN 'scheduled' ELSE 'available' END AS state
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@failures::text[]), unnest(@messages::text[]), unnest(@modes::int[]))
         AS item(namespace, process_id, failure, message, mode)
   CROSS JOIN LATERAL (
     SELECT s.* FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_type = 'INIT'
      LIMIT 1) waiting),
updated_processes AS (
  UPDATE processes p
     SET status = 'ERROR', previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = 'ERROR', attention_time = statement_timestamp(), cancel_deadline = NULL,
         detail = input.message, corrupted_by = input.task_id
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
  RETURNING p.namespace,
            (CASE p.previous_status
               WHEN 'INIT' THEN 'RUNNING'
               ELSE p.previous_status::text
             END)::process_status AS old_status),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, change.status, sum(change.n)
    FROM updated_processes
   CROSS JOIN LATERAL (
     VALUES (updated_processes.old_status, -1), ('ERROR'::process_status, 1)) AS change(status, n)
   GROUP BY updated_processes.namespace, change.status
   ORDER BY updated_processes.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT input.namespace, input.job_name, change.state, sum(change.n)
    FROM input
   CROSS JOIN LATERAL (VALUES (input.state, -1), ('failed', 1)) AS change(state, n)
   GROUP BY input.namespace, input.job_name, change.state
   ORDER BY input.namespace, input.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, message)
  SELECT input.namespace, input.process_id, 'start_deadline', input.state, 'failed', input.message
    FROM input WHERE input.mode > 0),
deleted_schedule AS (
  DELETE FROM schedule s USING input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id),
updated_jobs AS (
  UPDATE jobs j
     SET updated_time = statement_timestamp(),
         failures = coalesce(j.failures, '[]') || jsonb_build_array(
           jsonb_build_object('attempt', 0, 'workerId', '', 'time', statement_timestamp(),
                              'takeover', false, 'failure', input.failure::jsonb))
    FROM input
   WHERE j.namespace = ANY (ARRAY[input.namespace])
     AND j.process_id = input.process_id)
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                   scheduled_time, finished_time, idempotency_key, args, context, failure)
SELECT input.namespace, input.process_id, input.task_id, 'INIT', 'ERROR', 0,
       coalesce(input.own_priority, input.priority), input.scheduled_time, statement_timestamp(),
       input.idempotency_key, input.args, input.context, input.failure::jsonb
  FROM input
RETURNING namespace::text AS namespace, process_id::text AS process_id, task_id;
