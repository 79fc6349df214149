-- SettleQueues applies a change of status to large queues, in batches of at most lim waiting tasks
-- and lim held messages per process. Tasks of a SUSPENDED process then wait for the operator. Tasks
-- of a process that is in ERROR or has ended are cancelled. Messages are released unless the
-- process is SUSPENDED or in ERROR. It runs after LockProcesses.
-- name: SettleQueues :many
WITH backlogs AS MATERIALIZED (
  SELECT b.namespace, b.process_id, b.after_task_id, b.after_message_id, b.cancelled_by, p.status,
         coalesce(p.status IN ('SUSPENDED', 'ERROR'), false) AS holds
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
         AS item(namespace, process_id)
    JOIN queue_backlogs b
      ON b.namespace = ANY (ARRAY[item.namespace])
     AND b.process_id = item.process_id
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
   WHERE NOT b.resuming
      OR p.status IS DISTINCT FROM 'SUSPENDED'),
waiting_tasks AS MATERIALIZED (
  SELECT backlogs.namespace, backlogs.process_id, backlogs.status, waiting.task_id
    FROM backlogs
   CROSS JOIN LATERAL (
     SELECT s.task_id FROM schedule s
      WHERE s.namespace = backlogs.namespace
        AND s.process_id = backlogs.process_id
        AND s.task_id > backlogs.after_task_id
        AND backlogs.status IN ('SUSPENDED', 'ERROR', 'COMPLETED', 'CANCELLED')
      ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) waiting),
held_messages AS MATERIALIZED (
  SELECT backlogs.namespace, backlogs.process_id, message.message_id
    FROM backlogs
   CROSS JOIN LATERAL (
     SELECT o.message_id FROM messages o
      WHERE NOT backlogs.holds
        AND o.namespace = backlogs.namespace
        AND o.process_id = backlogs.process_id
        AND o.message_id > backlogs.after_message_id
        AND o.held::int = 1
      ORDER BY o.namespace, o.process_id, o.message_id LIMIT @lim::int) message),
held_tasks AS (
  UPDATE schedule s
     SET waits_for = 'operator'
    FROM waiting_tasks
   WHERE waiting_tasks.status = 'SUSPENDED'
     AND s.namespace = ANY (ARRAY[waiting_tasks.namespace])
     AND s.process_id = waiting_tasks.process_id
     AND s.task_id = waiting_tasks.task_id),
deleted_schedule AS (
  DELETE FROM schedule s USING waiting_tasks
   WHERE waiting_tasks.status <> 'SUSPENDED'
     AND s.namespace = ANY (ARRAY[waiting_tasks.namespace])
     AND s.process_id = waiting_tasks.process_id
     AND s.task_id = waiting_tasks.task_id
  RETURNING s.*),
cancelled_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, cancelled_by, scheduled_time, running_time, finished_time,
                     retry_interval, timer_name, idempotency_key, args, context, failure,
                     worker_id)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt,
         coalesce(own_priority, priority), fencing_token,
         (
           SELECT backlogs.cancelled_by FROM backlogs
            WHERE backlogs.namespace = deleted_schedule.namespace
              AND backlogs.process_id = deleted_schedule.process_id),
         scheduled_time, running_time, statement_timestamp(), retry_interval, timer_name,
         idempotency_key, args, context, failure, worker_id
    FROM deleted_schedule),
released_messages AS (
  UPDATE messages o
     SET held = false
    FROM held_messages
   WHERE o.namespace = ANY (ARRAY[held_messages.namespace])
     AND o.process_id = held_messages.process_id
     AND o.message_id = held_messages.message_id),
moved AS MATERIALIZED (
  SELECT backlogs.namespace, backlogs.process_id, task_counts.tasks, task_counts.last_task_id,
         message_counts.messages, message_counts.last_message_id
    FROM backlogs
   CROSS JOIN LATERAL (
     SELECT count(*) AS tasks, max(waiting_tasks.task_id) AS last_task_id
       FROM waiting_tasks
      WHERE waiting_tasks.namespace = backlogs.namespace
        AND waiting_tasks.process_id = backlogs.process_id) task_counts
   CROSS JOIN LATERAL (
     SELECT count(*) AS messages, max(held_messages.message_id) AS last_message_id
       FROM held_messages
      WHERE held_messages.namespace = backlogs.namespace
        AND held_messages.process_id = backlogs.process_id) message_counts),
settled AS (
  DELETE FROM queue_backlogs b USING moved
   WHERE b.namespace = ANY (ARRAY[moved.namespace])
     AND b.process_id = moved.process_id
     AND moved.tasks < @lim::int
     AND moved.messages < @lim::int),
unsettled AS (
  UPDATE queue_backlogs b
     SET after_task_id = greatest(b.after_task_id, moved.last_task_id),
         after_message_id = greatest(b.after_message_id, moved.last_message_id)
    FROM moved
   WHERE b.namespace = ANY (ARRAY[moved.namespace])
     AND b.process_id = moved.process_id
     AND (moved.tasks = @lim::int OR moved.messages = @lim::int))
SELECT moved.namespace, moved.process_id, moved.tasks::bigint AS tasks,
       moved.messages::bigint AS messages
  FROM moved;

-- ListBacklogs lists processes for SettleQueues, oldest first.
-- name: ListBacklogs :many
SELECT b.namespace, b.process_id
  FROM queue_backlogs b
 WHERE NOT b.resuming
    OR NOT EXISTS (
      SELECT 1 FROM processes p
       WHERE p.namespace = b.namespace
         AND p.process_id = b.process_id
         AND p.status = 'SUSPENDED'
         AND p.removed_time IS NULL)
 ORDER BY b.created_time LIMIT @lim::int;

-- ResumeTasks prepares a suspended process for ResumeProcesses: at most lim tasks that wait for the
-- operator then wait for their time or their process again. No task runs until ResumeProcesses
-- changes the status. ResumeTasks runs after LockProcesses, and continues after the tasks that
-- earlier calls have prepared, even those of other clients. moved is -1 if the process is not
-- SUSPENDED. If all tasks are prepared, moved is less than lim, and after_task_id is the largest
-- bigint.
-- name: ResumeTasks :one
WITH suspended AS MATERIALIZED (
  SELECT p.namespace, p.process_id,
         CASE WHEN b.resuming THEN b.prepared_task_id ELSE 0 END AS after_task_id
    FROM processes p
    LEFT JOIN queue_backlogs b
      ON b.namespace = p.namespace
     AND b.process_id = p.process_id
   WHERE p.namespace = @namespace::text
     AND p.process_id = @process_id::text
     AND p.removed_time IS NULL
     AND p.status = 'SUSPENDED'),
waiting_tasks AS MATERIALIZED (
  SELECT suspended.namespace, suspended.process_id, waiting.task_id
    FROM suspended
   CROSS JOIN LATERAL (
     SELECT s.task_id FROM schedule s
      WHERE s.namespace = suspended.namespace
        AND s.process_id = suspended.process_id
        AND s.task_id > suspended.after_task_id
        AND s.waits_for IN ('operator', 'place')
      ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) waiting),
prepared_tasks AS (
  UPDATE schedule s
     SET waits_for = CASE
                       WHEN s.running_time IS NOT NULL THEN 'reply'
                       WHEN s.timer_name IS NOT NULL OR s.scheduled_time > statement_timestamp()
                         THEN 'time'
                       ELSE 'process'
                     END::waits_for
    FROM waiting_tasks
   WHERE s.namespace = ANY (ARRAY[waiting_tasks.namespace])
     AND s.process_id = waiting_tasks.process_id
     AND s.task_id = waiting_tasks.task_id),
counts AS MATERIALIZED (
  SELECT count(*) AS moved, max(waiting_tasks.task_id) AS last_task_id FROM waiting_tasks),
preparing AS (
  INSERT INTO queue_backlogs
      AS b (namespace, process_id, resuming, after_task_id, prepared_task_id, running_task_id)
  SELECT suspended.namespace, suspended.process_id, true,
         CASE WHEN counts.moved = @lim::int THEN counts.last_task_id ELSE 9223372036854775807 END,
         greatest(suspended.after_task_id, counts.last_task_id),
         (
           SELECT r.task_id FROM running r
            WHERE r.namespace = suspended.namespace
              AND r.process_id = suspended.process_id)
    FROM suspended, counts
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         resuming = true, after_task_id = excluded.after_task_id,
         prepared_task_id = excluded.prepared_task_id,
         running_task_id = CASE
                             WHEN b.resuming AND b.prepared_task_id > 0 THEN b.running_task_id
                             ELSE excluded.running_task_id
                           END)
SELECT (CASE WHEN EXISTS (SELECT 1 FROM suspended) THEN counts.moved ELSE -1 END)::bigint AS moved
  FROM counts;
