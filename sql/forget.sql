-- ForgetRequests drops idempotency keys that are older than their retention, lim at a time; never that of a task which waits or runs
-- still: who repeats such a request would start it twice.
-- name: ForgetRequests :execrows
DELETE FROM requests WHERE request_id = ANY (ARRAY(
  SELECT r.request_id FROM requests r WHERE r.created_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.namespace = ANY (ARRAY[r.namespace]) AND s.process_id = r.process_id AND s.task_id = r.task_id)
     AND NOT EXISTS (SELECT 1 FROM running u WHERE u.namespace = ANY (ARRAY[r.namespace]) AND u.process_id = r.process_id AND u.task_id = r.task_id)
   LIMIT @lim::int));

-- ForgetAnswers drops what became of the tasks of processes that are gone, lim at a time.
-- name: ForgetAnswers :execrows
DELETE FROM answers a USING (
  SELECT x.namespace, x.process_id, x.task_id FROM answers x
   WHERE x.ended_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond' LIMIT @lim::int) d
 WHERE a.namespace = d.namespace AND a.process_id = d.process_id AND a.task_id = d.task_id;
