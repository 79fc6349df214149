-- RemoveProcesses marks processes as removed and deletes their running and waiting tasks.
-- PurgeHistory and DeleteRemoved delete their histories in batches. It runs after LockProcesses.
-- fencing_token 0: an operator removes the process, and a running attempt is fenced off. Otherwise
-- only the attempt with the token may remove the process, and its answer (response or rejection) is
-- kept in answers. only_ended: a process that has not ended is not removed. The members of a group
-- are asked to end. At most lim waiting tasks of each process are deleted here. If there may be
-- more, the status becomes CANCELLED, so that they are not claimed, and PurgeHistory deletes them.
-- dropped and open_dropped: request ids whose keys are deleted (those of a rejected INIT, in the
-- two scopes that it may have); zero: none.
-- name: RemoveProcesses :many
WITH i AS MATERIALIZED (
  SELECT t.*, (SELECT count(*) FROM (SELECT 1 FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id LIMIT @lim::int) x) = @lim::int AS more,
         r.task_id, r.task_type, r.fencing_token AS running_token, r.attempt AS running_attempt, coalesce(w.begun, false) AS begun, j.name AS job_name,
         CASE WHEN p.status IN ('COMPLETED', 'ERROR', 'CANCELLED') THEN CASE p.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'ERROR' THEN 'failed' WHEN 'CANCELLED' THEN 'cancelled' END
              WHEN r.task_id IS NULL AND w.begun IS NOT TRUE THEN CASE WHEN w.waits_for <> 'time' THEN 'available' WHEN w.attempt > 0 THEN 'retryable' ELSE 'scheduled' END
              WHEN p.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END AS job_state
    FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@responses::bytea[]), unnest(@rejections::text[]), unnest(@dropped::uuid[]), unnest(@open_dropped::uuid[]), unnest(@actors::text[]),
                    unnest(@modes::int[]), unnest(@only_endeds::bool[]))
         AS t(ord, namespace, process_id, fencing_token, response, rejection, dropped, open_dropped, actor, mode, only_ended)
    JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
    LEFT JOIN running r ON r.namespace = ANY (ARRAY[t.namespace]) AND r.process_id = t.process_id
    LEFT JOIN LATERAL (SELECT j.name FROM jobs j WHERE p.kind = 'job' AND j.namespace = t.namespace AND j.process_id = t.process_id LIMIT 1) j ON true
    LEFT JOIN LATERAL (SELECT s.waits_for, s.attempt, s.taker = '~' AND s.attempt > 0 AS begun FROM schedule s WHERE p.kind = 'job' AND s.namespace = t.namespace AND s.process_id = t.process_id
                          AND s.task_type = 'INIT' LIMIT 1) w ON true
   WHERE (t.fencing_token = 0 OR r.fencing_token = t.fencing_token)
     AND (NOT t.only_ended OR p.status IN ('COMPLETED', 'CANCELLED'))),
up AS (
  UPDATE processes p SET removed_time = statement_timestamp(), status = CASE WHEN i.more THEN 'CANCELLED' ELSE p.status END
    FROM i WHERE p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = i.process_id
  RETURNING p.namespace, coalesce(p.attention, 'RUNNING') AS status, p.process_id, i.job_name, i.job_state, i.begun, i.running_attempt, i.actor, i.mode),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, up.status, -count(*) FROM up GROUP BY up.namespace, up.status ORDER BY up.namespace, up.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT x.namespace, x.job_name, x.state, -count(*) FROM (
    SELECT up.namespace, up.job_name, CASE WHEN up.job_state IN ('running', 'cancel_requested') THEN 'available' ELSE up.job_state END AS state FROM up
     WHERE up.job_name IS NOT NULL
    UNION ALL SELECT up.namespace, up.job_name, up.job_state FROM up WHERE up.job_name IS NOT NULL AND up.begun AND up.job_state IN ('running', 'cancel_requested')) x
   GROUP BY x.namespace, x.job_name, x.state ORDER BY x.namespace, x.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, attempt, actor)
  SELECT up.namespace, up.process_id, 'removed', up.job_state, coalesce(up.running_attempt, 0), NULLIF(up.actor, '') FROM up
   WHERE up.job_name IS NOT NULL AND (up.mode = 2 OR up.mode = 1 AND up.job_state NOT IN ('succeeded', 'failed', 'cancelled'))),
dr AS (
  DELETE FROM running r USING i WHERE r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = i.process_id),
-- The delete searches by key: see CancelProcesses.
ds AS (
  DELETE FROM schedule s USING (
    SELECT i.namespace, i.process_id, (SELECT max(w.task_id) FROM (
        SELECT w.task_id FROM schedule w WHERE w.namespace = i.namespace AND w.process_id = i.process_id
         ORDER BY w.namespace, w.process_id, w.task_id LIMIT @lim::int) w) AS last_task_id
      FROM i) first
   WHERE s.namespace = ANY (ARRAY[first.namespace]) AND s.process_id = first.process_id AND s.task_id <= first.last_task_id
  RETURNING s.namespace, s.process_id, s.task_id, s.task_type),
mb AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time)
  SELECT l.namespace, l.process_id, 'cancel', l.namespace, l.job_id, 0, statement_timestamp()
    FROM i JOIN job_places l ON l.namespace = ANY (ARRAY[i.namespace]) AND l.job_id = i.process_id WHERE l.state IS NULL),
dq AS (
  DELETE FROM requests q USING i WHERE q.request_id = ANY (ARRAY[i.dropped, i.open_dropped]) AND q.namespace = i.namespace
     AND q.process_id = i.process_id AND q.task_id = i.task_id),
an AS (
  INSERT INTO answers (namespace, process_id, task_id, task_type, status, fencing_token, ended_time, response, rejection)
  SELECT namespace, process_id, task_id, task_type, CASE WHEN fencing_token = 0 THEN 'CANCELLED' ELSE 'FINISHED' END::task_status,
         running_token, statement_timestamp(), response, NULLIF(rejection, '')::jsonb FROM i WHERE task_id IS NOT NULL
  UNION ALL
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', NULL, statement_timestamp(), NULL, NULL FROM ds)
SELECT i.ord::int AS ord FROM i;

-- PurgeHistory deletes up to lim events, tasks and waiting tasks of each removed process, and its
-- rows as a job or run. For a run that had not ended, the processes of its open steps are asked to
-- end, and the run that waits longest for its dedupe key is told to ask for it again. answers keeps
-- the answers to requests with a key, and those of tasks that ended a moment ago, because clients
-- on other nodes may still ask for them. The condition on removed_time prevents the use of the
-- index of all removed processes; the rows are found by their keys. after_…: earlier batches have
-- deleted the rows up to this one (after_failed_id: up to a row of this task). Without them, each
-- batch would read the dead rows of all earlier batches for as long as an old snapshot keeps vacuum
-- from removing them.
-- name: PurgeHistory :many
WITH k AS MATERIALIZED (
  SELECT t.* FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@after_event_ids::bigint[]), unnest(@after_task_ids::bigint[]),
                             unnest(@after_waiting_ids::bigint[]), unnest(@after_failed_ids::bigint[]))
         AS t(namespace, process_id, after_event_id, after_task_id, after_waiting_id, after_failed_id)
    JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND (p.removed_time IS NULL)::int = 0),
e AS (
  DELETE FROM events e USING (
    SELECT x.* FROM k CROSS JOIN LATERAL (
      SELECT v.namespace, v.process_id, v.event_id FROM events v WHERE v.namespace = k.namespace AND v.process_id = k.process_id AND v.event_id > k.after_event_id
       ORDER BY v.namespace, v.process_id, v.event_id LIMIT @lim::int) x) d
   WHERE e.namespace = ANY (ARRAY[d.namespace]) AND e.process_id = d.process_id AND e.event_id = d.event_id
  RETURNING e.namespace, e.process_id, e.event_id),
t AS (
  DELETE FROM tasks t USING (
    SELECT x.* FROM k CROSS JOIN LATERAL (
      SELECT v.namespace, v.process_id, v.task_id FROM tasks v WHERE v.namespace = k.namespace AND v.process_id = k.process_id AND v.task_id > k.after_task_id
       ORDER BY v.namespace, v.process_id, v.task_id LIMIT @lim::int) x) d
   WHERE t.namespace = ANY (ARRAY[d.namespace]) AND t.process_id = d.process_id AND t.task_id = d.task_id RETURNING t.*),
deleted_attempts AS (
  DELETE FROM failed_attempts f USING (
    SELECT attempt.* FROM k CROSS JOIN LATERAL (
      SELECT v.namespace, v.process_id, v.task_id, v.attempt FROM failed_attempts v
       WHERE v.namespace = k.namespace AND v.process_id = k.process_id AND v.task_id >= k.after_failed_id
       ORDER BY v.namespace, v.process_id, v.task_id, v.attempt LIMIT @lim::int) attempt) old
   WHERE f.namespace = ANY (ARRAY[old.namespace])
     AND f.process_id = old.process_id
     AND f.task_id = old.task_id
     AND f.attempt = old.attempt
  RETURNING f.namespace, f.process_id, f.task_id),
q AS (
  DELETE FROM schedule s USING (
    SELECT k.namespace, k.process_id, k.after_waiting_id, (SELECT max(w.task_id) FROM (
        SELECT w.task_id FROM schedule w WHERE w.namespace = k.namespace AND w.process_id = k.process_id AND w.task_id > k.after_waiting_id
         ORDER BY w.namespace, w.process_id, w.task_id LIMIT @lim::int) w) AS last_task_id
      FROM k) first
   WHERE s.namespace = ANY (ARRAY[first.namespace]) AND s.process_id = first.process_id AND s.task_id > first.after_waiting_id AND s.task_id <= first.last_task_id
  RETURNING s.*),
fs AS (
  DELETE FROM flow_steps f USING (
    SELECT x.* FROM k CROSS JOIN LATERAL (
      SELECT v.namespace, v.run_id, v.step_id, v.index FROM flow_steps v
       WHERE starts_with(k.process_id, '~flow/') AND v.namespace = k.namespace AND v.run_id = substr(k.process_id, 7)
       ORDER BY v.namespace, v.run_id, v.step_id, v.index LIMIT @lim::int) x) d
   WHERE f.namespace = ANY (ARRAY[d.namespace]) AND f.run_id = d.run_id AND f.step_id = d.step_id AND f.index = d.index
   RETURNING f.namespace, f.run_id, f.status, f.process_namespace, f.process_id),
fc AS (
  INSERT INTO messages (namespace, process_id, kind, created_time, reason)
  SELECT coalesce(fs.process_namespace, fs.namespace), fs.process_id, 'cancel', statement_timestamp(), 'its run was removed' FROM fs
   WHERE fs.status = 'running' AND fs.process_id IS NOT NULL),
fr AS (
  DELETE FROM flow_runs r USING k WHERE starts_with(k.process_id, '~flow/') AND r.namespace = ANY (ARRAY[k.namespace]) AND r.run_id = substr(k.process_id, 7)
  RETURNING r.namespace, r.template_type, r.dedupe_key, r.run_id),
sc AS (
  DELETE FROM flow_scopes s USING fr WHERE s.namespace = ANY (ARRAY[fr.namespace]) AND s.template_type = fr.template_type AND s.dedupe_key = fr.dedupe_key AND s.run_id = fr.run_id
  RETURNING s.namespace, s.template_type, s.dedupe_key, s.holds),
st AS (
  INSERT INTO messages (namespace, process_id, kind, created_time, args)
  SELECT w.namespace, '~flow/' || w.run_id, 'notify', statement_timestamp(), convert_to('{"method":"AskTurn"}', 'UTF8')
    FROM sc CROSS JOIN LATERAL (
      SELECT s.namespace, s.run_id FROM flow_scopes s
       WHERE sc.holds AND s.namespace = sc.namespace AND s.template_type = sc.template_type AND s.dedupe_key = sc.dedupe_key AND NOT s.holds
         AND EXISTS (SELECT 1 FROM processes p WHERE p.namespace = ANY (ARRAY[s.namespace]) AND p.process_id = '~flow/' || s.run_id AND p.removed_time IS NULL
                        AND p.status NOT IN ('COMPLETED', 'CANCELLED'))
       ORDER BY s.turn LIMIT 1) w),
jb AS (
  DELETE FROM jobs j USING k WHERE j.namespace = ANY (ARRAY[k.namespace]) AND j.process_id = k.process_id RETURNING j.namespace, j.process_id, j.options),
jp AS (
  DELETE FROM job_places l USING jb WHERE jb.options ? 'workers' AND l.namespace = ANY (ARRAY[jb.namespace]) AND l.job_id = jb.process_id),
jg AS (
  DELETE FROM job_groups g USING jb WHERE jb.options ? 'workers' AND g.namespace = ANY (ARRAY[jb.namespace]) AND g.process_id = jb.process_id),
an AS (
  INSERT INTO answers (namespace, process_id, task_id, task_type, status, fencing_token, ended_time, response, failure, rejection)
  SELECT namespace, process_id, task_id, task_type, status, fencing_token, finished_time, response, failure, rejection
    FROM t WHERE task_type IN ('CALL', 'NOTIFY', 'INIT', 'REPAIR')
     AND (idempotency_key IS NOT NULL OR finished_time > statement_timestamp() - interval '1 minute')
  UNION ALL
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', NULL, statement_timestamp(), NULL, NULL, NULL FROM q
  ON CONFLICT DO NOTHING)
SELECT k.namespace::text AS namespace, k.process_id::text AS process_id, (coalesce(e.n, 0) + coalesce(t.n, 0) + coalesce(q.n, 0) + coalesce(f.n, 0) + coalesce(a.n, 0))::bigint AS deleted,
       greatest(coalesce(e.n, 0), coalesce(t.n, 0), coalesce(q.n, 0), coalesce(f.n, 0), coalesce(a.n, 0))::bigint AS largest,
       coalesce(e.last, k.after_event_id)::bigint AS last_event_id, coalesce(t.last, k.after_task_id)::bigint AS last_task_id,
       coalesce(q.last, k.after_waiting_id)::bigint AS last_waiting_id, coalesce(a.last, k.after_failed_id)::bigint AS last_failed_id
  FROM k
  LEFT JOIN (SELECT e.namespace, e.process_id, count(*) AS n, max(e.event_id) AS last FROM e GROUP BY 1, 2) e USING (namespace, process_id)
  LEFT JOIN (SELECT t.namespace, t.process_id, count(*) AS n, max(t.task_id) AS last FROM t GROUP BY 1, 2) t USING (namespace, process_id)
  LEFT JOIN (SELECT q.namespace, q.process_id, count(*) AS n, max(q.task_id) AS last FROM q GROUP BY 1, 2) q USING (namespace, process_id)
  LEFT JOIN (SELECT fs.namespace, '~flow/' || fs.run_id AS process_id, count(*) AS n FROM fs GROUP BY 1, 2) f USING (namespace, process_id)
  LEFT JOIN (SELECT d.namespace, d.process_id, count(*) AS n, max(d.task_id) AS last FROM deleted_attempts d GROUP BY 1, 2) a USING (namespace, process_id);

-- DeleteRemoved deletes the rows of removed processes without a history. Their ids can then be used
-- again.
-- name: DeleteRemoved :exec
DELETE FROM processes p USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS k(namespace, process_id)
 WHERE p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id AND (p.removed_time IS NULL)::int = 0
   AND NOT EXISTS (SELECT 1 FROM events e WHERE e.namespace = ANY (ARRAY[p.namespace]) AND e.process_id = p.process_id)
   AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.namespace = ANY (ARRAY[p.namespace]) AND t.process_id = p.process_id)
   AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.namespace = ANY (ARRAY[p.namespace]) AND s.process_id = p.process_id)
   AND NOT EXISTS (SELECT 1 FROM failed_attempts f
                    WHERE f.namespace = ANY (ARRAY[p.namespace]) AND f.process_id = p.process_id)
   AND NOT EXISTS (SELECT 1 FROM flow_steps f WHERE f.namespace = ANY (ARRAY[p.namespace])
                      AND f.run_id = CASE WHEN starts_with(p.process_id, '~flow/') THEN substr(p.process_id, 7) END);

-- name: ListRemoved :many
SELECT namespace, process_id FROM processes WHERE removed_time IS NOT NULL ORDER BY removed_time LIMIT @lim::int;
