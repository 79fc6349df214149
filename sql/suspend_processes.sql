-- SuspendProcesses suspends processes in INIT and RUNNING. A running task finishes, and its result
-- is stored. Waiting tasks, including timers, wait for the operator. Otherwise every scan would
-- read and skip the due timers. SuspendProcesses runs after LockProcesses and changes at most lim
-- rows of each process. If there may be more, the process is added to queue_backlogs, and
-- SettleQueues changes the others. Until then they do not run, because every claim checks the
-- status. outcome is changed, same (already suspended), not_found or status.
-- name: SuspendProcesses :many
WITH input AS MATERIALIZED (
  SELECT item.*, p.status, waiting.job_name, waiting.state
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@reasons::text[]), unnest(@actors::text[]), unnest(@modes::int[]))
         AS item(ord, namespace, process_id, reason, actor, mode)
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN LATERAL (
      SELECT s.job_name,
             CASE
               WHEN s.waits_for <> 'time' THEN 'available'
               WHEN s.attempt > 0 THEN 'retryable'
               ELSE 'scheduled'
             END AS state
        FROM schedule s
       WHERE p.kind = 'job'
         AND s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.task_type = 'INIT'
       LIMIT 1) waiting ON true),
updated_processes AS (
  UPDATE processes p
     SET status = 'SUSPENDED', previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = 'SUSPENDED',
         attention_time = statement_timestamp(), detail = NULLIF(input.reason, '')
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
     AND input.status IN ('INIT', 'RUNNING')
  RETURNING p.namespace, 'RUNNING'::process_status AS old_status, p.status AS new_status,
            p.process_id, p.kind, input.job_name, input.state, input.reason, input.actor,
            input.mode),
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
    FROM updated_processes m
   CROSS JOIN LATERAL (VALUES (m.state, -1), ('available', 1)) AS change(state, n)
   WHERE m.state <> 'available'
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor, message)
  SELECT updated_processes.namespace, updated_processes.process_id, 'suspended',
         CASE WHEN updated_processes.state <> 'available' THEN updated_processes.state END,
         CASE WHEN updated_processes.state <> 'available' THEN 'available' END,
         NULLIF(updated_processes.actor, ''), NULLIF(updated_processes.reason, '')
    FROM updated_processes
   WHERE updated_processes.kind = 'job'
     AND updated_processes.mode = 2),
-- The update searches by key: see CancelProcesses.
held_tasks AS (
  UPDATE schedule s
     SET waits_for = 'operator'
    FROM (
      SELECT input.namespace, input.process_id,
             (
               SELECT max(waiting.task_id)
                 FROM (
                   SELECT w.task_id FROM schedule w
                    WHERE w.namespace = input.namespace
                      AND w.process_id = input.process_id
                    ORDER BY w.namespace, w.process_id, w.task_id
                    LIMIT @lim::int) waiting) AS last_task_id
        FROM input WHERE input.status IN ('INIT', 'RUNNING')) held
   WHERE s.namespace = ANY (ARRAY[held.namespace])
     AND s.process_id = held.process_id
     AND s.task_id <= held.last_task_id
  RETURNING s.namespace, s.process_id, s.task_id),
inserted_queue_backlogs AS (
  INSERT INTO queue_backlogs (namespace, process_id, after_task_id)
  SELECT held_tasks.namespace, held_tasks.process_id, max(held_tasks.task_id)
    FROM held_tasks GROUP BY held_tasks.namespace, held_tasks.process_id HAVING count(*) = @lim::int
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         resuming = false, cancelled_by = excluded.cancelled_by,
         after_task_id = excluded.after_task_id, after_message_id = 0,
         created_time = statement_timestamp())
SELECT input.ord::int AS ord, coalesce(input.status, 'INIT')::process_status AS status,
       (CASE
          WHEN input.status IS NULL THEN 'not_found'
          WHEN input.status IN ('INIT', 'RUNNING') THEN 'changed'
          WHEN input.status = 'SUSPENDED' THEN 'same'
          ELSE 'status'
        END)::text AS outcome
  FROM input;

-- ResumeProcesses returns suspended processes to their previous status. Timers, retries and delayed
-- starts wait for their time again. The oldest of the other tasks waits for a slot, unless an
-- attempt runs. The others wait behind it. ResumeProcesses runs after LockProcesses. A process with
-- at least lim rows to change stays SUSPENDED: ResumeTasks changes them first. After that,
-- ResumeProcesses reads only the tasks that were added later, and the task that was running in the
-- meantime, because its retry has the same task_id. outcome is changed, same (the process is
-- RUNNING), unsettled, not_found or status.
-- name: ResumeProcesses :many
WITH input AS MATERIALIZED (
  SELECT item.*, p.status, p.previous_status,
         coalesce(p.status = 'SUSPENDED' AND queue.settled, false) AS resumes,
         queue.held_task_ids, next_task.task_id AS next_task_id, job_task.job_name, job_task.state
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@actors::text[]), unnest(@modes::int[]))
         AS item(ord, namespace, process_id, actor, mode)
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
    LEFT JOIN queue_backlogs b
      ON b.namespace = ANY (ARRAY[item.namespace])
     AND b.process_id = item.process_id
    LEFT JOIN LATERAL (
      SELECT array_agg(held.task_id) AS held_task_ids,
             count(*) < @lim::int
               AND (b.process_id IS NULL
                    OR b.resuming AND b.after_task_id = 9223372036854775807) AS settled
        FROM (
          (
            SELECT s.task_id FROM schedule s
             WHERE s.namespace = item.namespace
               AND s.process_id = item.process_id
               AND s.task_id > coalesce(b.prepared_task_id, 0)
               AND s.waits_for = 'operator'
             ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int)
          UNION ALL
          SELECT s.task_id FROM schedule s
           WHERE s.namespace = item.namespace
             AND s.process_id = item.process_id
             AND s.task_id = b.running_task_id
             AND s.task_id <= b.prepared_task_id
             AND s.waits_for = 'operator') held
       WHERE p.status = 'SUSPENDED') queue ON true
    LEFT JOIN LATERAL (
      SELECT s.task_id FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.waits_for IN ('operator', 'process')
         AND p.status = 'SUSPENDED'
         AND r.task_id IS NULL
         AND s.timer_name IS NULL
         AND s.running_time IS NULL
         AND s.scheduled_time <= statement_timestamp()
         AND p.previous_status = required_status(s.task_type)
         AND (p.cancel_deadline IS NULL OR s.task_type IN ('INIT', 'CANCEL'))
       ORDER BY s.namespace, s.process_id, s.task_id LIMIT 1) next_task ON true
    LEFT JOIN LATERAL (
      SELECT s.job_name,
             CASE
               WHEN s.scheduled_time <= statement_timestamp() THEN 'available'
               WHEN s.attempt > 0 THEN 'retryable'
               ELSE 'scheduled'
             END AS state
        FROM schedule s
       WHERE p.kind = 'job'
         AND s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.task_type = 'INIT'
       LIMIT 1) job_task ON true),
updated_processes AS (
  UPDATE processes p
     SET status = input.previous_status, previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = NULL, attention_time = NULL,
         detail = NULL
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
     AND input.resumes
  RETURNING p.namespace, 'SUSPENDED'::process_status AS old_status,
            'RUNNING'::process_status AS new_status, p.process_id, p.kind, input.job_name,
            input.state, input.actor, input.mode),
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
    FROM updated_processes m
   CROSS JOIN LATERAL (VALUES ('available', -1), (m.state, 1)) AS change(state, n)
   WHERE m.state <> 'available'
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor)
  SELECT updated_processes.namespace, updated_processes.process_id, 'resumed',
         CASE WHEN updated_processes.state <> 'available' THEN 'available' END,
         CASE WHEN updated_processes.state <> 'available' THEN updated_processes.state END,
         NULLIF(updated_processes.actor, '')
    FROM updated_processes
   WHERE updated_processes.kind = 'job'
     AND updated_processes.mode = 2),
deleted_queue_backlogs AS (
  DELETE FROM queue_backlogs b USING input
   WHERE input.resumes
     AND b.namespace = ANY (ARRAY[input.namespace])
     AND b.process_id = input.process_id),
woken_tasks AS (
  UPDATE schedule s
     SET waits_for = CASE
                       WHEN s.running_time IS NOT NULL THEN 'reply'
                       WHEN s.timer_name IS NOT NULL OR s.scheduled_time > statement_timestamp()
                         THEN 'time'
                       WHEN s.line IS NOT NULL THEN 'constraint'
                       WHEN s.task_id = held.next_task_id THEN 'place'
                       ELSE 'process'
                     END::waits_for,
         priority = CASE
                      WHEN s.task_id = held.next_task_id AND s.job_name IS NULL
                        THEN (
                          SELECT min(first.priority)
                            FROM (
                              SELECT coalesce(q.own_priority, q.priority) AS priority
                                FROM schedule q
                               WHERE q.namespace = held.namespace
                                 AND q.process_id = held.process_id
                                 AND q.timer_name IS NULL
                                 AND q.running_time IS NULL
                                 AND q.scheduled_time <= statement_timestamp()
                               ORDER BY q.namespace, q.process_id, q.task_id LIMIT 2000) first)
                      ELSE coalesce(s.own_priority, s.priority)
                    END,
         own_priority = CASE
                          WHEN s.task_id = held.next_task_id AND s.job_name IS NULL
                            THEN coalesce(s.own_priority, s.priority)
                        END,
         round = CASE
                   WHEN s.fairness_key IS NULL OR s.scheduled_time > statement_timestamp() THEN 0
                   ELSE next_round(s.namespace,
                                   CASE
                                     WHEN s.line IS NOT NULL THEN 'constraint'
                                     ELSE 'place'
                                   END::waits_for,
                                   s.job_name, s.line, s.priority, s.fairness_key)
                 END
    FROM (
      SELECT input.*,
             unnest(input.held_task_ids || input.next_task_id) AS held_task_id
        FROM input WHERE input.resumes) held
   WHERE s.namespace = ANY (ARRAY[held.namespace])
     AND s.process_id = held.process_id
     AND s.task_id = held.held_task_id)
SELECT input.ord::int AS ord,
       coalesce(CASE WHEN input.resumes THEN input.previous_status ELSE input.status END,
                'INIT')::process_status AS status,
       (CASE
          WHEN input.status IS NULL THEN 'not_found'
          WHEN input.resumes THEN 'changed'
          WHEN input.status = 'SUSPENDED' THEN 'unsettled'
          WHEN input.status = 'RUNNING' THEN 'same'
          ELSE 'status'
        END)::text AS outcome
  FROM input;
