-- CancelProcesses requests the end of processes in INIT and RUNNING. Each gets a CANCEL task that
-- runs next, or after the running task. Its grace period of grace_us begins now. Processes in ERROR
-- and SUSPENDED become CANCELLED at once. If overdue is true, the statement instead ends processes
-- whose grace period has expired. An earlier request began that period. If a process ends here, its
-- attempt is fenced off, and all its running and waiting tasks become CANCELLED. If the grace
-- period has expired, the CANCEL task becomes ERROR instead. CancelProcesses runs after
-- LockProcesses.
--
-- A job gets no CANCEL task. A waiting job becomes CANCELLED at once. The worker of a running job
-- receives the cancel with its next heartbeat. A job for several workers ends when its members have
-- ended.
--
-- At most lim waiting tasks of a process end here, and its CANCEL task in addition if it comes
-- after them. If there may be more, the process is added to queue_backlogs, and SettleQueues ends
-- the others. outcome is requested, same (a cancel is in progress), cancelled, not_found or status
-- (the status does not allow a cancel).
-- name: CancelProcesses :many
WITH input AS MATERIALIZED (
  SELECT item_state.*,
         row_number() OVER (
           PARTITION BY item_state.namespace, item_state.process_id, item_state.asks,
           item_state.ends
           ORDER BY item_state.ord) AS n
    FROM (
      SELECT item.*, p.status, p.cancel_deadline IS NOT NULL AS cancelling,
             coalesce(p.cancel_deadline <= statement_timestamp(), false) AS over,
             r.task_id IS NOT NULL AS busy, coalesce(waiting.grouped, false) AS grouped,
             r.attempt AS running_attempt,
             coalesce(p.kind = 'job', false) AS job, job.name AS job_name,
             CASE
               WHEN p.cancel_deadline IS NOT NULL AND (r.task_id IS NOT NULL OR waiting.begun)
                 THEN 'cancel_requested'
               WHEN r.task_id IS NOT NULL OR waiting.runs THEN 'running'
               WHEN waiting.waits_for <> 'time' THEN 'available'
               WHEN waiting.attempt > 0 THEN 'retryable'
               ELSE 'scheduled'
             END AS job_state,
             coalesce(NOT item.overdue
                         AND p.cancel_deadline IS NULL
                         AND CASE
                               WHEN p.kind = 'job'
                                 THEN (r.task_id IS NOT NULL OR waiting.grouped)
                                      AND p.status IN ('INIT', 'SUSPENDED')
                               ELSE p.status IN ('INIT', 'RUNNING')
                             END,
                      false) AS asks,
             coalesce(CASE
                        WHEN item.overdue THEN p.cancel_deadline <= statement_timestamp()
                        ELSE CASE
                               WHEN p.kind = 'job'
                                 THEN r.task_id IS NULL
                                      AND waiting.grouped IS NOT TRUE
                                      AND p.status IN ('INIT', 'SUSPENDED')
                               ELSE p.status IN ('ERROR', 'SUSPENDED')
                             END
                      END,
                      false) AS ends
        FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]),
                        unnest(@process_ids::text[]), unnest(@reasons::text[]),
                        unnest(@contexts::bytea[]), unnest(@graces_us::bigint[]),
                        unnest(@overdues::bool[]), unnest(@actors::text[]), unnest(@modes::int[]))
             AS item(ord, namespace, process_id, reason, context, grace_us, overdue, actor, mode)
        LEFT JOIN processes p
          ON p.namespace = ANY (ARRAY[item.namespace])
         AND p.process_id = item.process_id
         AND p.removed_time IS NULL
         AND is_locked(p.namespace, p.process_id)
        LEFT JOIN running r
          ON r.namespace = ANY (ARRAY[item.namespace])
         AND r.process_id = item.process_id
        LEFT JOIN LATERAL (
          SELECT j.name FROM jobs j
           WHERE p.kind = 'job'
             AND j.namespace = item.namespace
             AND j.process_id = item.process_id
           LIMIT 1) job ON true
        LEFT JOIN LATERAL (
          SELECT s.waits_for, s.attempt,
                 s.taker = '~' AND s.attempt > 0 AS begun,
                 s.taker = '~' AND s.attempt > 0 AND s.waits_for <> 'operator' AS grouped,
                 (
                   SELECT g.running_time FROM job_groups g
                    WHERE s.taker = '~'
                      AND g.namespace = s.namespace
                      AND g.process_id = s.process_id) IS NOT NULL AS runs
            FROM schedule s
           WHERE p.kind = 'job'
             AND s.namespace = item.namespace
             AND s.process_id = item.process_id
             AND s.task_type = 'INIT'
           LIMIT 1) waiting ON true) item_state),
updated_processes AS (
  UPDATE processes p
     SET cancel_requested_time = coalesce(p.cancel_requested_time, statement_timestamp()),
         cancel_reason = CASE
                           WHEN p.cancel_requested_time IS NULL THEN NULLIF(input.reason, '')
                           ELSE p.cancel_reason
                         END,
         cancel_deadline = CASE
                             WHEN input.asks
                               THEN statement_timestamp()
                                      + input.grace_us * interval '1 microsecond'
                           END,
         status = CASE WHEN input.ends THEN 'CANCELLED' ELSE p.status END,
         previous_status = CASE WHEN input.ends THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE
                                 WHEN input.ends THEN statement_timestamp()
                                 ELSE p.status_changed_time
                               END,
         attention = CASE WHEN input.ends THEN 'CANCELLED' ELSE p.attention END,
         attention_time = CASE WHEN input.ends THEN statement_timestamp() ELSE p.attention_time END,
         detail = CASE WHEN NOT input.ends THEN p.detail END,
         corrupted_by = CASE WHEN NOT input.ends THEN p.corrupted_by END
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
     AND (input.ends OR input.asks AND input.n = 1)
  RETURNING p.namespace, coalesce(p.attention, 'RUNNING') AS new_status,
            (CASE input.status
               WHEN 'INIT' THEN 'RUNNING'
               ELSE input.status::text
             END)::process_status AS old_status),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, change.status, sum(change.n)
    FROM updated_processes
   CROSS JOIN LATERAL (
     VALUES (updated_processes.old_status, -1),
            (updated_processes.new_status, 1)) AS change(status, n)
   GROUP BY updated_processes.namespace, change.status HAVING sum(change.n) <> 0
   ORDER BY updated_processes.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, change.state, sum(change.n)
    FROM input m
   CROSS JOIN LATERAL (
     VALUES (m.ends,
             CASE
               WHEN m.job_state IN ('running', 'cancel_requested') THEN 'available'
               ELSE m.job_state
             END,
             -1),
            (m.ends, 'cancelled', 1)) AS change(counts, state, n)
   WHERE change.counts
     AND m.job
     AND m.n = 1
     AND NOT starts_with(m.process_id, '~job/~/')
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
-- from_status of a job with a cancel request is always cancel_requested. job_state may be newer,
-- because this transaction may have stored a retry, which has no event: see EndIfCancelled.
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, actor, message)
  SELECT input.namespace, input.process_id,
         CASE
           WHEN input.asks THEN 'cancel_requested'
           WHEN input.overdue THEN 'cancel_grace_expired'
           ELSE 'cancelled'
         END,
         CASE WHEN input.cancelling THEN 'cancel_requested' ELSE input.job_state END,
         CASE WHEN input.asks THEN 'cancel_requested' ELSE 'cancelled' END,
         coalesce(input.running_attempt, 0), NULLIF(input.actor, ''), NULLIF(input.reason, '')
    FROM input
   WHERE input.job
     AND input.n = 1
     AND (input.asks AND input.mode = 2 OR input.ends AND input.mode > 0)),
-- In a process with a cancel request, only its CANCEL task or an earlier INIT task waits for a
-- slot. (waits_for::text: see SaveResult.)
postponed_tasks AS (
  UPDATE schedule s
     SET waits_for = 'process', priority = coalesce(s.own_priority, s.priority), own_priority = NULL
    FROM input
   WHERE input.asks
     AND input.n = 1
     AND input.status = 'RUNNING'
     AND s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.waits_for::text = 'place'),
lowered AS (
  UPDATE schedule s
     SET priority = 0, own_priority = coalesce(s.own_priority, s.priority)
    FROM input
   WHERE input.asks
     AND input.n = 1
     AND NOT input.job
     AND input.status = 'INIT'
     AND s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.waits_for::text = 'place'
     AND s.priority > 0),
inserted_cancels AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        own_priority, scheduled_time, args, context)
  SELECT namespace, process_id, nextval('task_ids'), 'CANCEL',
         CASE WHEN status = 'RUNNING' AND NOT busy THEN 'place' ELSE 'process' END::waits_for,
         CASE
           WHEN status = 'RUNNING' AND NOT busy THEN least(queue_priority(namespace, process_id), 0)
           ELSE 0
         END,
         0, statement_timestamp(), convert_to(NULLIF(reason, ''), 'UTF8'), context
    FROM input
   WHERE asks
     AND n = 1
     AND NOT job),
-- A group first cancels its members.
woken_groups AS (
  UPDATE schedule s
     SET waits_for = 'place'
    FROM input
   WHERE input.asks
     AND input.n = 1
     AND input.grouped
     AND s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.taker = '~'),
cancelled_members AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, reason)
  SELECT l.namespace, l.process_id, 'cancel', l.namespace, l.job_id, 0, statement_timestamp(),
         NULLIF(input.reason, '')
    FROM input
    JOIN job_places l
      ON l.namespace = ANY (ARRAY[input.namespace])
     AND l.job_id = input.process_id
   WHERE input.ends
     AND input.job
     AND l.state IS NULL),
deleted_running AS (
  DELETE FROM running r USING input
   WHERE input.ends
     AND r.namespace = ANY (ARRAY[input.namespace])
     AND r.process_id = input.process_id
  RETURNING r.*),
-- The deletes search by key, not by ctid. Statements for constraints update waiting jobs without
-- locking the process, and an update changes the ctid.
deleted_first AS (
  DELETE FROM schedule s
   USING (
     SELECT input.namespace, input.process_id,
            (
              SELECT max(waiting.task_id)
                FROM (
                  SELECT w.task_id FROM schedule w
                   WHERE w.namespace = input.namespace
                     AND w.process_id = input.process_id
                   ORDER BY w.namespace, w.process_id, w.task_id
                   LIMIT @lim::int) waiting) AS last_task_id
       FROM input WHERE input.ends) first
   WHERE s.namespace = ANY (ARRAY[first.namespace])
     AND s.process_id = first.process_id
     AND s.task_id <= first.last_task_id
  RETURNING s.*),
deleted_cancel AS (
  DELETE FROM schedule s
   USING (
     SELECT input.namespace, input.process_id,
            (
              SELECT w.task_id FROM schedule w
               WHERE w.namespace = input.namespace
                 AND w.process_id = input.process_id
                 AND w.task_type = 'CANCEL'
               ORDER BY w.namespace DESC, w.process_id DESC, w.task_id DESC LIMIT 1) AS task_id
       FROM input
      WHERE input.ends
        AND input.cancelling) task
   WHERE s.namespace = ANY (ARRAY[task.namespace])
     AND s.process_id = task.process_id
     AND s.task_id = task.task_id
     AND s.task_id > (
       SELECT coalesce(max(waiting.task_id), 0)
         FROM (
           SELECT w.task_id FROM schedule w
            WHERE w.namespace = task.namespace
              AND w.process_id = task.process_id
            ORDER BY w.namespace, w.process_id, w.task_id LIMIT @lim::int) waiting)
  RETURNING s.*),
deleted_schedule AS (
  SELECT * FROM deleted_first
  UNION ALL
  SELECT * FROM deleted_cancel),
backlog AS (
  INSERT INTO queue_backlogs (namespace, process_id)
  SELECT deleted_schedule.namespace, deleted_schedule.process_id
    FROM deleted_schedule GROUP BY deleted_schedule.namespace, deleted_schedule.process_id
  HAVING count(*) >= @lim::int
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         resuming = false, cancelled_by = excluded.cancelled_by,
         after_task_id = excluded.after_task_id, after_message_id = 0,
         created_time = statement_timestamp()),
-- expired is read by a hashed subplan, not by a join: see EnqueueJobs.
ended_tasks AS (
  SELECT ended_task.*,
         ended_task.task_type = 'CANCEL'
           AND ((ended_task.namespace, ended_task.process_id) IN (
             SELECT input.namespace, input.process_id
               FROM input WHERE input.over)) IS TRUE AS expired
    FROM (
      SELECT namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
             scheduled_time, running_time, retry_interval, timer_name, idempotency_key, args,
             context, NULL::jsonb AS failure, NULL AS worker_id
        FROM deleted_running
      UNION ALL
      SELECT namespace, process_id, task_id, task_type, attempt, coalesce(own_priority, priority),
             fencing_token, scheduled_time, running_time, retry_interval, timer_name,
             idempotency_key, args, context, failure, worker_id
        FROM deleted_schedule) ended_task),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, running_time, finished_time, retry_interval,
                     timer_name, idempotency_key, args, context, failure, worker_id)
  SELECT namespace, process_id, task_id, task_type,
         CASE WHEN expired THEN 'ERROR' ELSE 'CANCELLED' END::task_status,
         attempt, priority, fencing_token, scheduled_time, running_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context,
         CASE WHEN expired THEN @grace_expired::jsonb ELSE failure END, worker_id
    FROM ended_tasks)
SELECT input.ord::int AS ord,
       (CASE
          WHEN input.ends THEN 'CANCELLED'
          ELSE coalesce(input.status, 'INIT')
        END)::process_status AS status,
       input.busy::bool AS busy,
       (CASE
          WHEN input.status IS NULL THEN 'not_found'
          WHEN input.ends THEN 'cancelled'
          WHEN input.asks THEN 'requested'
          WHEN input.cancelling THEN 'same'
          ELSE 'status'
        END)::text AS outcome
  FROM input;

-- ListOverdueCancels returns the processes with an expired grace period, longest overdue first.
-- name: ListOverdueCancels :many
SELECT namespace, process_id
  FROM processes
 WHERE cancel_deadline <= statement_timestamp()
   AND removed_time IS NULL
 ORDER BY cancel_deadline LIMIT @lim::int;

-- CancelGrace returns the remaining grace period (in µs) of a cancel in progress.
-- name: CancelGrace :one
SELECT (extract(epoch FROM cancel_deadline - statement_timestamp()) * 1000000)::bigint AS left_us
  FROM processes
 WHERE namespace = @namespace
   AND process_id = @process_id
   AND cancel_deadline IS NOT NULL;
