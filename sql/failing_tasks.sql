-- ListFailingTasks returns tasks of runs, crons and bulk operations whose oldest recorded failure
-- is more than min_age_us old, up to lim of them. It omits paused namespaces, and tasks that wait
-- for an operator because their process is suspended. (The condition on attempt and process_id is
-- that of the index schedule_internal_retries.)
-- name: ListFailingTasks :many
SELECT task.namespace::text AS namespace, task.process_id::text AS process_id,
       task.task_id::bigint AS task_id, task.task_type::text AS task_type, newest.attempt,
       newest.reason, newest.message,
       extract(epoch FROM statement_timestamp() - oldest.failed_time)::float8 AS failing_seconds
  FROM (
    SELECT s.namespace, s.process_id, s.task_id, s.task_type
      FROM schedule s
     WHERE s.attempt > 0
       AND starts_with(s.process_id, '~')
       AND NOT starts_with(s.process_id, '~job/')
       AND s.waits_for <> 'operator'
    UNION ALL
    SELECT r.namespace, r.process_id, r.task_id, r.task_type
      FROM running r
     WHERE r.attempt > 1
       AND starts_with(r.process_id, '~')
       AND NOT starts_with(r.process_id, '~job/')) task
  JOIN namespaces n
    ON n.namespace = task.namespace
   AND NOT n.paused
 CROSS JOIN LATERAL (
   SELECT f.failed_time FROM failed_attempts f
    WHERE f.namespace = task.namespace
      AND f.process_id = task.process_id
      AND f.task_id = task.task_id
    ORDER BY f.attempt LIMIT 1) oldest
 CROSS JOIN LATERAL (
   SELECT f.attempt, f.reason, f.message
     FROM failed_attempts f
    WHERE f.namespace = task.namespace
      AND f.process_id = task.process_id
      AND f.task_id = task.task_id
    ORDER BY f.attempt DESC LIMIT 1) newest
 WHERE oldest.failed_time < statement_timestamp() - (@min_age_us::bigint) * interval '1 microsecond'
 LIMIT @lim::int;
