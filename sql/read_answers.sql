-- ReadAnswers returns the results of tasks, for all waiting clients of a node at once. It omits
-- tasks that have not ended. process_status is the status of the process of a failed task. It is ''
-- if the process was removed, or if the task did not fail. It returns results in the order of ord,
-- and stops after the one that exceeds max_bytes.
-- name: ReadAnswers :many
SELECT bounded.ord::int AS ord, bounded.task_type, bounded.status, bounded.response,
       bounded.failure, bounded.rejection, bounded.process_status::text AS process_status
  FROM (
    SELECT measured.*,
           sum(measured.size) OVER (ORDER BY measured.ord ROWS UNBOUNDED PRECEDING)
             - measured.size AS bytes_before
      FROM (
        SELECT answer.*,
               coalesce(octet_length(answer.response), 0)
                 + coalesce(octet_length(answer.failure::text), 0)
                 + coalesce(octet_length(answer.rejection::text), 0) AS size
          FROM (
            SELECT item.ord, t.task_type, t.status, t.response, t.failure, t.rejection,
                   coalesce(CASE t.status
                              WHEN 'ERROR'
                                THEN (
                                  SELECT p.status FROM processes p
                                   WHERE p.namespace = item.namespace
                                     AND p.process_id = item.process_id
                                     AND p.removed_time IS NULL)
                            END::text,
                            '') AS process_status
              FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]),
                              unnest(@process_ids::text[]), unnest(@task_ids::bigint[]))
                   AS item(ord, namespace, process_id, task_id)
              JOIN tasks t
                ON t.namespace = ANY (ARRAY[item.namespace])
               AND t.process_id = item.process_id
               AND t.task_id = item.task_id
            UNION ALL
            SELECT item.ord, t.task_type, t.status, t.response, t.failure, t.rejection, ''
              FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]),
                              unnest(@process_ids::text[]), unnest(@task_ids::bigint[]))
                   AS item(ord, namespace, process_id, task_id)
              JOIN answers t
                ON t.namespace = ANY (ARRAY[item.namespace])
               AND t.process_id = item.process_id
               AND t.task_id = item.task_id) answer) measured) bounded
 WHERE bounded.bytes_before < @max_bytes::bigint;

-- ReadRequests returns the tasks of idempotent requests.
-- name: ReadRequests :many
SELECT * FROM requests WHERE request_id = ANY (@request_ids::uuid[]);

-- ReadApplied returns which results were stored, after a commit whose response was lost. If a
-- result was stored, the end of the task is in tasks or answers under its token, or the task is
-- back in schedule, for a retry or because its response was deferred. A token that is not in
-- running does not prove that the result was stored, because collecting a zombie, releasing a task
-- or removing the process also ends the attempt under its token. If a result was not stored, its
-- token is still in running.
-- name: ReadApplied :many
SELECT item.ord::int AS ord,
       EXISTS (
         SELECT 1 FROM running r
          WHERE r.namespace = ANY (ARRAY[item.namespace])
            AND r.process_id = item.process_id
            AND r.fencing_token = item.fencing_token)::bool AS holds,
       CASE item.outcome
         WHEN 'retry'
           THEN EXISTS (
             SELECT 1 FROM schedule s
              WHERE s.namespace = item.namespace
                AND s.process_id = item.process_id
                AND s.task_id = item.task_id
                AND s.fencing_token = item.fencing_token)
         WHEN 'defer'
           THEN EXISTS (
             SELECT 1 FROM schedule s
              WHERE s.namespace = item.namespace
                AND s.process_id = item.process_id
                AND s.task_id = item.task_id
                AND s.fencing_token = item.fencing_token
                AND s.running_time IS NOT NULL)
                OR EXISTS (
                  SELECT 1 FROM tasks t
                   WHERE t.namespace = ANY (ARRAY[item.namespace])
                     AND t.process_id = item.process_id
                     AND t.task_id = item.task_id
                     AND t.fencing_token = item.fencing_token
                     AND t.status = 'FINISHED')
         ELSE EXISTS (
           SELECT 1 FROM tasks t
            WHERE t.namespace = ANY (ARRAY[item.namespace])
              AND t.process_id = item.process_id
              AND t.task_id = item.task_id
              AND t.fencing_token = item.fencing_token
              AND t.status = CASE item.outcome
                               WHEN 'fail' THEN 'ERROR'
                               ELSE 'FINISHED'
                             END::task_status
              AND t.failure IS NOT DISTINCT FROM NULLIF(item.failure, '')::jsonb)
              OR EXISTS (
                SELECT 1 FROM answers a
                 WHERE a.namespace = ANY (ARRAY[item.namespace])
                   AND a.process_id = item.process_id
                   AND a.task_id = item.task_id
                   AND a.fencing_token = item.fencing_token
                   AND a.status = CASE item.outcome
                                    WHEN 'fail' THEN 'ERROR'
                                    ELSE 'FINISHED'
                                  END::task_status
                   AND a.failure IS NOT DISTINCT FROM NULLIF(item.failure, '')::jsonb)
       END::bool AS applied
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@outcomes::text[]), unnest(@failures::text[]))
       AS item(ord, namespace, process_id, task_id, fencing_token, outcome, failure);
