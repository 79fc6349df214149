-- RestoreTimers restores the timers that an error has cancelled, before the results of repairs are
-- saved. If the failed task was a timer, that timer gets the smallest task ID, because it has been
-- due longest. The timers are new tasks with attempt 1. keep_default is false if the result of the
-- repair sets its own default timer. If the repair has a context, the timers get this context.
-- name: RestoreTimers :exec
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                      scheduled_time, timer_name, context)
SELECT timer.namespace, timer.process_id, nextval('task_ids'), timer.task_type, 'time',
       timer.priority, timer.scheduled_time, timer.timer_name, timer.context
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]), unnest(@keep_defaults::bool[]))
       AS item(namespace, process_id, fencing_token, keep_default)
  JOIN running r
    ON r.namespace = ANY (ARRAY[item.namespace])
   AND r.process_id = item.process_id
   AND r.fencing_token = item.fencing_token
   AND r.task_type = 'REPAIR'
 CROSS JOIN LATERAL (
   SELECT p.namespace, p.process_id, p.corrupted_by
     FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
      AND p.status = 'ERROR'
    LIMIT 1) process
 CROSS JOIN LATERAL (
   SELECT k.namespace, k.process_id, k.task_id, k.task_type, k.priority, k.scheduled_time,
          k.timer_name, coalesce(r.context, k.context) AS context
     FROM tasks k
    WHERE k.namespace = process.namespace
      AND k.process_id = process.process_id
      AND k.task_id = process.corrupted_by
      AND k.task_type IN ('TIMEOUT', 'REMOVE')
   UNION ALL
   SELECT k.namespace, k.process_id, k.task_id, k.task_type, k.priority, k.scheduled_time,
          k.timer_name, coalesce(r.context, k.context)
     FROM tasks k
    WHERE k.namespace = process.namespace
      AND k.process_id = process.process_id
      AND k.cancelled_by = process.corrupted_by
      AND k.task_type IN ('TIMEOUT', 'REMOVE')) timer
 WHERE item.keep_default
    OR timer.timer_name <> '';
