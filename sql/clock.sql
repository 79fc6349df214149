-- The statements of this file repair times that are in the future because the clock of the database
-- was set back. A time more than a second in the future was stored before the clock was set back. A
-- timeout or period with such a time starts again from now. Rows that another transaction has
-- locked are left to the next call. Tasks are changed under the lock of their process, because
-- SaveResult finds a task under that lock and then deletes it by its ctid.

-- RestartGraces restarts the grace periods of cancels.
-- name: RestartGraces :execrows
UPDATE processes p
   SET cancel_deadline = statement_timestamp() + (p.cancel_deadline - p.cancel_requested_time),
       cancel_requested_time = statement_timestamp()
  FROM (
    SELECT x.namespace, x.process_id
      FROM processes x
     WHERE x.cancel_deadline > statement_timestamp()
       AND x.cancel_requested_time > statement_timestamp() + interval '1 second'
       AND x.removed_time IS NULL
     ORDER BY x.cancel_deadline LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) future
 WHERE p.namespace = future.namespace
   AND p.process_id = future.process_id;

-- RestartAttempts restarts the timeouts of attempts.
-- name: RestartAttempts :execrows
UPDATE running r
   SET deadline = statement_timestamp() + (r.deadline - r.running_time),
       running_time = statement_timestamp()
  FROM (
    SELECT x.namespace, x.process_id
      FROM running x
      JOIN processes p
        ON p.namespace = x.namespace
       AND p.process_id = x.process_id
     WHERE x.running_time > statement_timestamp() + interval '1 second' LIMIT @lim::int
       FOR NO KEY UPDATE OF p SKIP LOCKED) future
 WHERE r.namespace = future.namespace
   AND r.process_id = future.process_id;

-- RestartLeases restarts the leases.
-- name: RestartLeases :execrows
UPDATE leases l
   SET expires_time
         = statement_timestamp() + (l.expires_time - coalesce(l.beat_time, l.leased_time)),
       beat_time = CASE WHEN l.beat_time IS NOT NULL THEN statement_timestamp() END,
       leased_time = least(l.leased_time, statement_timestamp())
  FROM (
    SELECT x.namespace, x.process_id
      FROM leases x
     WHERE coalesce(x.beat_time, x.leased_time) > statement_timestamp() + interval '1 second'
     LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) future
 WHERE l.namespace = future.namespace
   AND l.process_id = future.process_id;

-- RestartBuckets restarts the refill of the token buckets of rate limits.
-- name: RestartBuckets :execrows
UPDATE constraint_buckets b
   SET refilled_time = statement_timestamp(),
       full_time = statement_timestamp() + (b.full_time - b.refilled_time),
       next_time = statement_timestamp() + (b.next_time - b.refilled_time)
  FROM (
    SELECT x.namespace, x.line
      FROM constraint_buckets x WHERE x.refilled_time > statement_timestamp() + interval '1 second'
     LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) future
 WHERE b.namespace = future.namespace
   AND b.line = future.line;

-- RestartBackoffs restarts the backoffs of retries. It reads all of the table schedule.
-- name: RestartBackoffs :execrows
UPDATE schedule s
   SET scheduled_time = statement_timestamp() + s.retry_interval
  FROM (
    SELECT x.namespace, x.process_id, x.task_id
      FROM schedule x
      JOIN processes p
        ON p.namespace = x.namespace
       AND p.process_id = x.process_id
     WHERE x.waits_for = 'time'
       AND x.scheduled_time > statement_timestamp() + x.retry_interval + interval '1 second'
     LIMIT @lim::int FOR NO KEY UPDATE OF p SKIP LOCKED) future
 WHERE s.namespace = future.namespace
   AND s.process_id = future.process_id
   AND s.task_id = future.task_id;
