-- RestartHistories starts new histories, for attempts and for operators. For an attempt, it runs
-- before SaveResult stores the events of the attempt, and checks the fencing token. For an
-- operator, fencing_token is 0. It runs after LockProcesses, so that no task ends in the meantime.
-- A task that is running belongs to the new history, and so does everything that it will store.
-- TrimHistories removes the old history.
-- name: RestartHistories :many
WITH input AS MATERIALIZED (
  SELECT item.ord, p.namespace, p.process_id, p.last_event_id, r.fencing_token
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@fencing_tokens::bigint[]))
         AS item(ord, namespace, process_id, fencing_token)
    JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
     AND is_locked(p.namespace, p.process_id)
    LEFT JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
   WHERE item.fencing_token = 0
      OR r.fencing_token = item.fencing_token),
updated_processes AS (
  UPDATE processes p
     SET first_event_id = input.last_event_id + 1, history_restarted_time = statement_timestamp()
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id),
inserted_restarts AS (
  INSERT INTO history_restarts (namespace, process_id, first_event_id, next_task_id, fencing_token,
                                restarted_time)
  SELECT namespace, process_id, last_event_id + 1, nextval('task_ids'),
         coalesce(fencing_token, nextval('fencing_tokens')), statement_timestamp()
    FROM input)
SELECT input.ord::int AS ord FROM input;

-- TrimHistories removes up to lim events and lim tasks that are older than a restart of their
-- history, oldest restart first. It deletes completed restarts. It skips histories that another
-- node is trimming. If a process was removed and started again under the same ID, a restart of its
-- predecessor removes nothing, because first_event_id is smaller and all tasks are later. The task
-- that failed a process, and the timers that it cancelled, are kept for the repair. answers keeps
-- the answers to requests with a key, and those of tasks that ended in the last minute, as in
-- PurgeHistory. after_event_id and after_task_id are the last rows that earlier batches have
-- deleted, as in PurgeHistory.
-- name: TrimHistories :one
WITH restart AS MATERIALIZED (
  SELECT started_restart.restart_id, started_restart.namespace, started_restart.process_id,
         started_restart.next_task_id, started_restart.fencing_token,
         started_restart.restarted_time, started_restart.after_event_id,
         started_restart.after_task_id, process.corrupted_by,
         least(started_restart.first_event_id, process.first_event_id,
               CASE WHEN process.removed_time IS NOT NULL THEN 0 END) AS first_event_id
    FROM (
      SELECT * FROM history_restarts ORDER BY restart_id LIMIT @restarts::int
         FOR UPDATE SKIP LOCKED) started_restart
   CROSS JOIN LATERAL (
     SELECT p.first_event_id, p.corrupted_by, p.removed_time
       FROM processes p
      WHERE p.namespace = started_restart.namespace
        AND p.process_id = started_restart.process_id
     UNION ALL
     SELECT 0, NULL, NULL LIMIT 1) process),
old_events AS MATERIALIZED (
  SELECT restart.restart_id, event.namespace, event.process_id, event.event_id
    FROM restart
   CROSS JOIN LATERAL (
     SELECT v.namespace, v.process_id, v.event_id
       FROM events v
      WHERE v.namespace = restart.namespace
        AND v.process_id = restart.process_id
        AND v.event_id > restart.after_event_id
        AND v.event_id < restart.first_event_id
      ORDER BY v.namespace, v.process_id, v.event_id LIMIT @lim::int) event),
old_tasks AS MATERIALIZED (
  SELECT restart.restart_id, task.namespace, task.process_id, task.task_id
    FROM restart
   CROSS JOIN LATERAL (
     SELECT v.namespace, v.process_id, v.task_id
       FROM tasks v
      WHERE v.namespace = restart.namespace
        AND v.process_id = restart.process_id
        AND v.task_id > restart.after_task_id
        AND v.task_id < restart.next_task_id
        AND restart.first_event_id > 0
        AND CASE v.status
              WHEN 'CANCELLED' THEN v.finished_time < restart.restarted_time
              ELSE v.fencing_token < restart.fencing_token
            END
        AND v.task_id IS DISTINCT FROM restart.corrupted_by
        AND (restart.corrupted_by IS NULL OR v.cancelled_by IS DISTINCT FROM restart.corrupted_by)
      ORDER BY v.namespace, v.process_id, v.task_id LIMIT @lim::int) task),
deleted_events AS (
  DELETE FROM events e USING old_events o
   WHERE e.namespace = ANY (ARRAY[o.namespace])
     AND e.process_id = o.process_id
     AND e.event_id = o.event_id),
deleted_tasks AS (
  DELETE FROM tasks t USING old_tasks o
   WHERE t.namespace = ANY (ARRAY[o.namespace])
     AND t.process_id = o.process_id
     AND t.task_id = o.task_id
  RETURNING t.*),
deleted_attempts AS (
  DELETE FROM failed_attempts f USING old_tasks o
   WHERE f.namespace = ANY (ARRAY[o.namespace])
     AND f.process_id = o.process_id
     AND f.task_id = o.task_id),
inserted_answers AS (
  INSERT INTO answers (namespace, process_id, task_id, task_type, status, fencing_token, ended_time,
                       response, failure, rejection)
  SELECT namespace, process_id, task_id, task_type, status, fencing_token, finished_time, response,
         failure, rejection
    FROM deleted_tasks
   WHERE task_type IN ('CALL', 'NOTIFY', 'INIT', 'REPAIR')
     AND (idempotency_key IS NOT NULL
          OR finished_time > statement_timestamp() - interval '1 minute')
  ON CONFLICT DO NOTHING),
batch AS MATERIALIZED (
  SELECT restart.restart_id, events.last_event_id, tasks.last_task_id,
         greatest(events.n, tasks.n) = @lim::int AS more
    FROM restart
   CROSS JOIN LATERAL (
     SELECT count(*) AS n, max(o.event_id) AS last_event_id
       FROM old_events o WHERE o.restart_id = restart.restart_id) events
   CROSS JOIN LATERAL (
     SELECT count(*) AS n, max(o.task_id) AS last_task_id
       FROM old_tasks o WHERE o.restart_id = restart.restart_id) tasks),
continued_restarts AS (
  UPDATE history_restarts h
     SET after_event_id = greatest(h.after_event_id, batch.last_event_id),
         after_task_id = greatest(h.after_task_id, batch.last_task_id)
    FROM batch
   WHERE h.restart_id = batch.restart_id
     AND batch.more),
deleted_restarts AS (
  DELETE FROM history_restarts h USING batch
   WHERE h.restart_id = batch.restart_id
     AND NOT batch.more)
SELECT count(*)::bigint AS restarts FROM restart;
