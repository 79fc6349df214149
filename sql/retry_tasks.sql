-- RetryTasks moves the tasks of attempts that will be retried back to schedule. It changes a task
-- only if the fencing token is that of the attempt. SaveResult follows in the same transaction and
-- deletes the running rows.
--
-- If after_us is 0, the task keeps its position in the order of task_id. Otherwise it waits for
-- that time, and other tasks of its process run first. If the process is suspended, the task waits
-- for the operator. If counted is false, the attempt does not count for the retry policy. If the
-- first attempt of a job does not count, the start deadline of the job applies again.
-- name: RetryTasks :exec
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, attempt, priority,
                      scheduled_time, fencing_token, retry_interval, timer_name, history_range,
                      idempotency_key, failure, args, context, child, job_name, start_deadline,
                      fairness_key)
SELECT r.namespace, r.process_id, r.task_id, r.task_type,
       CASE
         WHEN process.status = 'SUSPENDED' THEN 'operator'
         WHEN item.after_us > 0 THEN 'time'
         ELSE 'process'
       END::waits_for,
       r.attempt - CASE WHEN item.counted THEN 0 ELSE 1 END,
       r.priority,
       CASE
         WHEN item.after_us > 0
           THEN statement_timestamp() + item.after_us * interval '1 microsecond'
         ELSE r.scheduled_time
       END,
       r.fencing_token,
       CASE WHEN item.after_us > 0 THEN item.after_us * interval '1 microsecond' END,
       r.timer_name, r.history_range, r.idempotency_key, NULLIF(item.failure, '')::jsonb, r.args,
       r.context, r.child, job.name,
       CASE
         WHEN r.attempt = 1 AND NOT item.counted
           THEN CASE
                  WHEN item.after_us > 0
                    THEN statement_timestamp() + item.after_us * interval '1 microsecond'
                  ELSE r.scheduled_time
                END + (job.options->>'startDeadline')::interval
       END,
       job.fairness_key
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@afters_us::bigint[]), unnest(@counteds::bool[]),
                  unnest(@failures::text[]))
       AS item(namespace, process_id, task_id, fencing_token, after_us, counted, failure)
  JOIN running r
    ON r.namespace = ANY (ARRAY[item.namespace])
   AND r.process_id = item.process_id
   AND r.task_id = item.task_id
   AND r.fencing_token = item.fencing_token
 CROSS JOIN LATERAL (
   SELECT p.status, p.kind
     FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1) process
  LEFT JOIN LATERAL (
    SELECT j.name, j.options, j.fairness_key
      FROM jobs j
     WHERE process.kind = 'job'
       AND j.namespace = item.namespace
       AND j.process_id = item.process_id
     LIMIT 1) job ON true;
