-- WriteJobs writes the ends of attempts to their jobs. It runs after SaveResult and applies only to
-- items whose task row this transaction has written: in tasks if it has ended, in schedule if it
-- will be retried. A fenced item writes nothing. kept: the result is stored for ttl_us. A job keeps
-- its newest 20 failures (process.MaxJobFailures). The oldest of them contains the number of
-- earlier ones, and how many of those were takeovers.
-- name: WriteJobs :exec
WITH i AS MATERIALIZED (
  SELECT x.* FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                             unnest(@attempts::int[]), unnest(@worker_ids::text[]), unnest(@takeovers::int[]), unnest(@failures::text[]), unnest(@results::bytea[]),
                             unnest(@kepts::bool[]), unnest(@ttls_us::bigint[]))
         AS x(namespace, process_id, task_id, fencing_token, attempt, worker_id, takeovers, failure, result, kept, ttl_us)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT 1 FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
        AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid
     LIMIT 1) e)
UPDATE jobs j SET
       updated_time = statement_timestamp(), worker_id = coalesce(NULLIF(i.worker_id, ''), j.worker_id), takeovers = j.takeovers + i.takeovers,
       failures = CASE WHEN i.failure = '' THEN j.failures ELSE
         CASE WHEN jsonb_array_length(j.failures) >= 20 THEN (
                SELECT jsonb_agg(CASE WHEN f.n = jsonb_array_length(j.failures) - 18
                         THEN f.failure || jsonb_build_object(
                                'omitted', jsonb_array_length(j.failures) - 19 + coalesce((j.failures->0->>'omitted')::int, 0),
                                'omittedTakeovers', coalesce((j.failures->0->>'omittedTakeovers')::int, 0) + (
                                  SELECT count(*) FROM jsonb_array_elements(j.failures) WITH ORDINALITY AS g(failure, n)
                                   WHERE g.n <= jsonb_array_length(j.failures) - 19
                                     AND (g.failure->>'takeover')::bool))
                         ELSE f.failure END ORDER BY f.n)
                  FROM jsonb_array_elements(j.failures) WITH ORDINALITY AS f(failure, n)
                 WHERE f.n > jsonb_array_length(j.failures) - 19)
              ELSE coalesce(j.failures, '[]') END
         || jsonb_build_array(jsonb_build_object('attempt', i.attempt, 'workerId', i.worker_id, 'time', statement_timestamp(),
              'takeover', i.takeovers > 0, 'failure', i.failure::jsonb)) END,
       result = CASE WHEN i.kept THEN i.result END,
       result_expires_time = CASE WHEN i.kept THEN statement_timestamp() + i.ttl_us * interval '1 microsecond' ELSE j.result_expires_time END
  FROM i WHERE j.namespace = ANY (ARRAY[i.namespace]) AND j.process_id = i.process_id;

-- CancelRetried sets jobs to CANCELLED whose attempt would be retried, or was released, although
-- their cancel was requested. It runs after SaveResult and selects its items like WriteJobs.
-- name: CancelRetried :exec
WITH i AS MATERIALIZED (
  SELECT s.*, x.mode, CASE WHEN s.waits_for <> 'time' THEN 'available' WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]), unnest(@modes::int[]))
         AS x(namespace, process_id, task_id, fencing_token, mode)
   CROSS JOIN LATERAL (SELECT s.* FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
                          AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid LIMIT 1) s
   CROSS JOIN LATERAL (SELECT p.cancel_deadline FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id LIMIT 1) p
   WHERE p.cancel_deadline IS NOT NULL),
ds AS (
  DELETE FROM schedule s USING i WHERE s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = i.process_id AND s.task_id = i.task_id),
up AS (
  UPDATE processes p SET status = 'CANCELLED', previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = 'CANCELLED', attention_time = statement_timestamp(), cancel_deadline = NULL, detail = NULL
    FROM i WHERE p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = i.process_id
  RETURNING p.namespace, (CASE p.previous_status WHEN 'INIT' THEN 'RUNNING' ELSE p.previous_status::text END)::process_status AS old_status, p.status AS new_status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, x.status, sum(x.n) FROM up CROSS JOIN LATERAL (VALUES (up.old_status, -1), (up.new_status, 1)) AS x(status, n)
   GROUP BY up.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY up.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, x.state, sum(x.n) FROM i m CROSS JOIN LATERAL (VALUES (m.state, -1), ('cancelled', 1)) AS x(state, n)
   GROUP BY m.namespace, m.job_name, x.state HAVING sum(x.n) <> 0 ORDER BY m.namespace, m.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status)
  SELECT i.namespace, i.process_id, 'cancelled', 'cancel_requested', 'cancelled' FROM i WHERE i.mode > 0)
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, scheduled_time,
                   finished_time, retry_interval, timer_name, idempotency_key, args, context, failure)
SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, priority, fencing_token, scheduled_time, statement_timestamp(),
       retry_interval, timer_name, idempotency_key, args, context, failure FROM i;

-- RetryJob runs a FAILED or CANCELLED job again, and with clear_successes a SUCCEEDED one, as a new
-- INIT task with the args of the last one and all attempts. A unique job takes its key again,
-- unless another job has it (see EnqueueJobs). It runs after LockProcesses and LockJobKeys.
-- outcome: changed, not_found (no job), status, held (by another job: holder).
-- name: RetryJob :one
WITH e AS MATERIALIZED (
  SELECT t.*, p.status, coalesce(p.kind = 'job', false) AS job, l.args, l.priority, h.process_id AS holder,
         coalesce(p.kind = 'job' AND (p.status IN ('ERROR', 'CANCELLED') OR t.clear_successes AND p.status = 'COMPLETED'), false) AND l.task_id IS NOT NULL AS ended
    FROM (SELECT @namespace::text AS namespace, @process_id::text AS process_id, @clear_successes::bool AS clear_successes,
                 @unique_key::text AS unique_key, @unique_ttl_us::bigint AS unique_ttl_us, @unique_waiting::bool AS unique_waiting) t
    LEFT JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)
    LEFT JOIN LATERAL (
      SELECT k.* FROM tasks k WHERE k.namespace = t.namespace AND k.process_id = t.process_id AND k.task_type = 'INIT'
       ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1) l ON true
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id AND p.removed_time IS NULL LIMIT 1) p ON true
       WHERE t.unique_key <> '' AND k.namespace = t.namespace AND k.unique_key = t.unique_key AND k.process_id <> t.process_id
         AND CASE WHEN p.status IS NULL THEN k.held_until > statement_timestamp()
                  WHEN p.status IN ('COMPLETED', 'CANCELLED', 'ERROR') THEN p.status_changed_time + k.ttl > statement_timestamp()
                  ELSE NOT t.unique_waiting OR (SELECT r.task_id FROM running r WHERE r.namespace = k.namespace AND r.process_id = k.process_id LIMIT 1) IS NULL
                       AND (SELECT s.task_id FROM schedule s WHERE s.namespace = k.namespace AND s.process_id = k.process_id AND s.taker = '~' AND s.attempt > 0 LIMIT 1) IS NULL END
       LIMIT 1) h ON true),
i AS MATERIALIZED (SELECT e.*, e.ended AND e.holder IS NULL AS again FROM e),
ke AS (
  UPDATE job_keys k SET process_id = i.process_id, ttl = i.unique_ttl_us * interval '1 microsecond', held_until = NULL
    FROM i WHERE i.again AND i.unique_key <> '' AND k.namespace = ANY (ARRAY[i.namespace]) AND k.unique_key = i.unique_key),
up AS (
  UPDATE processes p SET status = 'INIT', previous_status = p.status, status_changed_time = statement_timestamp(), attention = NULL, attention_time = NULL,
         detail = NULL, corrupted_by = NULL, cancel_requested_time = NULL, cancel_reason = NULL, cancel_deadline = NULL
    FROM i WHERE i.again AND p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = i.process_id
  RETURNING p.namespace, i.status AS old_status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, x.status, sum(x.n) FROM up CROSS JOIN LATERAL (VALUES (up.old_status, -1), ('RUNNING'::process_status, 1)) AS x(status, n)
   GROUP BY up.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY up.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jb AS (
  UPDATE jobs j SET takeovers = 0, failures = NULL, progress = NULL, worker_id = NULL, result = NULL, result_expires_time = NULL, updated_time = statement_timestamp()
    FROM i WHERE i.again AND j.namespace = ANY (ARRAY[i.namespace]) AND j.process_id = i.process_id
  RETURNING j.namespace, j.process_id, j.name, j.constraints_version, coalesce(j.options ? 'workers', false) AS grouped,
            CASE i.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'ERROR' THEN 'failed' ELSE 'cancelled' END AS state),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.name, x.state, sum(x.n) FROM jb m CROSS JOIN LATERAL (VALUES (m.state, -1), ('available', 1)) AS x(state, n)
   GROUP BY m.namespace, m.name, x.state HAVING sum(x.n) <> 0 ORDER BY m.namespace, m.name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor)
  SELECT jb.namespace, jb.process_id, 'retried', jb.state, 'available', NULLIF(@actor::text, '') FROM jb WHERE @mode::int = 2),
-- In a group, places whose worker has not succeeded are deleted, and with clear_successes all:
-- other members take them.
pl AS (
  DELETE FROM job_places l USING i WHERE i.again AND l.namespace = ANY (ARRAY[i.namespace]) AND l.job_id = i.process_id AND l.state IS NOT NULL
     AND (l.state <> 'succeeded' OR i.clear_successes)),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, args, job_name, line, taker)
  SELECT i.namespace, i.process_id, nextval('task_ids'), 'INIT', CASE WHEN b.constraints_version IS NULL THEN 'place' ELSE 'constraint' END::waits_for,
         i.priority, statement_timestamp(), i.args, b.name, CASE WHEN b.constraints_version IS NOT NULL THEN '' END, CASE WHEN b.grouped THEN '~' END
    FROM i CROSS JOIN jb b)
SELECT (CASE WHEN i.again THEN 'INIT' ELSE coalesce(i.status, 'INIT') END)::process_status AS status,
       (CASE WHEN i.again THEN 'changed' WHEN NOT i.job THEN 'not_found' WHEN i.ended THEN 'held' ELSE 'status' END)::text AS outcome,
       coalesce(i.holder, '')::text AS holder
  FROM i;

-- GetJobs returns jobs with their states: the INIT task is the newest one, in any table.
-- name: GetJobs :many
SELECT t.ord::int AS ord, p.namespace, p.process_id, p.status, p.metadata, p.created_time, p.status_changed_time, p.cancel_requested_time,
       coalesce(p.cancel_reason, '')::text AS cancel_reason, (p.cancel_deadline IS NOT NULL)::bool AS cancelling, j.name, j.timeout, j.updated_time,
       coalesce(l.worker_id, x.worker_id, j.worker_id, '')::text AS worker_id, j.tags, j.options, j.failures, j.progress,
       (CASE WHEN j.result_expires_time > statement_timestamp() THEN j.result END)::bytea AS result,
       coalesce(l.expires_time, 'epoch')::timestamptz AS lease_expires_time,
       coalesce(x.task_id, 0)::bigint AS task_id, coalesce(x.attempt, 0)::int AS attempt, coalesce(x.priority, 0)::int AS priority, coalesce(x.place, '')::text AS place,
       coalesce(x.waits_for::text, '')::text AS waits_for, coalesce(x.line, '')::text AS line, coalesce(x.taker = '~', false)::bool AS grouped, m.runs::jsonb AS runs, coalesce(x.scheduled_time, 'epoch')::timestamptz AS scheduled_time, x.running_time, x.finished_time, x.args
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS t(ord, namespace, process_id)
  JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL AND p.kind = 'job'
 CROSS JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.namespace = t.namespace AND j.process_id = t.process_id LIMIT 1) j
  LEFT JOIN LATERAL (
    SELECT u.* FROM (
      (SELECT s.task_id, s.attempt, s.priority, 'schedule' AS place, s.waits_for, s.line, s.taker, s.scheduled_time, NULL::timestamptz AS running_time, NULL::timestamptz AS finished_time, s.args, NULL::bigint AS fencing_token, NULL AS worker_id
        FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id AND s.task_type = 'INIT' LIMIT 1)
      UNION ALL
      (SELECT r.task_id, r.attempt, r.priority, 'running', NULL, NULL, NULL, r.scheduled_time, r.running_time, NULL, r.args, r.fencing_token, NULL
        FROM running r WHERE r.namespace = t.namespace AND r.process_id = t.process_id AND r.task_type = 'INIT' LIMIT 1)
      UNION ALL
      (SELECT k.task_id, k.attempt, k.priority, 'tasks', NULL, NULL, NULL, k.scheduled_time, k.running_time, k.finished_time, k.args, NULL, k.worker_id
        FROM tasks k WHERE k.namespace = t.namespace AND k.process_id = t.process_id AND k.task_type = 'INIT'
       ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1)) u
     ORDER BY u.task_id DESC LIMIT 1) x ON true
  LEFT JOIN LATERAL (SELECT l.worker_id, l.expires_time FROM leases l WHERE x.place = 'running' AND l.namespace = t.namespace AND l.process_id = t.process_id
                        AND l.fencing_token = x.fencing_token LIMIT 1) l ON true
  LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('workerId', coalesce(y.worker_id, ''), 'attempts', coalesce(NULLIF(y.attempts, 0), s.attempt, r.attempt, 0), 'runningTime', y.running_time,
             'finishedTime', y.finished_time, 'failure', coalesce(y.failure, s.failure), 'result', CASE WHEN y.result_bytes <= 8 * 1024 * 1024 THEN convert_from(y.result, 'UTF8') END, 'state', coalesce(y.state,
               CASE WHEN r.attempt IS NOT NULL THEN 'running' WHEN s.attempt > 0 AND y.worker_id IS NOT NULL THEN 'retryable' ELSE 'available' END))
             ORDER BY octet_length(y.process_id), y.process_id) AS runs
      FROM (SELECT y.*, sum(octet_length(y.result)) OVER (ORDER BY y.finished_time, y.process_id) AS result_bytes FROM job_places y
             WHERE j.options ? 'workers' AND y.namespace = t.namespace AND y.job_id = t.process_id) y
      LEFT JOIN LATERAL (SELECT s.attempt, s.failure FROM schedule s WHERE y.state IS NULL AND s.namespace = y.namespace AND s.process_id = y.process_id LIMIT 1) s ON true
      LEFT JOIN LATERAL (SELECT r.attempt FROM running r WHERE y.state IS NULL AND r.namespace = y.namespace AND r.process_id = y.process_id LIMIT 1) r ON true) m ON true;

-- FetchResult returns a kept result and deletes it, so a second call returns nothing.
-- name: FetchResult :one
UPDATE jobs j SET result = NULL, updated_time = statement_timestamp()
  FROM (SELECT k.namespace, k.process_id, k.result FROM jobs k WHERE k.namespace = @namespace AND k.process_id = @process_id
           AND k.result IS NOT NULL AND k.result_expires_time > statement_timestamp() FOR UPDATE) o
 WHERE j.namespace = o.namespace AND j.process_id = o.process_id
RETURNING o.result;

-- UpdateJob changes options of a job that has not ended. Options of its waiting task change at
-- once. A change of data that constraints use causes another evaluation, by the claim if the job
-- waits for a slot. It runs after LockProcesses. Nothing changes if run_time is set for a running
-- job, or for a group with members, because no task would wait for that time. open: it has not
-- ended.
-- name: UpdateJob :one
WITH i AS MATERIALIZED (
  SELECT p.namespace, p.process_id, p.status, a.* FROM processes p
   CROSS JOIN (SELECT @timeout_us::bigint AS timeout_us, @tags::text AS tags, @options::text AS options, @sets_metadata::bool AS sets_metadata, @metadata::text AS metadata,
                      @sets_priority::bool AS sets_priority, @priority::int AS priority, @sets_run_time::bool AS sets_run_time, @run_time::timestamptz AS run_time) a
   WHERE p.namespace = @namespace::text AND p.process_id = @process_id::text AND p.removed_time IS NULL AND p.kind = 'job'),
ok AS MATERIALIZED (
  SELECT i.*, w.job_name, w.state, CASE WHEN w.state IS NULL OR NOT i.sets_run_time OR w.waits_for NOT IN ('time', 'place', 'constraint') THEN w.state
           WHEN i.run_time <= statement_timestamp() THEN 'available' WHEN w.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS new_state
    FROM i LEFT JOIN LATERAL (
      SELECT s.job_name, s.waits_for, s.attempt, coalesce(s.taker = '~' AND s.attempt > 0, false) AS begun, CASE WHEN s.waits_for <> 'time' THEN 'available' WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state FROM schedule s
       WHERE s.namespace = i.namespace AND s.process_id = i.process_id AND s.task_type = 'INIT' LIMIT 1) w ON true
   WHERE i.status IN ('INIT', 'SUSPENDED') AND NOT (i.sets_run_time AND coalesce(w.begun, true))),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, x.state, sum(x.n) FROM ok m CROSS JOIN LATERAL (VALUES (m.state, -1), (m.new_state, 1)) AS x(state, n)
   WHERE m.state <> m.new_state GROUP BY m.namespace, m.job_name, x.state HAVING sum(x.n) <> 0 ORDER BY m.namespace, m.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor, metadata)
  SELECT ok.namespace, ok.process_id, 'updated', CASE WHEN ok.state <> ok.new_state THEN ok.state END, CASE WHEN ok.state <> ok.new_state THEN ok.new_state END,
         NULLIF(@actor::text, ''), jsonb_build_object('options', to_jsonb(@fields::text[])) FROM ok WHERE @mode::int = 2),
jb AS (
  UPDATE jobs j SET timeout = ok.timeout_us * interval '1 microsecond', tags = NULLIF(ok.tags, '')::jsonb, options = NULLIF(ok.options, '')::jsonb,
         updated_time = statement_timestamp(), constraints_version = CASE WHEN j.constraints_version IS NOT NULL THEN -1 END
    FROM ok WHERE j.namespace = ok.namespace AND j.process_id = ok.process_id),
pr AS (
  UPDATE processes p SET metadata = NULLIF(ok.metadata, '')::jsonb FROM ok WHERE ok.sets_metadata AND p.namespace = ok.namespace AND p.process_id = ok.process_id),
sc AS (
  UPDATE schedule s SET priority = CASE WHEN ok.sets_priority THEN ok.priority ELSE s.priority END,
         scheduled_time = CASE WHEN ok.sets_run_time THEN greatest(ok.run_time, statement_timestamp()) ELSE s.scheduled_time END,
         waits_for = CASE WHEN ok.sets_run_time AND s.waits_for IN ('time', 'place', 'constraint')
                          THEN CASE WHEN ok.run_time > statement_timestamp() THEN 'time' WHEN s.line IS NOT NULL THEN 'constraint' ELSE 'place' END::waits_for
                          WHEN s.waits_for = 'members' THEN 'place' ELSE s.waits_for END,
         line = CASE WHEN s.line IS NOT NULL THEN '' END
    FROM ok WHERE s.namespace = ok.namespace AND s.process_id = ok.process_id AND s.task_type = 'INIT'),
ru AS (
  UPDATE running r SET priority = ok.priority FROM ok WHERE ok.sets_priority AND r.namespace = ok.namespace AND r.process_id = ok.process_id),
-- The change also applies to the open members of a group.
mb AS MATERIALIZED (
  SELECT l.namespace, l.process_id, ok.timeout_us, ok.tags, ok.options, ok.sets_priority, ok.priority FROM ok JOIN job_places l ON l.namespace = ok.namespace AND l.job_id = ok.process_id WHERE l.state IS NULL),
mj AS (
  UPDATE jobs j SET timeout = mb.timeout_us * interval '1 microsecond', tags = NULLIF(mb.tags, '')::jsonb, options = NULLIF(mb.options, '')::jsonb - 'workers' - 'unique',
         updated_time = statement_timestamp(), constraints_version = CASE WHEN j.constraints_version IS NOT NULL THEN -1 END
    FROM mb WHERE j.namespace = mb.namespace AND j.process_id = mb.process_id),
ms AS (
  UPDATE schedule s SET priority = mb.priority FROM mb WHERE mb.sets_priority AND s.namespace = mb.namespace AND s.process_id = mb.process_id AND s.task_type = 'INIT')
SELECT i.status, (i.status IN ('INIT', 'SUSPENDED'))::bool AS open, EXISTS (SELECT 1 FROM ok)::bool AS changed FROM i;

-- ForgetResults deletes results that were not fetched in time.
-- name: ForgetResults :execrows
UPDATE jobs j SET result = NULL FROM (
  SELECT k.namespace, k.process_id FROM jobs k WHERE k.result IS NOT NULL AND k.result_expires_time < statement_timestamp()
   ORDER BY k.result_expires_time LIMIT @lim::int FOR UPDATE SKIP LOCKED) x
 WHERE j.namespace = x.namespace AND j.process_id = x.process_id;

-- ForgetJobKeys deletes unique keys whose job is gone and that it does not hold any more.
-- name: ForgetJobKeys :execrows
DELETE FROM job_keys k WHERE (k.namespace, k.unique_key) IN (
  SELECT x.namespace, x.unique_key FROM job_keys x
   WHERE NOT EXISTS (SELECT 1 FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id AND p.removed_time IS NULL)
     AND (x.held_until > statement_timestamp()) IS NOT TRUE
   ORDER BY x.namespace, x.unique_key LIMIT @lim::int FOR UPDATE SKIP LOCKED);
