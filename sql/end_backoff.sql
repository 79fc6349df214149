-- EndBackoff lets a job that waits for its next attempt run now. The job keeps its attempts and
-- failures. A job that needs keys of constraints is evaluated again. EndBackoff returns 0 if the
-- job does not wait for an attempt. It runs after LockProcesses.
-- name: EndBackoff :execrows
WITH waiting AS MATERIALIZED (
  SELECT s.namespace, s.process_id, s.task_id, s.job_name
    FROM schedule s
    JOIN processes p ON p.namespace = s.namespace AND p.process_id = s.process_id
   WHERE s.namespace = @namespace::text
     AND s.process_id = @process_id::text
     AND s.task_type = 'INIT'
     AND s.waits_for = 'time'
     AND s.attempt > 0
     AND p.kind = 'job'
     AND p.status = 'INIT'
     AND p.removed_time IS NULL),
counted AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT w.namespace, w.job_name, x.state, x.n
    FROM waiting w
   CROSS JOIN (VALUES ('available', 1), ('retryable', -1)) AS x(state, n)
   ORDER BY x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor)
  SELECT w.namespace, w.process_id, 'retried', 'retryable', 'available', NULLIF(@actor::text, '')
    FROM waiting w
   WHERE @mode::int = 2)
UPDATE schedule s
   SET waits_for = CASE WHEN s.line IS NOT NULL THEN 'constraint' ELSE 'place' END::waits_for,
       line = CASE WHEN s.line IS NOT NULL THEN '' END,
       round = CASE
                 WHEN s.line IS NOT NULL THEN 0
                 ELSE next_round(s.namespace, 'place', s.job_name, NULL, s.priority, s.fairness_key)
               END,
       scheduled_time = statement_timestamp()
  FROM waiting w
 WHERE s.namespace = w.namespace
   AND s.process_id = w.process_id
   AND s.task_id = w.task_id;
