-- ForgetRequests deletes idempotency keys after their retention, at most lim at a time, oldest
-- first. The retention begins when the task ends. A key whose task has not ended, or has ended less
-- than the retention ago, gets a new created_time and is checked later. All keys that are older
-- than since were already deleted. The condition skips their index entries, which remain until a
-- vacuum.
-- name: ForgetRequests :one
WITH due_requests AS MATERIALIZED (
  SELECT r.request_id, r.namespace, r.process_id, r.task_id, r.created_time
    FROM requests r
   WHERE r.created_time >= @since::timestamptz
     AND r.created_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
   ORDER BY r.created_time LIMIT @lim::int FOR UPDATE SKIP LOCKED),
ended AS MATERIALIZED (
  SELECT due_requests.request_id,
         CASE
           WHEN EXISTS (
             SELECT 1 FROM running r
              WHERE r.namespace = ANY (ARRAY[due_requests.namespace])
                AND r.process_id = due_requests.process_id
                AND r.task_id = due_requests.task_id)
                OR EXISTS (
                  SELECT 1 FROM schedule s
                   WHERE s.namespace = ANY (ARRAY[due_requests.namespace])
                     AND s.process_id = due_requests.process_id
                     AND s.task_id = due_requests.task_id)
             THEN statement_timestamp()
           ELSE coalesce((
             SELECT t.finished_time FROM tasks t
              WHERE t.namespace = due_requests.namespace
                AND t.process_id = due_requests.process_id
                AND t.task_id = due_requests.task_id
              LIMIT 1),
                         (
                           SELECT a.ended_time FROM answers a
                            WHERE a.namespace = due_requests.namespace
                              AND a.process_id = due_requests.process_id
                              AND a.task_id = due_requests.task_id
                            LIMIT 1),
                         due_requests.created_time)
         END AS ended_time
    FROM due_requests),
updated_requests AS (
  UPDATE requests r
     SET created_time = ended.ended_time
    FROM ended
   WHERE r.request_id = ended.request_id
     AND ended.ended_time
           >= statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'),
deleted AS (
  DELETE FROM requests r USING ended
   WHERE r.request_id = ended.request_id
     AND ended.ended_time
           < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond')
SELECT count(*)::int AS found,
       (statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
           - interval '1 minute')::timestamptz AS forgotten_to
  FROM due_requests;

-- ForgetAnswers deletes results of tasks of removed processes, at most lim at a time, oldest first.
-- name: ForgetAnswers :execrows
DELETE FROM answers a
 USING (
   SELECT x.namespace, x.process_id, x.task_id
     FROM answers x
    WHERE x.ended_time >= @since::timestamptz
      AND x.ended_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
    ORDER BY x.ended_time LIMIT @lim::int FOR UPDATE SKIP LOCKED) oldest
 WHERE a.namespace = oldest.namespace
   AND a.process_id = oldest.process_id
   AND a.task_id = oldest.task_id;
