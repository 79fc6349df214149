-- DeliverCancels takes the cancel messages that are first in the queue of their target and requests
-- the end of the targets, like CancelProcesses. It runs after DeliverNotifies, which holds messages
-- to processes in SUSPENDED or ERROR. A job gets no CANCEL task. A waiting job, suspended or not,
-- becomes CANCELLED here, and its parent is notified. The worker of a running job receives the
-- cancel with its next heartbeat, and the job has its own grace period. The FAILED job of a step
-- also becomes CANCELLED. Only its run can request this, and the run no longer needs the job.
--
-- outcome is delivered (even if a cancel is in progress), not_found or ended. more is true if there
-- may be more messages, or messages of other kinds. overdue is true if the grace period is 0. Then
-- EndOverdueCancel ends the process at once, and no node takes its CANCEL task.
-- name: DeliverCancels :many
WITH taken_messages AS MATERIALIZED (
  SELECT item.namespace, item.process_id, item.mode, marked.message_id, marked.more
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@modes::int[]))
         AS item(namespace, process_id, mode)
   CROSS JOIN LATERAL (
     SELECT message.message_id,
            bool_and(message.kind = 'cancel')
              OVER (ORDER BY message.message_id ROWS UNBOUNDED PRECEDING) AS leading,
            count(*) OVER () = @lim::int OR NOT bool_and(message.kind = 'cancel') OVER () AS more
       FROM (
         SELECT s.message_id, s.kind
           FROM messages s
          WHERE s.namespace = item.namespace
            AND s.process_id = item.process_id
          ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) message) marked
   WHERE marked.leading
     AND NOT EXISTS (
       SELECT 1 FROM processes p
        WHERE p.namespace = ANY (ARRAY[item.namespace])
          AND p.process_id = item.process_id
          AND p.removed_time IS NULL
          AND (p.status IN ('SUSPENDED', 'ERROR') AND p.kind <> 'job'
               OR NOT is_locked(p.namespace, p.process_id)))),
deleted_messages AS (
  DELETE FROM messages m USING taken_messages
   WHERE m.namespace = ANY (ARRAY[taken_messages.namespace])
     AND m.process_id = taken_messages.process_id
     AND m.message_id = taken_messages.message_id
  RETURNING m.*),
decided AS MATERIALIZED (
  SELECT target.*,
         target.first
           AND target.open
           AND target.cancel_deadline IS NULL
           AND (NOT target.is_job OR target.busy) AS asks,
         target.first AND target.open AND target.is_job AND NOT target.busy AS ends,
         coalesce((
           SELECT (j.options->>'cancelGrace')::interval FROM jobs j
            WHERE target.is_job
              AND j.namespace = target.namespace
              AND j.process_id = target.process_id),
                  target.grace, (@grace_us::bigint) * interval '1 microsecond') AS any_grace
    FROM (
      SELECT deleted_messages.*, p.status, p.cancel_deadline,
             r.task_id IS NOT NULL OR waiting.grouped IS TRUE AS busy,
             coalesce(r.attempt, 0) AS attempt, coalesce(waiting.job_name, job.name) AS job_name,
             waiting.begun, waiting.runs,
             coalesce(waiting.state,
                      CASE WHEN job.name IS NULL THEN 'running' ELSE 'failed' END) AS state,
             coalesce(p.kind = 'job', false) AS is_job,
             coalesce(p.status IN ('INIT', 'RUNNING')
                         OR p.kind = 'job' AND p.status = 'SUSPENDED'
                         OR job.name IS NOT NULL,
                      false) AS open,
             row_number() OVER (
               PARTITION BY deleted_messages.namespace, deleted_messages.process_id
               ORDER BY deleted_messages.message_id) = 1 AS first,
             ((deleted_messages.namespace, deleted_messages.process_id) IN (
               SELECT taken_messages.namespace, taken_messages.process_id
                 FROM taken_messages WHERE taken_messages.more)) IS TRUE AS more,
             CASE
               WHEN ((deleted_messages.namespace, deleted_messages.process_id) IN (
                 SELECT taken_messages.namespace, taken_messages.process_id
                   FROM taken_messages WHERE taken_messages.mode = 2)) IS TRUE
                 THEN 2
               WHEN ((deleted_messages.namespace, deleted_messages.process_id) IN (
                 SELECT taken_messages.namespace, taken_messages.process_id
                   FROM taken_messages WHERE taken_messages.mode = 1)) IS TRUE
                 THEN 1
               ELSE 0
             END AS mode
        FROM deleted_messages
        LEFT JOIN processes p
          ON p.namespace = ANY (ARRAY[deleted_messages.namespace])
         AND p.process_id = deleted_messages.process_id
         AND p.removed_time IS NULL
        LEFT JOIN running r
          ON r.namespace = ANY (ARRAY[deleted_messages.namespace])
         AND r.process_id = deleted_messages.process_id
        LEFT JOIN LATERAL (
          SELECT s.job_name,
                 s.taker = '~' AND s.attempt > 0 AS begun,
                 s.taker = '~' AND s.attempt > 0 AND s.waits_for <> 'operator' AS grouped,
                 (
                   SELECT g.running_time FROM job_groups g
                    WHERE s.taker = '~'
                      AND g.namespace = s.namespace
                      AND g.process_id = s.process_id) IS NOT NULL AS runs,
                 CASE
                   WHEN s.waits_for <> 'time' THEN 'available'
                   WHEN s.attempt > 0 THEN 'retryable'
                   ELSE 'scheduled'
                 END AS state
            FROM schedule s
           WHERE p.kind = 'job'
             AND s.namespace = deleted_messages.namespace
             AND s.process_id = deleted_messages.process_id
             AND s.task_type = 'INIT'
           LIMIT 1) waiting ON true
        LEFT JOIN LATERAL (
          SELECT j.name FROM jobs j
           WHERE p.kind = 'job'
             AND p.status = 'ERROR'
             AND starts_with(deleted_messages.process_id, '~job/')
             AND j.namespace = deleted_messages.namespace
             AND j.process_id = deleted_messages.process_id
           LIMIT 1) job ON true) target),
updated_processes AS (
  UPDATE processes p
     SET cancel_requested_time = coalesce(p.cancel_requested_time, statement_timestamp()),
         cancel_reason = CASE
                           WHEN p.cancel_requested_time IS NULL THEN NULLIF(decided.reason, '')
                           ELSE p.cancel_reason
                         END,
         cancel_deadline = CASE
                             WHEN decided.asks THEN statement_timestamp() + decided.any_grace
                           END,
         status = CASE WHEN decided.ends THEN 'CANCELLED' ELSE p.status END,
         previous_status = CASE WHEN decided.ends THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE
                                 WHEN decided.ends THEN statement_timestamp()
                                 ELSE p.status_changed_time
                               END,
         attention = CASE WHEN decided.ends THEN 'CANCELLED' ELSE p.attention END,
         attention_time = CASE
                            WHEN decided.ends THEN statement_timestamp()
                            ELSE p.attention_time
                          END,
         detail = CASE WHEN NOT decided.ends THEN p.detail END,
         corrupted_by = CASE WHEN NOT decided.ends THEN p.corrupted_by END
    FROM decided
   WHERE p.namespace = ANY (ARRAY[decided.namespace])
     AND p.process_id = decided.process_id
     AND (decided.asks OR decided.ends)
  RETURNING p.namespace, coalesce(p.attention, 'RUNNING') AS new_status,
            (CASE decided.status
               WHEN 'INIT' THEN 'RUNNING'
               ELSE decided.status::text
             END)::process_status AS old_status),
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
postponed_tasks AS (
  UPDATE schedule s
     SET waits_for = 'process', priority = coalesce(s.own_priority, s.priority), own_priority = NULL
    FROM decided
   WHERE decided.asks
     AND decided.status = 'RUNNING'
     AND s.namespace = ANY (ARRAY[decided.namespace])
     AND s.process_id = decided.process_id
     AND s.waits_for::text = 'place'),
lowered AS (
  UPDATE schedule s
     SET priority = 0, own_priority = coalesce(s.own_priority, s.priority)
    FROM decided
   WHERE decided.asks
     AND NOT decided.is_job
     AND decided.status = 'INIT'
     AND s.namespace = ANY (ARRAY[decided.namespace])
     AND s.process_id = decided.process_id
     AND s.waits_for::text = 'place'
     AND s.priority > 0),
inserted_cancels AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        own_priority, scheduled_time, args, context)
  SELECT namespace, process_id, nextval('task_ids'), 'CANCEL',
         CASE
           WHEN status = 'RUNNING' AND NOT busy AND any_grace > interval '0' THEN 'place'
           ELSE 'process'
         END::waits_for,
         CASE
           WHEN status = 'RUNNING' AND NOT busy THEN least(queue_priority(namespace, process_id), 0)
           ELSE 0
         END,
         0, statement_timestamp(), convert_to(NULLIF(reason, ''), 'UTF8'), context
    FROM decided
   WHERE asks
     AND NOT is_job),
-- A group first cancels its members.
woken_groups AS (
  UPDATE schedule s
     SET waits_for = 'place'
    FROM decided
   WHERE decided.asks
     AND decided.is_job
     AND s.namespace = ANY (ARRAY[decided.namespace])
     AND s.process_id = decided.process_id
     AND s.taker = '~'),
cancelled_members AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, reason)
  SELECT l.namespace, l.process_id, 'cancel', l.namespace, l.job_id, 0, statement_timestamp(),
         decided.reason
    FROM decided
    JOIN job_places l
      ON l.namespace = ANY (ARRAY[decided.namespace])
     AND l.job_id = decided.process_id
   WHERE decided.ends
     AND l.state IS NULL),
deleted_schedule AS (
  DELETE FROM schedule s USING decided
   WHERE decided.ends
     AND s.namespace = ANY (ARRAY[decided.namespace])
     AND s.process_id = decided.process_id
  RETURNING s.*),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, change.state, sum(change.n)
    FROM decided m
   CROSS JOIN LATERAL (
     VALUES (m.state, -1), ('cancelled', 1)) AS change(state, n)
   WHERE m.ends
     AND NOT starts_with(m.process_id, '~job/~/')
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
  SELECT decided.namespace, decided.process_id,
         CASE WHEN decided.ends THEN 'cancelled' ELSE 'cancel_requested' END,
         CASE
           WHEN decided.begun AND decided.cancel_deadline IS NOT NULL THEN 'cancel_requested'
           WHEN decided.runs THEN 'running'
           ELSE decided.state
         END,
         CASE WHEN decided.ends THEN 'cancelled' ELSE 'cancel_requested' END,
         decided.attempt, NULLIF(decided.reason, '')
    FROM decided
   WHERE decided.ends AND decided.mode > 0
      OR decided.asks AND decided.is_job AND decided.mode = 2),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, finished_time, retry_interval, timer_name,
                     idempotency_key, args, context, failure)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt,
         coalesce(own_priority, priority), fencing_token, scheduled_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context, failure
    FROM deleted_schedule),
deleted_constraint_holds AS (
  DELETE FROM constraint_holds h USING decided
   WHERE decided.ends
     AND h.namespace = ANY (ARRAY[decided.namespace])
     AND h.process_id = decided.process_id),
deleted_parents AS (
  DELETE FROM parents r USING decided
   WHERE decided.ends
     AND r.namespace = ANY (ARRAY[decided.namespace])
     AND r.process_id = decided.process_id
  RETURNING r.*),
inserted_messages AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, args, child)
  SELECT parent_namespace, parent_process_id, 'child_end', namespace, process_id, 0,
         statement_timestamp(), args,
         jsonb_build_object('namespace', namespace, 'processId', process_id,
                            'status', 'PROCESS_STATUS_CANCELLED')
    FROM deleted_parents),
inserted_dead_letters AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace,
                            sender_process_id, sender_task_id, created_time, dropped_time, reason)
  SELECT message_id, kind,
         CASE WHEN status IS NULL THEN 'not_found' ELSE 'ended' END,
         namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time,
         statement_timestamp(), reason
    FROM decided WHERE NOT open)
SELECT decided.namespace, decided.process_id, decided.kind::text AS kind,
       (CASE
          WHEN decided.open THEN 'delivered'
          WHEN decided.status IS NULL THEN 'not_found'
          ELSE 'ended'
        END)::text AS outcome,
       decided.more::bool AS more,
       (decided.asks AND decided.any_grace <= interval '0')::bool AS overdue,
       coalesce(deleted_parents.parent_namespace, '')::text AS parent_namespace,
       coalesce(deleted_parents.parent_process_id, '')::text AS parent_process_id
  FROM decided
  LEFT JOIN deleted_parents
    ON decided.ends
   AND deleted_parents.namespace = decided.namespace
   AND deleted_parents.process_id = decided.process_id;
