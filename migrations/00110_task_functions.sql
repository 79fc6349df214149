-- +goose Up
-- Functions and a view of tasks.

-- +goose StatementBegin
CREATE FUNCTION queue_priority(namespace text, process_id text) RETURNS integer
LANGUAGE sql STABLE AS $$
  SELECT min(first.priority)
    FROM (
      SELECT coalesce(s.own_priority, s.priority) AS priority
        FROM schedule s
       WHERE s.namespace = queue_priority.namespace
         AND s.process_id = queue_priority.process_id
         AND s.waits_for::text IN ('process', 'place')
       ORDER BY s.namespace, s.process_id, s.task_id LIMIT 2000) first
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION queue_priority IS
  'Returns the smallest priority of the first 2,000 waiting tasks of a process, without timers '
  'that are not due. NULL if no task waits.';

CREATE VIEW task_list AS
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
COMMENT ON VIEW task_list IS
  'All tasks: waiting, running and ended. Use namespace and process_id in WHERE, so that each '
  'part is read by its primary key.';
COMMENT ON COLUMN task_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN task_list.process_id IS 'ID of the process.';
COMMENT ON COLUMN task_list.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN task_list.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN task_list.status IS
  'Status of the task: WAITING or BLOCKED (in schedule), RUNNING (in running), FINISHED, ERROR or '
  'CANCELLED (in tasks).';
COMMENT ON COLUMN task_list.attempt IS
  'Number of the running attempt, or of past attempts. 0 if there are none.';
COMMENT ON COLUMN task_list.scheduled_time IS 'When the task is or was due, or was accepted.';
COMMENT ON COLUMN task_list.running_time IS
  'When the last attempt began. NULL while the task waits, and if it ended while it waited.';
COMMENT ON COLUMN task_list.finished_time IS 'When the task ended. NULL if it has not ended.';
COMMENT ON COLUMN task_list.timer_name IS
  'Name of the timer, empty for the default timer. NULL if the task is not a timer.';
COMMENT ON COLUMN task_list.waits_for IS
  'What the task waits for: see the type waits_for. NULL if it does not wait.';
COMMENT ON COLUMN task_list.idempotency_key IS
  'Idempotency key of the request. NULL if it has none.';
COMMENT ON COLUMN task_list.args IS
  'Args that the caller sent, opaque to the engine (bytes). NULL if there are none.';
COMMENT ON COLUMN task_list.response IS
  'Response of the processor to the caller (bytes). NULL if there is none.';
COMMENT ON COLUMN task_list.failure IS
  'Failure of the last attempt, as JSON (reason, message, details). NULL if there is none.';
COMMENT ON COLUMN task_list.rejection IS
  'Rejection by the processor, as JSON (reason, message, details). NULL if the task was not '
  'rejected.';
COMMENT ON COLUMN task_list.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if it was '
  'imported so. NULL if no task did.';

-- The function is volatile so that it sees the rows that the calling statement has already written:
-- the jobs of one key in a batch get one round after the other.
-- +goose StatementBegin
CREATE FUNCTION next_round(
  namespace text, waits_for waits_for, job_name text, line text, priority integer,
  fairness_key text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF fairness_key IS NULL THEN
    RETURN 0;
  END IF;
  IF waits_for = 'place' THEN
    RETURN coalesce((
      SELECT s.round + 1 FROM schedule s
       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
         AND s.waits_for = 'place'
         AND s.job_name = next_round.job_name
         AND s.priority = next_round.priority
         AND s.fairness_key = next_round.fairness_key
       ORDER BY s.round DESC LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'place'
                         AND s.job_name IS NOT NULL
                         AND s.job_name = next_round.job_name
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'place'
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    1);
  END IF;
  IF waits_for = 'constraint' AND line <> '' THEN
    RETURN coalesce((
      SELECT s.round + 1 FROM schedule s
       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
         AND s.waits_for = 'constraint'
         AND s.line = next_round.line
         AND s.priority = next_round.priority
         AND s.fairness_key = next_round.fairness_key
       ORDER BY s.round DESC LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'constraint'
                         AND s.line = next_round.line
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    1);
  END IF;
  RETURN 0;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION next_round IS
  'Returns the round of a job that begins to wait for a slot or a key: the one after the last '
  'waiting job of its fairness key, or the first one of the queue. 0 if the job has no fairness '
  'key, or does not wait in a queue.';

-- Statements that claim tasks compare its result with the status of the process. PostgreSQL inlines
-- the function, so that their plans are the same as with the expression itself.
-- +goose StatementBegin
CREATE FUNCTION required_status(type task_type) RETURNS process_status
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE type
           WHEN 'INIT' THEN 'INIT'::process_status
           WHEN 'REPAIR' THEN 'ERROR'
           ELSE 'RUNNING'
         END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION required_status IS
  'Returns the status that a process must have so that a task of this type can run.';
