-- InsertRuns stores runs with the first results of their processes. It runs after SaveResult and
-- applies only to items whose task end this transaction has written: a fenced item writes nothing.
-- name: InsertRuns :exec
INSERT INTO flow_runs (namespace, run_id, template_type, template_version, status, attempt, running_time, finished_time, blocked_on, run_time, fire_time, scope, scope_id,
                       dedupe_key, cron_id, parent_run_id, repeat_of_run_id, payload, result, failure)
SELECT x.namespace, x.run_id, x.template_type, x.template_version, x.status::flow_status, x.attempt, CASE WHEN x.attempt > 0 THEN statement_timestamp() END,
       CASE WHEN x.status IN ('succeeded', 'failed', 'cancelled', 'expired') THEN statement_timestamp() END, NULLIF(x.blocked_on, ''),
       NULLIF(x.run_time, '0001-01-01Z'), NULLIF(x.fire_time, '0001-01-01Z'), x.scope, x.scope_id, NULLIF(x.dedupe_key, ''), NULLIF(x.cron_id, ''), NULLIF(x.parent_run_id, ''),
       NULLIF(x.repeat_of_run_id, ''), NULLIF(x.payload, '')::jsonb, NULLIF(x.result, '')::jsonb, NULLIF(x.failure, '')::jsonb
  FROM (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
               unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id, unnest(@template_types::text[]) AS template_type,
               unnest(@template_versions::int[]) AS template_version, unnest(@statuses::text[]) AS status, unnest(@attempts::int[]) AS attempt,
               unnest(@blocked_ons::text[]) AS blocked_on, unnest(@run_times::timestamptz[]) AS run_time, unnest(@fire_times::timestamptz[]) AS fire_time,
               unnest(@scopes::text[]) AS scope, unnest(@scope_ids::text[]) AS scope_id, unnest(@dedupe_keys::text[]) AS dedupe_key, unnest(@cron_ids::text[]) AS cron_id,
               unnest(@parent_run_ids::text[]) AS parent_run_id, unnest(@repeat_of_run_ids::text[]) AS repeat_of_run_id, unnest(@payloads::text[]) AS payload,
               unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure) AS x
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
      AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) e
ON CONFLICT DO NOTHING;

-- UpdateRuns writes changes of runs. It runs after SaveResult and selects its items like
-- InsertRuns. template_version 0: unchanged.
-- name: UpdateRuns :exec
WITH i AS MATERIALIZED (
  SELECT x.*
    FROM (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
                 unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id, unnest(@statuses::text[]) AS status,
                 unnest(@attempts::int[]) AS attempt, unnest(@blocked_ons::text[]) AS blocked_on, unnest(@template_versions::int[]) AS template_version,
                 unnest(@cancel_reasons::text[]) AS cancel_reason, unnest(@cancels::bool[]) AS cancels, unnest(@results::text[]) AS result,
                 unnest(@failures::text[]) AS failure) AS x
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) e)
UPDATE flow_runs r SET
       status = i.status::flow_status, template_version = coalesce(NULLIF(i.template_version, 0), r.template_version), attempt = i.attempt, blocked_on = NULLIF(i.blocked_on, ''), updated_time = statement_timestamp(),
       running_time = CASE WHEN i.attempt > 0 THEN coalesce(r.running_time, statement_timestamp()) ELSE r.running_time END,
       finished_time = CASE WHEN i.status IN ('succeeded', 'failed', 'cancelled', 'expired') THEN statement_timestamp() END,
       cancel_requested_time = CASE WHEN i.cancels THEN coalesce(r.cancel_requested_time, statement_timestamp()) END,
       cancel_reason = CASE WHEN i.cancels THEN coalesce(NULLIF(i.cancel_reason, ''), r.cancel_reason) END,
       result = NULLIF(i.result, '')::jsonb, failure = NULLIF(i.failure, '')::jsonb
  FROM i WHERE r.namespace = ANY (ARRAY[i.namespace]) AND r.run_id = i.run_id;

-- DropItems deletes the rows of the items of steps that start again, which belong to an earlier
-- round. Kept items stay, and move to a new index if it has changed. It runs before WriteSteps and
-- selects its tasks like InsertRuns. All rows are deleted before the insert, because the insert
-- sorts its input.
-- name: DropItems :exec
WITH kept AS MATERIALIZED (
  SELECT unnest(@kept_namespaces::text[]) AS namespace, unnest(@kept_run_ids::text[]) AS run_id, unnest(@kept_step_ids::text[]) AS step_id,
         unnest(@old_indexes::int[]) AS old_index, unnest(@new_indexes::int[]) AS new_index),
removed AS (
  DELETE FROM flow_steps f
   USING (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
               unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id, unnest(@step_ids::text[]) AS step_id) AS x
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
      AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) e
 WHERE f.namespace = ANY (ARRAY[x.namespace]) AND f.run_id = x.run_id AND f.step_id = x.step_id AND f.index >= 0
   AND NOT EXISTS (SELECT 1 FROM kept k WHERE k.namespace = f.namespace AND k.run_id = f.run_id AND k.step_id = f.step_id
                      AND k.old_index = f.index AND k.new_index = f.index)
  RETURNING f.*)
INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, compensation_status, attempt, running_time, finished_time, due_time,
                        process_id, process_namespace, token, worker_id, reason, input, result, failure, wait, progress, item_hash)
SELECT r.namespace, r.run_id, r.step_id, k.new_index, r.ord, r.status, r.compensation_status, r.attempt, r.running_time, r.finished_time, r.due_time,
       r.process_id, r.process_namespace, r.token, r.worker_id, r.reason, r.input, r.result, r.failure, r.wait, r.progress, r.item_hash
  FROM removed r JOIN kept k ON k.namespace = r.namespace AND k.run_id = r.run_id AND k.step_id = r.step_id AND k.old_index = r.index
 ORDER BY k.new_index;

-- WriteSteps writes changes of the steps of runs. It runs after SaveResult and selects its items
-- like InsertRuns, each attempt once, because a run has several steps. A result contains at most
-- one row per step or item. begins: it starts, once more; ends: it has ended. A compensated step
-- keeps how it ended; one that succeeds in the round in which its compensation starts is not yet
-- stored as ended.
-- name: WriteSteps :exec
WITH a AS MATERIALIZED (
  SELECT x.ord
    FROM (SELECT unnest(@checks::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
                 unnest(@fencing_tokens::bigint[]) AS fencing_token) AS x
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) e)
INSERT INTO flow_steps AS f (namespace, run_id, step_id, index, ord, status, compensation_status, attempt, running_time, finished_time, due_time, process_id,
                             process_namespace, token, worker_id, reason, input, result, failure, wait, item_hash)
SELECT x.namespace, x.run_id, x.step_id, x.index, x.ord, x.status::step_status, NULLIF(x.compensation_status, '')::step_status, x.begins::int,
       CASE WHEN x.begins THEN statement_timestamp() END, CASE WHEN x.status NOT IN ('pending', 'running') THEN statement_timestamp() END, NULLIF(x.due_time, '0001-01-01Z'),
       NULLIF(x.does, ''), NULLIF(x.does_in, ''), NULLIF(x.token, ''), NULLIF(x.worker_id, ''), NULLIF(x.reason, ''), NULLIF(x.input, '')::jsonb, NULLIF(x.result, '')::jsonb,
       NULLIF(x.failure, '')::jsonb, NULLIF(x.wait, '')::jsonb, CASE WHEN x.index >= 0 THEN x.item_hash END
  FROM (SELECT unnest(@attempt_ords::int[]) AS attempt_ord, unnest(@run_namespaces::text[]) AS namespace, unnest(@run_ids::text[]) AS run_id, unnest(@step_ids::text[]) AS step_id,
               unnest(@indexes::int[]) AS index, unnest(@ords::int[]) AS ord, unnest(@statuses::text[]) AS status, unnest(@compensation_statuses::text[]) AS compensation_status,
               unnest(@begins::bool[]) AS begins, unnest(@due_times::timestamptz[]) AS due_time, unnest(@does::text[]) AS does, unnest(@does_in::text[]) AS does_in,
               unnest(@tokens::text[]) AS token, unnest(@worker_ids::text[]) AS worker_id, unnest(@reasons::text[]) AS reason, unnest(@inputs::text[]) AS input,
               unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure, unnest(@waits::text[]) AS wait,
               unnest(@item_hashes::bigint[]) AS item_hash) AS x
 WHERE (x.attempt_ord IN (SELECT a.ord FROM a)) IS TRUE
ON CONFLICT (namespace, run_id, step_id, index) DO UPDATE SET
   status = CASE WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running') THEN excluded.status ELSE f.status END,
   compensation_status = excluded.compensation_status,
   attempt = f.attempt + excluded.attempt,
   running_time = CASE WHEN excluded.status <> 'pending' OR excluded.compensation_status IS NOT NULL THEN coalesce(excluded.running_time, f.running_time) END,
   finished_time = CASE WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running') THEN excluded.finished_time ELSE f.finished_time END,
   due_time = CASE WHEN excluded.attempt > 0 THEN excluded.due_time ELSE f.due_time END,
   process_id = CASE WHEN excluded.attempt > 0 THEN excluded.process_id ELSE f.process_id END,
   process_namespace = CASE WHEN excluded.attempt > 0 THEN excluded.process_namespace ELSE f.process_namespace END,
   token = excluded.token,
   worker_id = coalesce(excluded.worker_id, f.worker_id),
   reason = CASE WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running') THEN excluded.reason ELSE f.reason END,
   input = CASE WHEN excluded.attempt > 0 THEN excluded.input ELSE f.input END,
   result = CASE WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running') THEN excluded.result ELSE f.result END,
   failure = CASE WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running') THEN excluded.failure ELSE f.failure END,
   wait = CASE WHEN excluded.attempt > 0 THEN excluded.wait ELSE f.wait END,
   progress = CASE WHEN excluded.attempt > 0 THEN NULL ELSE f.progress END,
   item_hash = CASE WHEN excluded.attempt > 0 THEN excluded.item_hash ELSE f.item_hash END;

-- ReportSteps stores the reported progress of open waits. It runs after SaveResult and selects its
-- items like InsertRuns.
-- name: ReportSteps :exec
UPDATE flow_steps f SET progress = coalesce(NULLIF(x.progress, '')::jsonb, f.progress), due_time = coalesce(NULLIF(x.due_time, '0001-01-01Z'), f.due_time)
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@run_ids::text[]), unnest(@step_ids::text[]), unnest(@indexes::int[]), unnest(@progresses::text[]), unnest(@due_times::timestamptz[]))
       AS x(namespace, process_id, task_id, fencing_token, run_id, step_id, index, progress, due_time)
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
      AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) e
 WHERE f.namespace = ANY (ARRAY[x.namespace]) AND f.run_id = x.run_id AND f.step_id = x.step_id AND f.index = x.index AND (f.token IS NOT NULL)::int = 1;

-- GetRun returns a run.
-- name: GetRun :one
SELECT r.namespace, r.run_id, r.template_type, r.template_version, r.status, r.attempt, r.created_time, r.updated_time, r.running_time, r.finished_time,
       r.cancel_requested_time, r.run_time, r.fire_time, r.scope, r.scope_id, coalesce(r.dedupe_key, '')::text AS dedupe_key, coalesce(r.blocked_on, '')::text AS blocked_on,
       coalesce(r.cancel_reason, '')::text AS cancel_reason, coalesce(r.cron_id, '')::text AS cron_id, coalesce(r.parent_run_id, '')::text AS parent_run_id,
       coalesce(r.repeat_of_run_id, '')::text AS repeat_of_run_id, r.payload, r.result, r.failure, p.metadata, p.status AS process_status, p.aux_state
  FROM flow_runs r JOIN processes p ON p.namespace = r.namespace AND p.process_id = '~flow/' || r.run_id AND p.removed_time IS NULL
 WHERE r.namespace = @namespace AND r.run_id = @run_id;

-- ListSteps returns steps of a run in order, with their jobs. step_id '': all; only_steps: no
-- items. It returns steps until their values (input, result, failure, progress) exceed max_bytes,
-- including the one that exceeds it. all_steps: it returns the steps after that, too, without input
-- and result, with a short failure and only the percent of the progress.
-- name: ListSteps :many
SELECT f.step_id, f.index, f.ord, f.status, coalesce(f.compensation_status::text, '')::text AS compensation_status, f.attempt, f.running_time, f.finished_time, f.due_time,
       coalesce(f.process_namespace, f.namespace)::text AS process_namespace, coalesce(f.process_id, '')::text AS process_id, coalesce(f.token, '')::text AS token,
       coalesce(l.worker_id, f.worker_id, f.job_worker_id, '')::text AS worker_id, coalesce(f.reason, '')::text AS reason,
       (CASE WHEN f.bytes_before < @max_bytes::bigint THEN f.input END)::jsonb AS input,
       (CASE WHEN f.bytes_before < @max_bytes THEN f.result END)::jsonb AS result,
       (CASE WHEN f.bytes_before < @max_bytes OR f.failure IS NULL THEN f.failure
             ELSE jsonb_build_object('reason', left(coalesce(f.failure->>'reason', ''), 256),
                                     'message', left(coalesce(f.failure->>'message', ''), 1000)) END)::jsonb AS failure,
       (CASE WHEN f.bytes_before < @max_bytes OR f.newest_progress IS NULL THEN f.newest_progress
             ELSE jsonb_build_object('percent', coalesce(f.newest_progress->'percent', '0')) END)::jsonb AS progress,
       (f.bytes_before >= @max_bytes)::bool AS values_omitted, f.bytes::bigint AS bytes,
       coalesce(l.expires_time, 'epoch')::timestamptz AS lease_expires_time, (u.task_id IS NOT NULL)::bool AS held
  FROM (
    SELECT v.*, sum(v.bytes) OVER (ORDER BY v.ord, v.index ROWS UNBOUNDED PRECEDING) - v.bytes AS bytes_before
      FROM (
        SELECT w.*, j.worker_id AS job_worker_id, coalesce(CASE WHEN w.status = 'running' THEN j.progress END, w.progress) AS newest_progress,
               coalesce(octet_length(w.input::text), 0) + coalesce(octet_length(w.result::text), 0) + coalesce(octet_length(w.failure::text), 0)
               + coalesce(octet_length(coalesce(CASE WHEN w.status = 'running' THEN j.progress END, w.progress)::text), 0) AS bytes
          FROM (
            SELECT s.* FROM flow_steps s
             WHERE s.namespace = @namespace AND s.run_id = @run_id AND (@step_id::text = '' OR s.step_id = @step_id)
               AND (NOT @only_steps::bool OR s.index = -1)
               AND (s.ord, s.index) > (@after_ord::int, @after_index::int)
             ORDER BY s.ord, s.index LIMIT @lim::int) w
          LEFT JOIN LATERAL (
            SELECT k.worker_id, k.progress FROM jobs k
             WHERE w.status <> 'pending' AND k.namespace = coalesce(w.process_namespace, w.namespace) AND k.process_id = w.process_id
             LIMIT 1) j ON true) v) f
  LEFT JOIN LATERAL (SELECT k.task_id, k.fencing_token FROM running k WHERE f.status = 'running' AND k.namespace = coalesce(f.process_namespace, f.namespace) AND k.process_id = f.process_id LIMIT 1) u ON true
  LEFT JOIN LATERAL (SELECT k.worker_id, k.expires_time FROM leases k WHERE k.namespace = coalesce(f.process_namespace, f.namespace) AND k.process_id = f.process_id AND k.fencing_token = u.fencing_token LIMIT 1) l ON true
 WHERE f.bytes_before < @max_bytes OR @all_steps::bool
 ORDER BY f.ord, f.index;

-- CountItems counts the items of the steps of a run by their status.
-- name: CountItems :many
SELECT f.step_id, f.status, count(*) AS n FROM flow_steps f
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.index >= 0 GROUP BY f.step_id, f.status ORDER BY 1, 2;

-- ReadSteps returns the data of steps for expressions.
-- name: ReadSteps :many
SELECT f.step_id, f.status, f.result, f.failure FROM flow_steps f
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.step_id = ANY (@step_ids::text[]) AND f.index = -1;

-- ReadItems returns the items of a step; results: with their results.
-- name: ReadItems :many
SELECT f.index, f.status, f.item_hash, coalesce(CASE WHEN @results::bool THEN f.result END, 'null')::jsonb AS result FROM flow_steps f
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.step_id = @step_id AND f.index >= 0 ORDER BY f.namespace, f.run_id, f.step_id, f.index;

-- ReadFirstFailed returns the failure of the first failed item of a step.
-- name: ReadFirstFailed :one
SELECT f.index, f.failure FROM flow_steps f
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.step_id = @step_id AND f.index >= 0 AND f.status = 'failed' AND f.failure IS NOT NULL
 ORDER BY f.namespace, f.run_id, f.step_id, f.index LIMIT 1;

-- ReadFailedJobs returns the jobs of failed steps and items of a run that are in ERROR.
-- name: ReadFailedJobs :many
SELECT f.step_id, coalesce(f.process_namespace, f.namespace)::text AS process_namespace, f.process_id::text AS process_id FROM flow_steps f
 CROSS JOIN LATERAL (SELECT p.status FROM processes p WHERE p.namespace = coalesce(f.process_namespace, f.namespace) AND p.process_id = f.process_id AND p.removed_time IS NULL LIMIT 1) p
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.status = 'failed' AND starts_with(f.process_id, '~job/') AND p.status = 'ERROR' ORDER BY f.ord, f.index;

-- ReadDueItems returns the open items of a step with the times at which they are due, the earliest
-- first, at most lim: waits and delays at due_time, processes and runs timeout_us after they began.
-- timeout_us 0: none.
-- name: ReadDueItems :many
SELECT x.index, x.due::timestamptz AS due
  FROM (SELECT f.index, coalesce(f.due_time, CASE WHEN f.process_id IS NOT NULL THEN f.running_time END
                                 + NULLIF(@timeout_us::bigint, 0) * interval '1 microsecond') AS due
          FROM flow_steps f
         WHERE f.namespace = @namespace
           AND f.run_id = @run_id
           AND f.step_id = @step_id
           AND f.index >= 0
           AND f.status = 'running') x
 WHERE x.due IS NOT NULL
 ORDER BY x.due, x.index LIMIT @lim::int;

-- ReadRunJobs returns the jobs of a run, at most lim of those in its namespace, which have its id
-- in theirs, and at most lim of its steps' jobs in other namespaces.
-- name: ReadRunJobs :many
(SELECT p.namespace, p.process_id
   FROM processes p
  WHERE p.namespace = @namespace::text
    AND p.process_id > '~job/' || @run_id::text || '/'
    AND p.process_id < '~job/' || @run_id::text || '0'
    AND strpos(substr(p.process_id, length(@run_id::text) + 7), '/') = 0
    AND p.removed_time IS NULL
  LIMIT @lim::int)
UNION ALL
(SELECT f.process_namespace::text, f.process_id::text
   FROM flow_steps f
  WHERE f.namespace = @namespace::text
    AND f.run_id = @run_id::text
    AND f.process_namespace IS NOT NULL
    AND starts_with(f.process_id, '~job/')
    AND EXISTS (
      SELECT 1 FROM processes p
       WHERE p.namespace = f.process_namespace AND p.process_id = f.process_id AND p.removed_time IS NULL)
  LIMIT @lim::int);

-- ReadSuspended returns the processes of open steps, and of their items, that are SUSPENDED, at
-- most lim.
-- name: ReadSuspended :many
SELECT coalesce(f.process_namespace, f.namespace)::text AS namespace, f.process_id::text AS process_id
  FROM flow_steps f
 CROSS JOIN LATERAL (
   SELECT p.status FROM processes p
    WHERE p.namespace = coalesce(f.process_namespace, f.namespace) AND p.process_id = f.process_id AND p.removed_time IS NULL
    LIMIT 1) p
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = ANY (@step_ids::text[])
   AND f.status = 'running'
   AND p.status = 'SUSPENDED'
 ORDER BY f.ord, f.index LIMIT @lim::int;

-- GetWait returns a wait, to check a response. An ended wait has a result or a failure.
-- name: GetWait :one
SELECT f.status, coalesce(f.token, '')::text AS token, f.due_time, f.result, f.failure, f.wait FROM flow_steps f
 WHERE f.namespace = @namespace AND f.run_id = @run_id AND f.step_id = @step_id AND f.index = @index;

-- ReopenRuns reopens ended runs that did not succeed: the process becomes RUNNING for the following
-- command; if that never arrives, its timer ends it again. It runs after LockProcesses and returns
-- the reopened runs.
-- name: ReopenRuns :many
WITH i AS MATERIALIZED (
  SELECT p.namespace, p.process_id, p.status FROM processes p JOIN flow_runs r ON r.namespace = p.namespace AND r.run_id = substr(p.process_id, 7)
   WHERE p.namespace = @namespace::text AND p.process_id = @process_id::text AND p.removed_time IS NULL AND p.kind = 'flow' AND p.status IN ('COMPLETED', 'CANCELLED')
     AND r.status IN ('failed', 'cancelled', 'expired')),
up AS (
  UPDATE processes p SET status = 'RUNNING', previous_status = p.status, status_changed_time = statement_timestamp(), attention = NULL, attention_time = NULL,
         detail = NULL, cancel_requested_time = NULL, cancel_reason = NULL, cancel_deadline = NULL
    FROM i WHERE p.namespace = i.namespace AND p.process_id = i.process_id),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT i.namespace, x.status, sum(x.n) FROM i CROSS JOIN LATERAL (VALUES (i.status, -1), ('RUNNING'::process_status, 1)) AS x(status, n)
   GROUP BY i.namespace, x.status ORDER BY i.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n)
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
SELECT i.namespace, i.process_id, nextval('task_ids'), 'TIMEOUT', 'time', statement_timestamp() + interval '1 minute', '' FROM i
RETURNING namespace, process_id;

-- ReadRuns returns runs of a list in the order of their ids.
-- name: ReadRuns :many
SELECT r.namespace, r.run_id, r.template_type, r.template_version, r.status, r.attempt, r.created_time, r.updated_time, r.running_time, r.finished_time,
       r.cancel_requested_time, r.run_time, r.fire_time, r.scope, r.scope_id, coalesce(r.dedupe_key, '')::text AS dedupe_key, coalesce(r.blocked_on, '')::text AS blocked_on,
       coalesce(r.cancel_reason, '')::text AS cancel_reason, coalesce(r.cron_id, '')::text AS cron_id, coalesce(r.parent_run_id, '')::text AS parent_run_id,
       coalesce(r.repeat_of_run_id, '')::text AS repeat_of_run_id, r.payload, r.result, r.failure, p.metadata, p.status AS process_status, p.aux_state
  FROM unnest(@run_ids::text[]) WITH ORDINALITY AS k(id, n)
 CROSS JOIN LATERAL (SELECT * FROM flow_runs x WHERE x.namespace = @namespace AND x.run_id = k.id LIMIT 1) r
 CROSS JOIN LATERAL (SELECT * FROM processes y WHERE y.namespace = @namespace AND y.process_id = '~flow/' || k.id LIMIT 1) p
 ORDER BY k.n;

-- ReadStatuses returns the statuses of the steps of runs, without items, with their jobs.
-- name: ReadStatuses :many
SELECT f.run_id, f.step_id, f.status, f.running_time,        coalesce(l.worker_id, f.worker_id, j.worker_id, '')::text AS worker_id, coalesce(j.progress, f.progress) AS progress,
       coalesce(l.expires_time, 'epoch')::timestamptz AS lease_expires_time, coalesce(f.status = 'running' AND u.task_id IS NULL AND starts_with(f.process_id, '~job/'), false)::bool AS queued
  FROM unnest(@run_ids::text[]) AS k(id)
 CROSS JOIN LATERAL (SELECT * FROM flow_steps x WHERE x.namespace = @namespace AND x.run_id = k.id AND x.index = -1 OFFSET 0) f
  LEFT JOIN LATERAL (SELECT y.worker_id, y.progress FROM jobs y WHERE f.status = 'running' AND y.namespace = coalesce(f.process_namespace, f.namespace) AND y.process_id = f.process_id LIMIT 1) j ON true
  LEFT JOIN LATERAL (SELECT y.task_id, y.fencing_token FROM running y WHERE f.status = 'running' AND y.namespace = coalesce(f.process_namespace, f.namespace) AND y.process_id = f.process_id LIMIT 1) u ON true
  LEFT JOIN LATERAL (SELECT y.worker_id, y.expires_time FROM leases y WHERE y.namespace = coalesce(f.process_namespace, f.namespace) AND y.process_id = f.process_id AND y.fencing_token = u.fencing_token LIMIT 1) l ON true;

-- ReadWaits returns open waits in the order of their keys.
-- name: ReadWaits :many
SELECT f.run_id, f.step_id, f.index, coalesce(f.token, '')::text AS token, coalesce(f.input, r.payload) AS input, f.wait, f.running_time, f.due_time,
       (r.status = 'cancel_requested')::bool AS cancel_requested
  FROM ROWS FROM (unnest(@run_ids::text[]), unnest(@step_ids::text[]), unnest(@indexes::int[])) WITH ORDINALITY AS k(run_id, step_id, index, n)
 CROSS JOIN LATERAL (SELECT * FROM flow_steps x WHERE x.namespace = @namespace AND x.run_id = k.run_id AND x.step_id = k.step_id AND x.index = k.index LIMIT 1) f
 CROSS JOIN LATERAL (SELECT y.status, y.payload FROM flow_runs y WHERE y.namespace = @namespace AND y.run_id = k.run_id LIMIT 1) r
 ORDER BY k.n;
