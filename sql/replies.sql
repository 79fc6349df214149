-- ReplyTasks stores the replies of attempts to tasks whose response was deferred, for attempts that
-- still hold their process. It runs before SaveResult, so that a result can answer calls and end
-- its process. A reply does nothing if its task has ended, for example because an error has
-- cancelled the task. It also does nothing if the task does not exist and the history of the
-- process was restarted, because the task may have ended before the restart. A reply to any other
-- task aborts the transaction. ReplyTasks casts an error message to a number, because plain SQL has
-- no RAISE.
-- name: ReplyTasks :exec
WITH input AS MATERIALIZED (
  SELECT item.*, waiting.task_id IS NOT NULL AS is_waiting,
         waiting.running_time IS NOT NULL AS is_open,
         process.history_restarted_time IS NOT NULL AS is_restarted
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@fencing_tokens::bigint[]), unnest(@task_ids::bigint[]),
                    unnest(@responses::bytea[]), unnest(@rejections::text[]))
         AS item(namespace, process_id, fencing_token, task_id, response, rejection)
    JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
     AND r.fencing_token = item.fencing_token
   CROSS JOIN LATERAL (
     SELECT p.history_restarted_time
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT s.task_id, s.running_time
        FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.task_id = item.task_id
       LIMIT 1) waiting ON true),
deleted_schedule AS (
  DELETE FROM schedule s USING input
   WHERE input.is_open
     AND s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.task_id = input.task_id
  RETURNING s.*),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, running_time, finished_time, retry_interval,
                     idempotency_key, args, context, response, rejection, worker_id)
  SELECT deleted_schedule.namespace, deleted_schedule.process_id, deleted_schedule.task_id,
         deleted_schedule.task_type, 'FINISHED', deleted_schedule.attempt,
         deleted_schedule.priority, deleted_schedule.fencing_token,
         deleted_schedule.scheduled_time, deleted_schedule.running_time, statement_timestamp(),
         deleted_schedule.retry_interval, deleted_schedule.idempotency_key, deleted_schedule.args,
         deleted_schedule.context, input.response, NULLIF(input.rejection, '')::jsonb,
         deleted_schedule.worker_id
    FROM deleted_schedule
    JOIN input
      ON input.namespace = deleted_schedule.namespace
     AND input.process_id = deleted_schedule.process_id
     AND input.task_id = deleted_schedule.task_id)
SELECT CASE
         WHEN input.is_open THEN '0'
         WHEN input.is_waiting THEN input.task_id::text || ' is not a task that waits for a reply'
         WHEN input.is_restarted
              OR EXISTS (
                SELECT 1 FROM tasks t
                 WHERE t.namespace = ANY (ARRAY[input.namespace])
                   AND t.process_id = input.process_id
                   AND t.task_id = input.task_id)
              OR EXISTS (
                SELECT 1 FROM answers a
                 WHERE a.namespace = ANY (ARRAY[input.namespace])
                   AND a.process_id = input.process_id
                   AND a.task_id = input.task_id)
           THEN '0'
         ELSE input.task_id::text || ' is not a task that waits for a reply'
       END::int
  FROM input;

-- DeferTasks moves the tasks of attempts that have deferred their response from tasks to schedule,
-- where they wait for a reply. It runs after the statements that find the attempt by its row in
-- tasks. It ignores an item if this transaction has not written its task. If the process has ended
-- in this transaction, the task is cancelled. DeferTasks aborts the transaction if the process
-- already has max_open open tasks.
-- name: DeferTasks :exec
WITH input AS MATERIALIZED (
  SELECT t.*, process.status AS process_status, opened.n
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token)
    JOIN tasks t
      ON t.namespace = ANY (ARRAY[item.namespace])
     AND t.process_id = item.process_id
     AND t.task_id = item.task_id
     AND t.fencing_token = item.fencing_token
     AND t.status = 'FINISHED'
     AND is_saved(item.fencing_token)
    LEFT JOIN LATERAL (
      SELECT p.status FROM processes p
       WHERE p.namespace = item.namespace
         AND p.process_id = item.process_id
         AND p.removed_time IS NULL
         AND p.status IN ('RUNNING', 'SUSPENDED')
       LIMIT 1) process ON true
   CROSS JOIN LATERAL (
     SELECT count(*) AS n FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.running_time IS NOT NULL) opened),
deleted_tasks AS (
  DELETE FROM tasks t USING input
   WHERE input.process_status IS NOT NULL
     AND t.namespace = ANY (ARRAY[input.namespace])
     AND t.process_id = input.process_id
     AND t.task_id = input.task_id),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, attempt, priority,
                        scheduled_time, fencing_token, retry_interval, idempotency_key, args,
                        context, running_time, worker_id)
  SELECT namespace, process_id, task_id, task_type,
         CASE process_status WHEN 'SUSPENDED' THEN 'operator' ELSE 'reply' END::waits_for, attempt,
         priority, scheduled_time, fencing_token, retry_interval, idempotency_key, args, context,
         running_time, worker_id
    FROM input WHERE process_status IS NOT NULL),
cancelled_tasks AS (
  UPDATE tasks t
     SET status = 'CANCELLED'
    FROM input
   WHERE input.process_status IS NULL
     AND t.namespace = ANY (ARRAY[input.namespace])
     AND t.process_id = input.process_id
     AND t.task_id = input.task_id)
SELECT CASE
         WHEN input.n >= @max_open::int
           THEN 'at most ' || @max_open::int || ' calls may wait for a reply (got '
                  || (input.n + 1) || ')'
         ELSE '0'
       END::int
  FROM input;
