-- RemoveProcesses marks processes as removed and deletes their running and waiting tasks. It runs
-- after LockProcesses. PurgeHistory and DeleteRemoved later delete the histories in batches. The
-- members of a removed group get a cancel request.
--
-- If fencing_token is 0, an operator removes the process, and its running attempt is fenced.
-- Otherwise only the attempt that holds the token may remove the process, and its answer (response
-- or rejection) is kept in answers. If only_ended is true, a process that has not ended is kept. A
-- FAILED job has ended. If only_stopped is true, a process that is INIT or RUNNING is kept.
--
-- At most lim waiting tasks of each process are deleted here. If there may be more, the status
-- becomes CANCELLED, so that no claim takes them, and PurgeHistory deletes them. dropped and
-- open_dropped are the IDs of the request of a rejected INIT task in the two possible scopes. Both
-- requests are deleted. The IDs are zero if there is no such request. The fencing tokens of
-- attempts that may not remove their process are added to progressor.unsaved (see SaveResult). mode
-- is the event mode of the namespace: 2 records the removal of each job, and 1 only that of a job
-- that has not ended.
-- name: RemoveProcesses :many
WITH input AS MATERIALIZED (
  SELECT item.*,
         (
           SELECT count(*) FROM (
             SELECT 1 FROM schedule s
              WHERE s.namespace = item.namespace
                AND s.process_id = item.process_id
              LIMIT @lim::int) waiting) = @lim::int AS more,
         r.task_id, r.task_type, r.fencing_token AS running_token, r.attempt AS running_attempt,
         job.name AS job_name,
         CASE
           WHEN p.status IN ('COMPLETED', 'ERROR', 'CANCELLED')
             THEN CASE p.status
                    WHEN 'COMPLETED' THEN 'succeeded'
                    WHEN 'ERROR' THEN 'failed'
                    WHEN 'CANCELLED' THEN 'cancelled'
                  END
           WHEN p.cancel_deadline IS NOT NULL AND (r.task_id IS NOT NULL OR waiting.begun)
             THEN 'cancel_requested'
           WHEN r.task_id IS NOT NULL OR waiting.runs THEN 'running'
           WHEN waiting.waits_for <> 'time' THEN 'available'
           WHEN waiting.attempt > 0 THEN 'retryable'
           ELSE 'scheduled'
         END AS job_state
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@fencing_tokens::bigint[]), unnest(@responses::bytea[]),
                    unnest(@rejections::text[]), unnest(@dropped::uuid[]),
                    unnest(@open_dropped::uuid[]), unnest(@actors::text[]), unnest(@modes::int[]),
                    unnest(@only_endeds::bool[]), unnest(@only_stoppeds::bool[]))
         AS item(ord, namespace, process_id, fencing_token, response, rejection, dropped,
                 open_dropped, actor, mode, only_ended, only_stopped)
    JOIN processes p
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
       LIMIT 1) waiting ON true
   WHERE (item.fencing_token = 0 OR r.fencing_token = item.fencing_token)
     AND (NOT item.only_ended
          OR p.status IN ('COMPLETED', 'CANCELLED')
          OR p.kind = 'job' AND p.status = 'ERROR')
     AND (NOT item.only_stopped
          OR p.status NOT IN ('INIT', 'RUNNING'))),
updated_processes AS (
  UPDATE processes p
     SET removed_time = statement_timestamp(),
         status = CASE WHEN input.more THEN 'CANCELLED' ELSE p.status END
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
  RETURNING p.namespace, coalesce(p.attention, 'RUNNING') AS status, p.process_id, input.job_name,
            input.job_state, input.running_attempt, input.actor, input.mode),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, updated_processes.status, -count(*)
    FROM updated_processes GROUP BY updated_processes.namespace, updated_processes.status
   ORDER BY updated_processes.namespace, updated_processes.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT counted_job.namespace, counted_job.job_name, counted_job.state, -count(*)
    FROM (
      SELECT updated_processes.namespace, updated_processes.job_name,
             CASE
               WHEN updated_processes.job_state IN ('running', 'cancel_requested') THEN 'available'
               ELSE updated_processes.job_state
             END AS state
        FROM updated_processes
       WHERE updated_processes.job_name IS NOT NULL
         AND NOT starts_with(updated_processes.process_id, '~job/~/')) counted_job
   GROUP BY counted_job.namespace, counted_job.job_name, counted_job.state
   ORDER BY counted_job.namespace, counted_job.job_name, counted_job.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, attempt, actor)
  SELECT updated_processes.namespace, updated_processes.process_id, 'removed',
         updated_processes.job_state, coalesce(updated_processes.running_attempt, 0),
         NULLIF(updated_processes.actor, '')
    FROM updated_processes
   WHERE updated_processes.job_name IS NOT NULL
     AND (updated_processes.mode = 2
          OR updated_processes.mode = 1
             AND updated_processes.job_state NOT IN ('succeeded', 'failed', 'cancelled'))),
deleted_running AS (
  DELETE FROM running r USING input
   WHERE r.namespace = ANY (ARRAY[input.namespace])
     AND r.process_id = input.process_id),
-- The delete searches by key: see CancelProcesses.
deleted_schedule AS (
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
       FROM input) first
   WHERE s.namespace = ANY (ARRAY[first.namespace])
     AND s.process_id = first.process_id
     AND s.task_id <= first.last_task_id
  RETURNING s.namespace, s.process_id, s.task_id, s.task_type),
cancelled_members AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time)
  SELECT l.namespace, l.process_id, 'cancel', l.namespace, l.job_id, 0, statement_timestamp()
    FROM input
    JOIN job_places l
      ON l.namespace = ANY (ARRAY[input.namespace])
     AND l.job_id = input.process_id
   WHERE l.state IS NULL),
deleted_requests AS (
  DELETE FROM requests q USING input
   WHERE q.request_id = ANY (ARRAY[input.dropped, input.open_dropped])
     AND q.namespace = input.namespace
     AND q.process_id = input.process_id
     AND q.task_id = input.task_id),
inserted_answers AS (
  INSERT INTO answers (namespace, process_id, task_id, task_type, status, fencing_token, ended_time,
                       response, rejection)
  SELECT namespace, process_id, task_id, task_type,
         CASE WHEN fencing_token = 0 THEN 'CANCELLED' ELSE 'FINISHED' END::task_status,
         running_token, statement_timestamp(), response, NULLIF(rejection, '')::jsonb
    FROM input WHERE task_id IS NOT NULL
  UNION ALL
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', NULL, statement_timestamp(), NULL,
         NULL
    FROM deleted_schedule)
SELECT input.ord::int AS ord
  FROM input
 WHERE (
   SELECT CASE
            WHEN count(*) = cardinality(@ords::int[]) THEN true
            ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(removed.fencing_token))
          END
     FROM input removed);

-- PurgeHistory deletes up to lim events, tasks and waiting tasks of each removed process, and its
-- rows in the tables of jobs and runs. If a removed run had not ended, the processes of its open
-- steps get a cancel request, and the run that has waited longest for its dedupe key is notified.
-- Erased processes get no cancel request, because it would leave their IDs in a dead letter.
-- answers keeps the answers to requests with a key. It also keeps the answers of tasks that ended
-- in the last minute, because clients on other nodes may still read them.
--
-- The condition on removed_time prevents the use of the index of all removed processes, so that the
-- rows are found by their keys. Each after_… parameter is the last row that earlier batches have
-- deleted. Earlier batches may have deleted only some rows of task after_failed_id. Without these
-- parameters, each batch would read the dead rows of all earlier batches while an old snapshot
-- prevents their vacuum.
-- name: PurgeHistory :many
WITH removed AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@after_event_ids::bigint[]), unnest(@after_task_ids::bigint[]),
                    unnest(@after_waiting_ids::bigint[]), unnest(@after_failed_ids::bigint[]),
                    unnest(@after_step_ids::text[]), unnest(@after_indexes::int[]))
         AS item(namespace, process_id, after_event_id, after_task_id, after_waiting_id,
                 after_failed_id, after_step_id, after_index)
    JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND (p.removed_time IS NULL)::int = 0),
deleted_events AS (
  DELETE FROM events e
   USING (
     SELECT event.* FROM removed
      CROSS JOIN LATERAL (
        SELECT v.namespace, v.process_id, v.event_id
          FROM events v
         WHERE v.namespace = removed.namespace
           AND v.process_id = removed.process_id
           AND v.event_id > removed.after_event_id
         ORDER BY v.namespace, v.process_id, v.event_id LIMIT @lim::int) event) old_event
   WHERE e.namespace = ANY (ARRAY[old_event.namespace])
     AND e.process_id = old_event.process_id
     AND e.event_id = old_event.event_id
  RETURNING e.namespace, e.process_id, e.event_id),
deleted_tasks AS (
  DELETE FROM tasks t
   USING (
     SELECT task.* FROM removed
      CROSS JOIN LATERAL (
        SELECT v.namespace, v.process_id, v.task_id
          FROM tasks v
         WHERE v.namespace = removed.namespace
           AND v.process_id = removed.process_id
           AND v.task_id > removed.after_task_id
         ORDER BY v.namespace, v.process_id, v.task_id LIMIT @lim::int) task) old_task
   WHERE t.namespace = ANY (ARRAY[old_task.namespace])
     AND t.process_id = old_task.process_id
     AND t.task_id = old_task.task_id
  RETURNING t.*),
deleted_attempts AS (
  DELETE FROM failed_attempts f
   USING (
     SELECT attempt.* FROM removed
      CROSS JOIN LATERAL (
        SELECT v.namespace, v.process_id, v.task_id, v.attempt
          FROM failed_attempts v
         WHERE v.namespace = removed.namespace
           AND v.process_id = removed.process_id
           AND v.task_id >= removed.after_failed_id
         ORDER BY v.namespace, v.process_id, v.task_id, v.attempt LIMIT @lim::int) attempt) old
   WHERE f.namespace = ANY (ARRAY[old.namespace])
     AND f.process_id = old.process_id
     AND f.task_id = old.task_id
     AND f.attempt = old.attempt
  RETURNING f.namespace, f.process_id, f.task_id),
deleted_schedule AS (
  DELETE FROM schedule s
   USING (
     SELECT removed.namespace, removed.process_id, removed.after_waiting_id,
            (
              SELECT max(waiting.task_id)
                FROM (
                  SELECT w.task_id FROM schedule w
                   WHERE w.namespace = removed.namespace
                     AND w.process_id = removed.process_id
                     AND w.task_id > removed.after_waiting_id
                   ORDER BY w.namespace, w.process_id, w.task_id
                   LIMIT @lim::int) waiting) AS last_task_id
       FROM removed) first
   WHERE s.namespace = ANY (ARRAY[first.namespace])
     AND s.process_id = first.process_id
     AND s.task_id > first.after_waiting_id
     AND s.task_id <= first.last_task_id
  RETURNING s.*),
deleted_flow_steps AS (
  DELETE FROM flow_steps f
   USING (
     SELECT step.* FROM removed
      CROSS JOIN LATERAL (
        SELECT v.namespace, v.run_id, v.step_id, v.index
          FROM flow_steps v
         WHERE starts_with(removed.process_id, '~flow/')
           AND v.namespace = removed.namespace
           AND v.run_id = substr(removed.process_id, 7)
           AND (v.step_id, v.index) > (removed.after_step_id, removed.after_index)
         ORDER BY v.namespace, v.run_id, v.step_id, v.index LIMIT @lim::int) step) old_step
   WHERE f.namespace = ANY (ARRAY[old_step.namespace])
     AND f.run_id = old_step.run_id
     AND f.step_id = old_step.step_id
     AND f.index = old_step.index
  RETURNING f.namespace, f.run_id, f.step_id, f.index, f.status, f.process_namespace,
            f.process_id),
cancelled_children AS (
  INSERT INTO messages (namespace, process_id, kind, created_time, reason)
  SELECT child.namespace, child.process_id, 'cancel', statement_timestamp(), 'its run was removed'
    FROM (
      SELECT coalesce(deleted_flow_steps.process_namespace, deleted_flow_steps.namespace)
               AS namespace,
             deleted_flow_steps.process_id
        FROM deleted_flow_steps
       WHERE deleted_flow_steps.status = 'running'
         AND deleted_flow_steps.process_id !~ '^erased:[0-9a-f]{64}$') child
    LEFT JOIN LATERAL (
      SELECT p.process_id FROM processes p
       WHERE p.namespace = ANY (ARRAY[child.namespace])
         AND p.process_id = child.process_id
         AND p.removed_time IS NULL
       LIMIT 1) existing ON true
   WHERE existing.process_id IS NOT NULL
      OR NOT is_erased(child.namespace, child.process_id)),
deleted_flow_runs AS (
  DELETE FROM flow_runs r USING removed
   WHERE starts_with(removed.process_id, '~flow/')
     AND r.namespace = ANY (ARRAY[removed.namespace])
     AND r.run_id = substr(removed.process_id, 7)
  RETURNING r.namespace, r.template_type, r.dedupe_key, r.run_id),
deleted_flow_scopes AS (
  DELETE FROM flow_scopes s USING deleted_flow_runs
   WHERE s.namespace = ANY (ARRAY[deleted_flow_runs.namespace])
     AND s.template_type = deleted_flow_runs.template_type
     AND s.dedupe_key = deleted_flow_runs.dedupe_key
     AND s.run_id = deleted_flow_runs.run_id
  RETURNING s.namespace, s.template_type, s.dedupe_key, s.holds),
notified_runs AS (
  INSERT INTO messages (namespace, process_id, kind, created_time, args)
  SELECT next_run.namespace, '~flow/' || next_run.run_id, 'notify', statement_timestamp(),
         convert_to('{"method":"AskTurn"}', 'UTF8')
    FROM deleted_flow_scopes
   CROSS JOIN LATERAL (
     SELECT s.namespace, s.run_id
       FROM flow_scopes s
      WHERE deleted_flow_scopes.holds
        AND s.namespace = deleted_flow_scopes.namespace
        AND s.template_type = deleted_flow_scopes.template_type
        AND s.dedupe_key = deleted_flow_scopes.dedupe_key
        AND NOT s.holds
        AND EXISTS (
          SELECT 1 FROM processes p
           WHERE p.namespace = ANY (ARRAY[s.namespace])
             AND p.process_id = '~flow/' || s.run_id
             AND p.removed_time IS NULL
             AND p.status NOT IN ('COMPLETED', 'CANCELLED'))
      ORDER BY s.turn LIMIT 1) next_run),
deleted_jobs AS (
  DELETE FROM jobs j USING removed
   WHERE j.namespace = ANY (ARRAY[removed.namespace])
     AND j.process_id = removed.process_id
  RETURNING j.namespace, j.process_id, j.options),
deleted_job_places AS (
  DELETE FROM job_places l USING deleted_jobs
   WHERE deleted_jobs.options ? 'workers'
     AND l.namespace = ANY (ARRAY[deleted_jobs.namespace])
     AND l.job_id = deleted_jobs.process_id),
deleted_job_groups AS (
  DELETE FROM job_groups g USING deleted_jobs
   WHERE deleted_jobs.options ? 'workers'
     AND g.namespace = ANY (ARRAY[deleted_jobs.namespace])
     AND g.process_id = deleted_jobs.process_id),
inserted_answers AS (
  INSERT INTO answers (namespace, process_id, task_id, task_type, status, fencing_token, ended_time,
                       response, failure, rejection)
  SELECT namespace, process_id, task_id, task_type, status, fencing_token, finished_time, response,
         failure, rejection
    FROM deleted_tasks
   WHERE task_type IN ('CALL', 'NOTIFY', 'INIT', 'REPAIR')
     AND (idempotency_key IS NOT NULL
          OR finished_time > statement_timestamp() - interval '1 minute')
  UNION ALL
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', NULL, statement_timestamp(), NULL,
         NULL, NULL
    FROM deleted_schedule
  ON CONFLICT DO NOTHING)
SELECT removed.namespace::text AS namespace, removed.process_id::text AS process_id,
       (coalesce(event_counts.n, 0) + coalesce(task_counts.n, 0) + coalesce(waiting_counts.n, 0)
           + coalesce(step_counts.n, 0) + coalesce(attempt_counts.n, 0))::bigint AS deleted,
       greatest(coalesce(event_counts.n, 0), coalesce(task_counts.n, 0),
                coalesce(waiting_counts.n, 0), coalesce(step_counts.n, 0),
                coalesce(attempt_counts.n, 0))::bigint AS largest,
       coalesce(event_counts.last, removed.after_event_id)::bigint AS last_event_id,
       coalesce(task_counts.last, removed.after_task_id)::bigint AS last_task_id,
       coalesce(waiting_counts.last, removed.after_waiting_id)::bigint AS last_waiting_id,
       coalesce(attempt_counts.last, removed.after_failed_id)::bigint AS last_failed_id,
       coalesce(step_counts.last_step_id, removed.after_step_id)::text AS last_step_id,
       coalesce(step_counts.last_index, removed.after_index)::int AS last_index
  FROM removed
  LEFT JOIN (
    SELECT deleted_events.namespace, deleted_events.process_id, count(*) AS n,
           max(deleted_events.event_id) AS last
      FROM deleted_events GROUP BY 1, 2) event_counts USING (namespace, process_id)
  LEFT JOIN (
    SELECT deleted_tasks.namespace, deleted_tasks.process_id, count(*) AS n,
           max(deleted_tasks.task_id) AS last
      FROM deleted_tasks GROUP BY 1, 2) task_counts USING (namespace, process_id)
  LEFT JOIN (
    SELECT deleted_schedule.namespace, deleted_schedule.process_id, count(*) AS n,
           max(deleted_schedule.task_id) AS last
      FROM deleted_schedule GROUP BY 1, 2) waiting_counts USING (namespace, process_id)
  LEFT JOIN (
    SELECT deleted_flow_steps.namespace, '~flow/' || deleted_flow_steps.run_id AS process_id,
           count(*) AS n,
           (array_agg(deleted_flow_steps.step_id
              ORDER BY deleted_flow_steps.step_id DESC, deleted_flow_steps.index DESC))[1]
             AS last_step_id,
           (array_agg(deleted_flow_steps.index
              ORDER BY deleted_flow_steps.step_id DESC, deleted_flow_steps.index DESC))[1]
             AS last_index
      FROM deleted_flow_steps GROUP BY 1, 2) step_counts USING (namespace, process_id)
  LEFT JOIN (
    SELECT d.namespace, d.process_id, count(*) AS n, max(d.task_id) AS last
      FROM deleted_attempts d GROUP BY 1, 2) attempt_counts USING (namespace, process_id);

-- DeleteRemoved deletes the rows of those removed processes that no longer have a history. Their
-- IDs can then be reused.
-- name: DeleteRemoved :exec
DELETE FROM processes p
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
 WHERE p.namespace = ANY (ARRAY[item.namespace])
   AND p.process_id = item.process_id
   AND (p.removed_time IS NULL)::int = 0
   AND NOT EXISTS (
     SELECT 1 FROM events e
      WHERE e.namespace = ANY (ARRAY[p.namespace])
        AND e.process_id = p.process_id)
   AND NOT EXISTS (
     SELECT 1 FROM tasks t
      WHERE t.namespace = ANY (ARRAY[p.namespace])
        AND t.process_id = p.process_id)
   AND NOT EXISTS (
     SELECT 1 FROM schedule s
      WHERE s.namespace = ANY (ARRAY[p.namespace])
        AND s.process_id = p.process_id)
   AND NOT EXISTS (
     SELECT 1 FROM failed_attempts f
      WHERE f.namespace = ANY (ARRAY[p.namespace])
        AND f.process_id = p.process_id)
   AND NOT EXISTS (
     SELECT 1 FROM flow_steps f
      WHERE f.namespace = ANY (ARRAY[p.namespace])
        AND f.run_id = CASE
                         WHEN starts_with(p.process_id, '~flow/') THEN substr(p.process_id, 7)
                       END);

-- name: ListRemoved :many
SELECT namespace, process_id
  FROM processes WHERE removed_time IS NOT NULL
 ORDER BY removed_time LIMIT @lim::int;
