-- CancelScheduled cancels all waiting tasks of processes that have failed or ended. It runs after
-- SaveResult. It ignores an item if this transaction has not written the row of its task, because
-- such an item is fenced or a late duplicate. It cancels at most lim tasks of each process. If
-- there may be more, it adds the process to queue_backlogs, and SettleQueues cancels the others.
-- name: CancelScheduled :many
WITH input AS MATERIALIZED (
  SELECT t.namespace, t.process_id, t.task_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token)
    JOIN tasks t
      ON t.namespace = ANY (ARRAY[item.namespace])
     AND t.process_id = item.process_id
     AND t.task_id = item.task_id
     AND t.fencing_token = item.fencing_token
     AND is_saved(item.fencing_token)),
-- The DELETE searches rows by key: see CancelProcesses.
deleted_schedule AS (
  DELETE FROM schedule s
   USING (
     SELECT input.namespace, input.process_id,
            (
              SELECT max(waiting.task_id)
                FROM (
                  SELECT w.task_id FROM schedule w
                   WHERE w.namespace = input.namespace
                     AND w.process_id = input.process_id
                   ORDER BY w.namespace, w.process_id, w.task_id
                   LIMIT @lim::int) waiting) AS last_task_id
       FROM input) first
   WHERE s.namespace = ANY (ARRAY[first.namespace])
     AND s.process_id = first.process_id
     AND s.task_id <= first.last_task_id
  RETURNING s.*),
backlog AS (
  INSERT INTO queue_backlogs (namespace, process_id, cancelled_by, after_task_id)
  SELECT deleted_schedule.namespace, deleted_schedule.process_id,
         (
           SELECT input.task_id FROM input
            WHERE input.namespace = deleted_schedule.namespace
              AND input.process_id = deleted_schedule.process_id),
         max(deleted_schedule.task_id)
    FROM deleted_schedule GROUP BY deleted_schedule.namespace, deleted_schedule.process_id
  HAVING count(*) = @lim::int
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         resuming = false, cancelled_by = excluded.cancelled_by,
         after_task_id = excluded.after_task_id, after_message_id = 0,
         created_time = statement_timestamp()),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, cancelled_by, scheduled_time, running_time, finished_time,
                     retry_interval, timer_name, idempotency_key, args, context, failure,
                     worker_id)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt,
         coalesce(own_priority, priority), fencing_token,
         (
           SELECT input.task_id FROM input
            WHERE input.namespace = deleted_schedule.namespace
              AND input.process_id = deleted_schedule.process_id),
         scheduled_time, running_time, statement_timestamp(), retry_interval, timer_name,
         idempotency_key, args, context, failure, worker_id
    FROM deleted_schedule)
SELECT namespace, process_id, task_id
  FROM deleted_schedule;
