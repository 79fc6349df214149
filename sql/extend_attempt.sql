-- ExtendAttempt sets the timeout of a running attempt, counted from its start. It locks the
-- process, like every change of a task. It returns 0 if the attempt has ended.
-- name: ExtendAttempt :execrows
UPDATE running r
   SET deadline = r.running_time + (@timeout_us::bigint) * interval '1 microsecond'
  FROM (
    SELECT x.namespace, x.process_id
      FROM processes x
     WHERE x.namespace = @namespace
       AND x.process_id = @process_id
       FOR NO KEY UPDATE) process
 WHERE r.namespace = process.namespace
   AND r.process_id = process.process_id
   AND r.fencing_token = @fencing_token;
