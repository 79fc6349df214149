-- ForgetRequests drops idempotency keys that are older than their retention, lim at a time.
-- name: ForgetRequests :execrows
DELETE FROM requests WHERE request_id = ANY (ARRAY(
  SELECT r.request_id FROM requests r WHERE r.created_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond' LIMIT @lim::int));

-- ForgetAnswers drops what became of the tasks of processes that are gone, lim at a time.
-- name: ForgetAnswers :execrows
DELETE FROM answers a USING (
  SELECT x.namespace, x.process_id, x.task_id FROM answers x
   WHERE x.ended_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond' LIMIT @lim::int) d
 WHERE a.namespace = d.namespace AND a.process_id = d.process_id AND a.task_id = d.task_id;
