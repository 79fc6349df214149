-- These statements return the data for the explanation of a process, in addition to the process
-- itself and its history. The data is bounded and contains no payloads. Reasons of failures are cut
-- to 256 characters, and other texts to 1,000. ExplainEnded returns the newest ended tasks.
-- name: ExplainEnded :many
SELECT task_id, task_type, status, attempt, scheduled_time,
       coalesce(running_time, 'epoch')::timestamptz AS running_time, finished_time,
       coalesce(retry_interval, interval '0')::interval AS retry_interval,
       coalesce(timer_name, '')::text AS timer_name,
       left(coalesce(failure->>'reason', ''), 256)::text AS reason,
       left(coalesce(failure->>'message', ''), 1000)::text AS message
  FROM tasks
 WHERE namespace = @namespace
   AND process_id = @process_id
 ORDER BY namespace DESC, process_id DESC, task_id DESC LIMIT @lim::int;

-- ExplainSuspensions returns when a process was suspended and resumed, newest first. The audit
-- keeps its entries for 90 days. ORDER BY has the columns of the index audit_suspensions.
-- name: ExplainSuspensions :many
SELECT a."time", (a.method = 'SuspendProcess')::bool AS suspended,
       left(coalesce(a.details->>'reason', ''), 256)::text AS reason
  FROM audit a
 WHERE a.namespace = @namespace
   AND a.subject = @process_id
   AND a.method IN ('SuspendProcess', 'ResumeProcess')
   AND a."time" >= @since::timestamptz
 ORDER BY a.namespace DESC, a.subject DESC, a.audit_id DESC LIMIT @lim::int;

-- ExplainWaiting returns the waiting tasks: first those that could run, then those that wait for a
-- time, then those that wait for a reply.
-- name: ExplainWaiting :many
SELECT task_id, task_type, waits_for, attempt, scheduled_time,
       coalesce(running_time, 'epoch')::timestamptz AS running_time,
       coalesce(retry_interval, interval '0')::interval AS retry_interval,
       coalesce(timer_name, '')::text AS timer_name,
       left(coalesce(failure->>'reason', ''), 256)::text AS reason,
       left(coalesce(failure->>'message', ''), 1000)::text AS message
  FROM schedule
 WHERE namespace = @namespace
   AND process_id = @process_id
 ORDER BY running_time IS NOT NULL,
          CASE WHEN waits_for = 'time' THEN scheduled_time ELSE 'epoch' END,
          task_id LIMIT @lim::int;

-- name: ExplainRunning :many
SELECT r.task_id, r.task_type, r.attempt, r.scheduled_time, r.running_time, r.deadline,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(r.timer_name, '')::text AS timer_name, r.node_id,
       coalesce(n.address, '')::text AS address, coalesce(n.draining, false)::bool AS draining,
       coalesce(n.beat_time
                   >= statement_timestamp() - (@zombie_after_us::bigint) * interval '1 microsecond',
                false)::bool AS alive,
       coalesce(n.beat_time, 'epoch')::timestamptz AS node_beat_time,
       coalesce(l.worker_id, '')::text AS worker_id,
       coalesce(l.expires_time, 'epoch')::timestamptz AS expires_time,
       coalesce(l.beat_time, 'epoch')::timestamptz AS beat_time,
       (l.pending_result IS NOT NULL)::bool AS is_ended
  FROM running r
  LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
 WHERE r.namespace = @namespace
   AND r.process_id = @process_id;

-- ExplainNodes returns the time, the cancel deadline of the process, the number of running tasks of
-- its namespace (counted up to lim), the number of live nodes (nodes), and the number of live nodes
-- that claim tasks (takers).
-- name: ExplainNodes :one
SELECT statement_timestamp()::timestamptz AS now,
       coalesce((
         SELECT p.cancel_deadline FROM processes p
          WHERE p.namespace = @namespace
            AND p.process_id = @process_id),
                'epoch')::timestamptz AS cancel_deadline,
       (
         SELECT count(*) FROM (
           SELECT 1 FROM running r WHERE r.namespace = @namespace
            LIMIT @lim::int) attempt)::int AS running,
       (
         SELECT count(*) FROM nodes n
          WHERE n.beat_time >= statement_timestamp()
                  - (@zombie_after_us::bigint) * interval '1 microsecond')::int AS nodes,
       (
         SELECT count(*) FROM nodes n
          WHERE n.beat_time >= statement_timestamp()
                  - (@zombie_after_us::bigint) * interval '1 microsecond'
            AND NOT n.draining
            AND NOT n.requests_only)::int AS takers;

-- ExplainJob returns the data for the explanation of a job, in addition to its tasks.
-- name: ExplainJob :one
SELECT j.name, j.takeovers, coalesce((j.options->>'maxRetry')::int, 0)::int AS max_retry,
       coalesce((j.options->>'maxTakeovers')::int,
                CASE WHEN @zombie_error::bool THEN 0 ELSE 3 END)::int AS max_takeovers,
       (
         SELECT count(*) FILTER (WHERE NOT (f->>'takeover')::bool)
                  + coalesce(sum((f->>'omitted')::int - (f->>'omittedTakeovers')::int), 0)
           FROM jsonb_array_elements(j.failures) f)::int AS failed,
       coalesce((
         SELECT r.status::text FROM flow_runs r
          WHERE r.namespace = j.namespace
            AND r.run_id = substring(j.process_id FROM '^~job/(.*)/[^/]*$')),
                '')::text AS run_status
  FROM jobs j
 WHERE j.namespace = @namespace
   AND j.process_id = @process_id;

-- ExplainRun returns the data for the explanation of a run, in addition to its tasks. ExplainSteps
-- returns its open steps and items, those that wait for a response first.
-- name: ExplainRun :one
SELECT r.status, r.attempt, coalesce(r.blocked_on, '')::text AS blocked_on,
       coalesce(r.cancel_reason, '')::text AS cancel_reason,
       left(concat_ws(': ', r.failure->>'reason', NULLIF(r.failure->>'message', '')),
            1000)::text AS failure
  FROM flow_runs r
 WHERE r.namespace = @namespace
   AND r.run_id = @run_id;

-- name: ExplainSteps :many
SELECT f.step_id, f.index,
       coalesce(f.compensation_status = 'running', false)::bool AS undoing,
       coalesce(CASE WHEN f.token IS NOT NULL THEN f.wait->>'kind' END, '')::text AS wait,
       left(coalesce(f.wait->>'title', ''), 1000)::text AS title,
       left(coalesce((
              SELECT string_agg(a, ', ') FROM jsonb_array_elements_text(f.wait->'assignees') a),
                     ''),
            1000)::text AS assignees,
       f.due_time,
       coalesce(f.process_namespace, f.namespace)::text AS process_namespace,
       coalesce(f.process_id, '')::text AS process_id,
       coalesce(process.status::text, '')::text AS status,
       coalesce(waiting.waits_for::text, '')::text AS waits_for,
       coalesce(waiting.scheduled_time, 'epoch')::timestamptz AS scheduled_time,
       coalesce(waiting.attempt, 0)::int AS attempt,
       left(concat_ws(': ', waiting.failure->>'reason', NULLIF(waiting.failure->>'message', '')),
            1000)::text AS failure,
       coalesce(lease.worker_id, '')::text AS worker_id
  FROM flow_steps f
  LEFT JOIN LATERAL (
    SELECT p.status FROM processes p
     WHERE p.namespace = coalesce(f.process_namespace, f.namespace)
       AND p.process_id = f.process_id
       AND p.removed_time IS NULL
     LIMIT 1) process ON true
  LEFT JOIN LATERAL (
    SELECT s.waits_for, s.scheduled_time, s.attempt, s.failure
      FROM schedule s
     WHERE s.namespace = coalesce(f.process_namespace, f.namespace)
       AND s.process_id = f.process_id
       AND s.task_type = 'INIT'
     LIMIT 1) waiting ON true
  LEFT JOIN LATERAL (
    SELECT l.worker_id FROM leases l
     WHERE l.namespace = coalesce(f.process_namespace, f.namespace)
       AND l.process_id = f.process_id
     LIMIT 1) lease ON true
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND (f.status = 'running' OR f.compensation_status = 'running')
 ORDER BY f.token IS NULL,
          f.process_id IS NULL AND f.due_time IS NULL,
          f.ord, f.index LIMIT @lim::int;
