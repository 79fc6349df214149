-- FindStuck returns work that should have continued but has not. It ignores paused namespaces and
-- jobs of paused names, unless a rule says otherwise. It returns nothing if all work is done.
-- name: FindStuck :many
WITH awake AS MATERIALIZED (
  SELECT p.namespace, p.process_id, p.status, p.cancel_deadline
    FROM processes p
   WHERE p.removed_time IS NULL
     AND NOT EXISTS (
       SELECT 1 FROM namespaces n
        WHERE n.namespace = p.namespace
          AND n.paused)),
found AS (
  -- place_is_found: a task that waits for a slot gets one, unless workers take it.
  SELECT 'place_is_found' AS invariant, s.namespace, s.process_id,
         format('task %s has waited for a slot since %s', s.task_id, s.scheduled_time) AS detail
    FROM schedule s
    JOIN awake p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
   WHERE s.waits_for = 'place'
     AND s.scheduled_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (
       SELECT 1 FROM job_pauses x
        WHERE x.namespace = s.namespace
          AND x.name = s.job_name)
     AND NOT EXISTS (
       SELECT 1 FROM namespaces n
        WHERE n.namespace = s.namespace
          AND n.config -> 'processor' ? 'pull')
  UNION ALL
  -- timer_fires: a due timer runs.
  SELECT 'timer_fires', s.namespace, s.process_id,
         format('task %s has been due since %s', s.task_id, s.scheduled_time)
    FROM schedule s
    JOIN awake p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
     AND p.status IN ('INIT', 'RUNNING', 'ERROR')
   WHERE s.waits_for = 'time'
     AND s.scheduled_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (
       SELECT 1 FROM job_pauses x
        WHERE x.namespace = s.namespace
          AND x.name = s.job_name)
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = s.namespace
          AND r.process_id = s.process_id)
     AND p.cancel_deadline IS NULL
  UNION ALL
  -- cancel_ends: a process whose grace period is over has ended, even in a paused namespace.
  SELECT 'cancel_ends', p.namespace, p.process_id,
         format('the grace period of its cancel ended at %s', p.cancel_deadline)
    FROM processes p
   WHERE p.removed_time IS NULL
     AND p.cancel_deadline < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
  UNION ALL
  -- lease_is_held: a running task is on a node with heartbeats, or is leased to a worker with
  -- heartbeats, and has not exceeded its deadline. An attempt that its worker has
  -- ended with the function complete no longer runs.
  SELECT 'lease_is_held', r.namespace, r.process_id,
         format('task %s runs on node %s until %s; the node''s last heartbeat was at %s',
                r.task_id, r.node_id, r.deadline, n.beat_time)
    FROM running r
    LEFT JOIN nodes n ON n.node_id = r.node_id
    LEFT JOIN leases l
      ON l.namespace = r.namespace
     AND l.process_id = r.process_id
     AND l.fencing_token = r.fencing_token
   WHERE l.pending_result IS NULL
     AND (CASE
            WHEN l.worker_id IS NOT NULL
              THEN l.expires_time
                     < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
            ELSE n.node_id IS NULL
                 OR n.beat_time < statement_timestamp()
                      - (@zombie_after_us::bigint) * interval '1 microsecond'
          END
          OR r.deadline < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond')
  UNION ALL
  -- result_is_stored: a node ends an attempt that its worker has ended with the function complete.
  SELECT 'result_is_stored', r.namespace, r.process_id,
         format('worker %s has ended task %s from SQL, but no node stores the result; the lease '
                  || 'expired at %s', l.worker_id, r.task_id, l.expires_time)
    FROM leases l
    JOIN running r
      ON r.namespace = l.namespace
     AND r.process_id = l.process_id
     AND r.fencing_token = l.fencing_token
   WHERE l.pending_result IS NOT NULL
     AND l.expires_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
  UNION ALL
  -- hold_is_used: a job that holds a key is running or can be claimed.
  SELECT 'hold_is_used', h.namespace, h.process_id,
         format('it has held %s since %s', h.line, h.held_time)
    FROM constraint_holds h
   WHERE h.held_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (
       SELECT 1 FROM namespaces n
        WHERE n.namespace = h.namespace
          AND n.paused)
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = h.namespace
          AND r.process_id = h.process_id)
     AND NOT EXISTS (
       SELECT 1 FROM schedule s
        WHERE s.namespace = h.namespace
          AND s.process_id = h.process_id
          AND s.waits_for = 'place')
  UNION ALL
  -- reservation_is_used: a job that has reserved a key waits for another key.
  SELECT 'reservation_is_used', r.namespace, r.process_id,
         format('it has reserved %s since %s', r.line, r.reserved_time)
    FROM constraint_reservations r
   WHERE r.reserved_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (
       SELECT 1 FROM schedule s
        WHERE s.namespace = r.namespace
          AND s.process_id = r.process_id
          AND s.waits_for = 'constraint')
  UNION ALL
  -- late_job_ends: a job whose start deadline passed before an attempt began has ended, even in a
  -- paused namespace.
  SELECT 'late_job_ends', s.namespace, s.process_id,
         format('job %L should have begun by %s', s.job_name, s.start_deadline)
    FROM schedule s
   WHERE s.start_deadline < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
  UNION ALL
  -- key_is_given: no job waits for a key that is free and not reserved. Keys with a rate are not
  -- checked.
  SELECT 'key_is_given', s.namespace, s.process_id,
         format('task %s has waited in line %L since %s', s.task_id, s.line, s.scheduled_time)
    FROM schedule s
    JOIN awake p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
     AND p.status = 'INIT'
    LEFT JOIN constraints c
      ON c.namespace = s.namespace
     AND starts_with(s.line, c.name || '=')
   WHERE s.waits_for = 'constraint'
     AND s.scheduled_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond'
     AND NOT EXISTS (
       SELECT 1 FROM job_pauses x
        WHERE x.namespace = s.namespace
          AND x.name = s.job_name)
     AND (c.name IS NULL
          OR c.rate_count IS NULL
             AND c.max_running > (
               SELECT count(*) FROM constraint_holds h
                WHERE h.namespace = s.namespace
                  AND h.line = s.line) + (
                    SELECT count(*) FROM constraint_reservations r
                     WHERE r.namespace = s.namespace
                       AND r.line = s.line
                       AND r.process_id <> s.process_id))
  UNION ALL
  -- message_is_delivered: a message that can be delivered is delivered, even in a paused namespace.
  SELECT 'message_is_delivered', m.namespace, m.process_id,
         format('message %s, a %s, has waited since %s', m.message_id, m.kind, m.created_time)
    FROM messages m
   WHERE NOT m.held
     AND m.created_time < statement_timestamp() - (@late_us::bigint) * interval '1 microsecond')
SELECT invariant::text AS invariant, namespace::text AS namespace, process_id::text AS process_id,
       detail::text AS detail
  FROM found LIMIT @lim::int;

-- CountChecked returns the number of rows that each condition of FindStuck checks.
-- name: CountChecked :many
SELECT counts.invariant::text AS invariant, counts.n::bigint AS n
  FROM (
    SELECT 'place_is_found' AS invariant,
           (SELECT count(*) FROM schedule WHERE waits_for = 'place') AS n
    UNION ALL
    SELECT 'timer_fires',
           (SELECT count(*) FROM schedule WHERE waits_for = 'time')
    UNION ALL
    SELECT 'cancel_ends',
           (SELECT count(*) FROM processes WHERE cancel_deadline IS NOT NULL)
    UNION ALL
    SELECT 'lease_is_held',
           (SELECT count(*) FROM running)
    UNION ALL
    SELECT 'result_is_stored',
           (SELECT count(*) FROM leases WHERE pending_result IS NOT NULL)
    UNION ALL
    SELECT 'hold_is_used',
           (SELECT count(*) FROM constraint_holds)
    UNION ALL
    SELECT 'reservation_is_used',
           (SELECT count(*) FROM constraint_reservations)
    UNION ALL
    SELECT 'late_job_ends',
           (SELECT count(*) FROM schedule WHERE start_deadline IS NOT NULL)
    UNION ALL
    SELECT 'key_is_given',
           (SELECT count(*) FROM schedule WHERE waits_for = 'constraint')
    UNION ALL
    SELECT 'message_is_delivered',
           (SELECT count(*) FROM messages WHERE NOT held)) counts;
