-- GetTask returns a task in any state. A timer is BLOCKED if it waits for its time while a task of
-- its process runs, waits for a slot, or waits for the process.
-- name: GetTask :one
SELECT task.namespace, task.process_id, task.task_id, task.task_type, task.status, task.attempt,
       task.priority, task.scheduled_time, task.running_time,
       coalesce(task.finished_time, 'epoch')::timestamptz AS finished_time,
       task.retry_interval, task.timer_name, task.idempotency_key, task.args, task.context,
       task.response, task.failure, task.rejection
  FROM (
    SELECT namespace, process_id, task_id, task_type, status, attempt, priority, scheduled_time,
           running_time, finished_time, retry_interval, timer_name, idempotency_key, args, context,
           response, failure, rejection
      FROM tasks t
     WHERE t.namespace = @namespace
       AND t.process_id = @process_id
       AND t.task_id = @task_id
    UNION ALL
    SELECT namespace, process_id, task_id, task_type, 'RUNNING', attempt, priority, scheduled_time,
           running_time, NULL, retry_interval, timer_name, idempotency_key, args, context, NULL,
           NULL, NULL
      FROM running r
     WHERE r.namespace = @namespace
       AND r.process_id = @process_id
       AND r.task_id = @task_id
    UNION ALL
    SELECT s.namespace, s.process_id, s.task_id, s.task_type,
           CASE
             WHEN s.timer_name IS NOT NULL
                  AND s.waits_for = 'time'
                  AND (EXISTS (
                    SELECT 1 FROM running r
                     WHERE r.namespace = s.namespace
                       AND r.process_id = s.process_id)
                       OR EXISTS (
                         SELECT 1 FROM schedule c
                          WHERE c.namespace = s.namespace
                            AND c.process_id = s.process_id
                            AND c.waits_for IN ('process', 'place')))
               THEN 'BLOCKED'
             ELSE 'WAITING'
           END::task_status,
           s.attempt, coalesce(s.own_priority, s.priority), s.scheduled_time, s.running_time, NULL,
           s.retry_interval, s.timer_name, s.idempotency_key, s.args, s.context, NULL, s.failure,
           NULL
      FROM schedule s
     WHERE s.namespace = @namespace
       AND s.process_id = @process_id
       AND s.task_id = @task_id
    UNION ALL
    SELECT namespace, process_id, task_id, task_type, status, 0, 0, ended_time, NULL, ended_time,
           NULL, NULL, NULL, NULL, NULL, response, failure, rejection
      FROM answers a
     WHERE a.namespace = @namespace
       AND a.process_id = @process_id
       AND a.task_id = @task_id) task
 LIMIT 1;

-- TraceTasks lists the tasks of a process in task_id order: ended, running and waiting ones. It
-- stops after the row that exceeds max_bytes.
-- name: TraceTasks :many
SELECT summed.namespace, summed.process_id, summed.task_id, summed.task_type, summed.status,
       summed.attempt, summed.priority, summed.scheduled_time, summed.running_time,
       coalesce(summed.finished_time, 'epoch')::timestamptz AS finished_time,
       summed.retry_interval, summed.timer_name, summed.idempotency_key, summed.args,
       summed.context, summed.response, summed.failure, summed.rejection
  FROM (
    SELECT measured.*,
           sum(measured.size) OVER (ORDER BY measured.task_id ROWS UNBOUNDED PRECEDING) AS total
      FROM (
        SELECT task.*,
               coalesce(octet_length(task.args), 0) + coalesce(octet_length(task.context), 0)
                 + coalesce(octet_length(task.response), 0)
                 + coalesce(octet_length(task.failure::text), 0)
                 + coalesce(octet_length(task.rejection::text), 0) AS size
          FROM (
            (
              SELECT namespace, process_id, task_id, task_type, status, attempt, priority,
                     scheduled_time, running_time, finished_time, retry_interval, timer_name,
                     idempotency_key, args, context, response, failure, rejection
                FROM tasks t
               WHERE t.namespace = @namespace
                 AND t.process_id = @process_id
                 AND t.task_id > @after_task_id
               ORDER BY t.namespace, t.process_id, t.task_id LIMIT @lim::int)
            UNION ALL (
              SELECT namespace, process_id, task_id, task_type, 'RUNNING', attempt, priority,
                     scheduled_time, running_time, NULL, retry_interval, timer_name,
                     idempotency_key, args, context, NULL, NULL, NULL
                FROM running r
               WHERE r.namespace = @namespace
                 AND r.process_id = @process_id
                 AND r.task_id > @after_task_id)
            UNION ALL (
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
                     s.attempt, coalesce(s.own_priority, s.priority), s.scheduled_time,
                     s.running_time, NULL, s.retry_interval, s.timer_name, s.idempotency_key,
                     s.args, s.context, NULL, s.failure, NULL
                FROM schedule s
                LEFT JOIN running r
                  ON r.namespace = s.namespace
                 AND r.process_id = s.process_id
               WHERE s.namespace = @namespace
                 AND s.process_id = @process_id
                 AND s.task_id > @after_task_id
               ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int)) task
         ORDER BY task.task_id LIMIT @lim::int) measured) summed
 WHERE summed.total - summed.size <= @max_bytes::bigint
 ORDER BY summed.task_id;

-- TraceEvents returns the events of the tasks of a page of a trace. It returns all events of the
-- first task. It then continues until the total of the returned events exceeds max_bytes.
-- name: TraceEvents :many
SELECT summed.event_id, summed.task_id, summed."timestamp", summed.metadata, summed.payload
  FROM (
    SELECT measured.*,
           sum(measured.size)
             OVER (ORDER BY measured.task_id, measured.event_id ROWS UNBOUNDED PRECEDING) AS total
      FROM (
        SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
               octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size
          FROM events e
         WHERE e.namespace = @namespace
           AND e.process_id = @process_id
           AND e.task_id = ANY (@task_ids::bigint[])) measured) summed
 WHERE summed.task_id = @first_task_id::bigint
    OR summed.total - summed.size <= @max_bytes::bigint
 ORDER BY summed.task_id, summed.event_id;
