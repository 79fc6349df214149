-- WriteFailedAttempts records attempts that failed and will be retried, and keeps the newest 10 of
-- each task. It runs before RetryTasks and SaveResult, which delete the running rows.
-- name: WriteFailedAttempts :exec
WITH input AS (
  SELECT r.namespace, r.process_id, r.task_id, r.attempt, r.node_id, r.running_time,
         r.scheduled_time, item.failure::jsonb AS failure
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@failures::text[]))
         AS item(namespace, process_id, task_id, fencing_token, failure)
    JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
     AND r.task_id = item.task_id
     AND r.fencing_token = item.fencing_token),
deleted_attempts AS (
  DELETE FROM failed_attempts f USING input
   WHERE f.namespace = ANY (ARRAY[input.namespace])
     AND f.process_id = input.process_id
     AND f.task_id = input.task_id
     AND f.attempt <= input.attempt - 10)
INSERT INTO failed_attempts (namespace, process_id, task_id, attempt, reason, message, node_id,
                             running_time, failed_time, first_scheduled_time)
SELECT input.namespace, input.process_id, input.task_id, input.attempt,
       left(coalesce(input.failure->>'reason', ''), 256),
       left(coalesce(input.failure->>'message', ''), 1000), input.node_id, input.running_time,
       statement_timestamp(),
       coalesce((
         SELECT f.first_scheduled_time FROM failed_attempts f
          WHERE f.namespace = input.namespace
            AND f.process_id = input.process_id
            AND f.task_id = input.task_id
          ORDER BY f.attempt LIMIT 1),
                input.scheduled_time)
  FROM input
ON CONFLICT (namespace, process_id, task_id, attempt) DO UPDATE SET
       reason = excluded.reason, message = excluded.message, node_id = excluded.node_id,
       running_time = excluded.running_time, failed_time = excluded.failed_time;

-- ListFailedAttempts returns the failed attempts of tasks of a process, oldest first.
-- name: ListFailedAttempts :many
SELECT f.task_id, f.attempt, f.reason, f.message, f.node_id, f.running_time, f.failed_time,
       f.first_scheduled_time
  FROM failed_attempts f
 WHERE f.namespace = @namespace
   AND f.process_id = @process_id
   AND f.task_id = ANY (@task_ids::bigint[])
 ORDER BY f.task_id, f.attempt;

-- DeleteOrphanedAttempts checks the next lim attempts in key order and deletes those whose task
-- does not exist. (Engines of versions that do not know the table remove tasks without their failed
-- attempts.) It returns the last key that it checked, and the number of checked attempts, which is
-- less than lim at the end.
-- name: DeleteOrphanedAttempts :one
WITH batch AS MATERIALIZED (
  SELECT f.namespace, f.process_id, f.task_id, f.attempt
    FROM failed_attempts f
   WHERE (f.namespace, f.process_id, f.task_id, f.attempt) > (@after_namespace::text,
                                                              @after_process_id::text,
                                                              @after_task_id::bigint,
                                                              @after_attempt::int)
   ORDER BY f.namespace, f.process_id, f.task_id, f.attempt LIMIT @lim::int),
deleted_attempts AS (
  DELETE FROM failed_attempts f USING batch
   WHERE f.namespace = batch.namespace
     AND f.process_id = batch.process_id
     AND f.task_id = batch.task_id
     AND f.attempt = batch.attempt
     AND NOT EXISTS (
       SELECT 1 FROM tasks t
        WHERE t.namespace = batch.namespace
          AND t.process_id = batch.process_id
          AND t.task_id = batch.task_id)
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = batch.namespace
          AND r.process_id = batch.process_id
          AND r.task_id = batch.task_id)
     AND NOT EXISTS (
       SELECT 1 FROM schedule s
        WHERE s.namespace = batch.namespace
          AND s.process_id = batch.process_id
          AND s.task_id = batch.task_id))
SELECT (SELECT count(*) FROM batch)::int AS looked_at,
       coalesce(last.namespace, '')::text AS last_namespace,
       coalesce(last.process_id, '')::text AS last_process_id,
       coalesce(last.task_id, 0)::bigint AS last_task_id,
       coalesce(last.attempt, 0)::int AS last_attempt
  FROM (SELECT 1) one
  LEFT JOIN LATERAL (
    SELECT b.namespace, b.process_id, b.task_id, b.attempt
      FROM batch b ORDER BY b.namespace DESC, b.process_id DESC, b.task_id DESC, b.attempt DESC
     LIMIT 1) last ON true;
