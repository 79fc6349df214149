-- +goose Up
-- Until a task whose response was deferred ends, its row in schedule keeps the ID of the worker
-- that deferred the response.
ALTER TABLE schedule ADD COLUMN worker_id text;
COMMENT ON COLUMN schedule.worker_id IS
  'ID of the worker that deferred the response of the task. NULL if it was a processor of the '
  'engine, and for other tasks.';
COMMENT ON COLUMN tasks.worker_id IS
  'ID of the worker whose result ended the task or deferred its response. NULL if it was a '
  'processor of the engine, if there was no result, and for most tasks whose process continues.';
COMMENT ON COLUMN tasks.running_time IS
  'When the last attempt began. NULL if the task ended while it waited for an attempt.';
CREATE OR REPLACE VIEW task_list AS
SELECT namespace, process_id, task_id, task_type, status, attempt, scheduled_time, running_time,
       finished_time, timer_name, NULL::waits_for AS waits_for, idempotency_key, args, response,
       failure, rejection, cancelled_by
  FROM tasks
UNION ALL
SELECT namespace, process_id, task_id, task_type, 'RUNNING', attempt, scheduled_time, running_time,
       NULL, timer_name, NULL, idempotency_key, args, NULL, NULL, NULL, NULL
  FROM running
UNION ALL
SELECT s.namespace, s.process_id, s.task_id, s.task_type,
       CASE
         WHEN s.timer_name IS NOT NULL
              AND s.waits_for = 'time'
              AND (r.task_id IS NOT NULL
                   OR EXISTS (
                     SELECT 1 FROM schedule c
                      WHERE c.namespace = s.namespace
                        AND c.process_id = s.process_id
                        AND c.waits_for IN ('process', 'place')))
           THEN 'BLOCKED'
         ELSE 'WAITING'
       END::task_status,
       s.attempt, s.scheduled_time, s.running_time, NULL, s.timer_name, s.waits_for,
       s.idempotency_key, s.args, NULL, s.failure, NULL, NULL
  FROM schedule s
  LEFT JOIN running r
    ON r.namespace = s.namespace
   AND r.process_id = s.process_id;
COMMENT ON COLUMN task_list.running_time IS
  'When the last attempt began. NULL while the task waits for an attempt, and if it ended while it '
  'waited for one.';

-- +goose Down
CREATE OR REPLACE VIEW task_list AS
SELECT namespace, process_id, task_id, task_type, status, attempt, scheduled_time, running_time,
       finished_time, timer_name, NULL::waits_for AS waits_for, idempotency_key, args, response,
       failure, rejection, cancelled_by
  FROM tasks
UNION ALL
SELECT namespace, process_id, task_id, task_type, 'RUNNING', attempt, scheduled_time, running_time,
       NULL, timer_name, NULL, idempotency_key, args, NULL, NULL, NULL, NULL
  FROM running
UNION ALL
SELECT s.namespace, s.process_id, s.task_id, s.task_type,
       CASE
         WHEN s.timer_name IS NOT NULL
              AND s.waits_for = 'time'
              AND (r.task_id IS NOT NULL
                   OR EXISTS (
                     SELECT 1 FROM schedule c
                      WHERE c.namespace = s.namespace
                        AND c.process_id = s.process_id
                        AND c.waits_for IN ('process', 'place')))
           THEN 'BLOCKED'
         ELSE 'WAITING'
       END::task_status,
       s.attempt, s.scheduled_time, NULL, NULL, s.timer_name, s.waits_for, s.idempotency_key,
       s.args, NULL, s.failure, NULL, NULL
  FROM schedule s
  LEFT JOIN running r
    ON r.namespace = s.namespace
   AND r.process_id = s.process_id;
COMMENT ON COLUMN task_list.running_time IS
  'When the last attempt began. NULL while the task waits, and if it ended while it waited.';
COMMENT ON COLUMN tasks.running_time IS
  'When the last attempt began. NULL if the task ended while it waited.';
COMMENT ON COLUMN tasks.worker_id IS
  'ID of the worker whose result ended the task. NULL if it was a processor of the engine, if '
  'there was no result, and for most tasks whose process continues.';
ALTER TABLE schedule DROP COLUMN worker_id;
