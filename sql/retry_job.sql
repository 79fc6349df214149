-- EndIfCancelled ends jobs as CANCELLED if a cancel was requested and their attempt would be
-- retried or was released. It runs after SaveResult and selects its items like WriteJobs.
-- name: EndIfCancelled :exec
WITH input AS MATERIALIZED (
  SELECT waiting.*, item.mode,
         CASE
           WHEN waiting.waits_for <> 'time' THEN 'available'
           WHEN waiting.attempt > 0 THEN 'retryable'
           ELSE 'scheduled'
         END AS state
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@modes::int[]))
         AS item(namespace, process_id, task_id, fencing_token, mode)
   CROSS JOIN LATERAL (
     SELECT s.* FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id
        AND s.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) waiting
   CROSS JOIN LATERAL (
     SELECT p.cancel_deadline FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process
   WHERE process.cancel_deadline IS NOT NULL),
deleted_schedule AS (
  DELETE FROM schedule s USING input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.task_id = input.task_id),
updated_processes AS (
  UPDATE processes p
     SET status = 'CANCELLED', previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = 'CANCELLED',
         attention_time = statement_timestamp(), cancel_deadline = NULL, detail = NULL
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
  RETURNING p.namespace,
            (CASE p.previous_status
               WHEN 'INIT' THEN 'RUNNING'
               ELSE p.previous_status::text
             END)::process_status AS old_status,
            p.status AS new_status),
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
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, change.state, sum(change.n)
    FROM input m
   CROSS JOIN LATERAL (VALUES (m.state, -1), ('cancelled', 1)) AS change(state, n)
   WHERE NOT starts_with(m.process_id, '~job/~/')
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status)
  SELECT input.namespace, input.process_id, 'cancelled', 'cancel_requested', 'cancelled'
    FROM input WHERE input.mode > 0)
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                   fencing_token, scheduled_time, finished_time, retry_interval, timer_name,
                   idempotency_key, args, context, failure)
SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, priority, fencing_token,
       scheduled_time, statement_timestamp(), retry_interval, timer_name, idempotency_key, args,
       context, failure
  FROM input;

-- RetryJob runs a FAILED or CANCELLED job again, and with clear_successes also a SUCCEEDED one. It
-- creates a new INIT task with the args of the last one. The attempts of the new task are counted
-- from 0. A unique job takes its key again, unless another job holds it (see EnqueueJobs). It runs
-- after LockProcesses and LockJobKeys. outcome is changed, not_found (no job), status or held
-- (holder has the key).
-- name: RetryJob :one
WITH checked AS MATERIALIZED (
  SELECT item.*, p.status, coalesce(p.kind = 'job', false) AS job, task.args, task.priority,
         holder.process_id AS holder,
         coalesce(p.kind = 'job'
                     AND (p.status IN ('ERROR', 'CANCELLED')
                          OR item.clear_successes AND p.status = 'COMPLETED'),
                  false)
           AND task.task_id IS NOT NULL AS ended
    FROM (
      SELECT @namespace::text AS namespace, @process_id::text AS process_id,
             @clear_successes::bool AS clear_successes, @unique_key::text AS unique_key,
             @unique_ttl_us::bigint AS unique_ttl_us, @unique_waiting::bool AS unique_waiting) item
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN LATERAL (
      SELECT k.* FROM tasks k
       WHERE k.namespace = item.namespace
         AND k.process_id = item.process_id
         AND k.task_type = 'INIT'
       ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1) task ON true
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (
          SELECT p.* FROM processes p
           WHERE p.namespace = k.namespace
             AND p.process_id = k.process_id
             AND p.removed_time IS NULL
           LIMIT 1) process ON true
       WHERE item.unique_key <> ''
         AND k.namespace = item.namespace
         AND k.unique_key = item.unique_key
         AND k.process_id <> item.process_id
         AND CASE
               WHEN process.status IS NULL THEN k.held_until > statement_timestamp()
               WHEN process.status IN ('COMPLETED', 'CANCELLED', 'ERROR')
                 THEN process.status_changed_time + k.ttl > statement_timestamp()
               ELSE NOT item.unique_waiting
                    OR (
                      SELECT r.task_id FROM running r
                       WHERE r.namespace = k.namespace
                         AND r.process_id = k.process_id
                       LIMIT 1) IS NULL
                       AND (
                         SELECT s.task_id FROM schedule s
                          WHERE s.namespace = k.namespace
                            AND s.process_id = k.process_id
                            AND s.taker = '~'
                            AND s.attempt > 0
                          LIMIT 1) IS NULL
             END
       LIMIT 1) holder ON true),
input AS MATERIALIZED (
  SELECT checked.*, checked.ended AND checked.holder IS NULL AS again FROM checked),
updated_job_keys AS (
  UPDATE job_keys k
     SET process_id = input.process_id, ttl = input.unique_ttl_us * interval '1 microsecond',
         held_until = NULL
    FROM input
   WHERE input.again
     AND input.unique_key <> ''
     AND k.namespace = ANY (ARRAY[input.namespace])
     AND k.unique_key = input.unique_key),
updated_processes AS (
  UPDATE processes p
     SET status = 'INIT', previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = NULL, attention_time = NULL, detail = NULL, corrupted_by = NULL,
         cancel_requested_time = NULL, cancel_reason = NULL, cancel_deadline = NULL
    FROM input
   WHERE input.again
     AND p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
  RETURNING p.namespace, input.status AS old_status),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, change.status, sum(change.n)
    FROM updated_processes
   CROSS JOIN LATERAL (
     VALUES (updated_processes.old_status, -1), ('RUNNING'::process_status, 1)) AS change(status, n)
   GROUP BY updated_processes.namespace, change.status HAVING sum(change.n) <> 0
   ORDER BY updated_processes.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_jobs AS (
  UPDATE jobs j
     SET takeovers = 0, failures = NULL, progress = NULL, worker_id = NULL, result = NULL,
         result_expires_time = NULL, updated_time = statement_timestamp()
    FROM input
   WHERE input.again
     AND j.namespace = ANY (ARRAY[input.namespace])
     AND j.process_id = input.process_id
  RETURNING j.namespace, j.process_id, j.name, j.constraints_version, j.fairness_key,
            coalesce(j.options ? 'workers', false) AS grouped,
            (j.options->>'startDeadline')::interval AS start_deadline,
            CASE input.status
              WHEN 'COMPLETED' THEN 'succeeded'
              WHEN 'ERROR' THEN 'failed'
              ELSE 'cancelled'
            END AS state),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.name, change.state, sum(change.n)
    FROM updated_jobs m
   CROSS JOIN LATERAL (VALUES (m.state, -1), ('available', 1)) AS change(state, n)
   GROUP BY m.namespace, m.name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor)
  SELECT updated_jobs.namespace, updated_jobs.process_id, 'retried', updated_jobs.state,
         'available', NULLIF(@actor::text, '')
    FROM updated_jobs WHERE @mode::int = 2),
-- In a group, the places of workers that have not succeeded are deleted, so that new members take
-- them. With clear_successes, all places are deleted.
deleted_job_places AS (
  DELETE FROM job_places l USING input
   WHERE input.again
     AND l.namespace = ANY (ARRAY[input.namespace])
     AND l.job_id = input.process_id
     AND l.state IS NOT NULL
     AND (l.state <> 'succeeded' OR input.clear_successes)),
-- A cancel may have ended the group while it ran.
updated_job_groups AS (
  UPDATE job_groups g
     SET running_time = NULL
    FROM input
   WHERE input.again
     AND g.namespace = ANY (ARRAY[input.namespace])
     AND g.process_id = input.process_id
     AND g.running_time IS NOT NULL),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, args, job_name, line, taker, start_deadline, fairness_key,
                        round)
  SELECT input.namespace, input.process_id, nextval('task_ids'), 'INIT',
         CASE WHEN b.constraints_version IS NULL THEN 'place' ELSE 'constraint' END::waits_for,
         input.priority, statement_timestamp(), input.args, b.name,
         CASE WHEN b.constraints_version IS NOT NULL THEN '' END,
         CASE WHEN b.grouped THEN '~' END,
         statement_timestamp() + b.start_deadline,
         b.fairness_key,
         CASE
           WHEN b.constraints_version IS NOT NULL THEN 0
           ELSE next_round(input.namespace, 'place', b.name, NULL, input.priority, b.fairness_key)
         END
    FROM input
   CROSS JOIN updated_jobs b)
SELECT (CASE
          WHEN input.again THEN 'INIT'
          ELSE coalesce(input.status, 'INIT')
        END)::process_status AS status,
       (CASE
          WHEN input.again THEN 'changed'
          WHEN NOT input.job THEN 'not_found'
          WHEN input.ended THEN 'held'
          ELSE 'status'
        END)::text AS outcome,
       coalesce(input.holder, '')::text AS holder
  FROM input;
