-- InsertRuns stores runs with the first results of their processes. It runs after SaveResult and
-- ignores an item if this transaction has not written the end of its task. So a fenced item writes
-- nothing.
-- name: InsertRuns :exec
INSERT INTO flow_runs (namespace, run_id, template_type, template_version, status, attempt,
                       running_time, finished_time, blocked_on, run_time, fire_time, scope,
                       scope_id, dedupe_key, cron_id, parent_run_id, repeat_of_run_id, payload,
                       result, failure)
SELECT item.namespace, item.run_id, item.template_type, item.template_version,
       item.status::flow_status, item.attempt,
       NULLIF(item.started_time, '0001-01-01Z'),
       CASE
         WHEN item.status IN ('succeeded', 'failed', 'cancelled', 'expired')
           THEN statement_timestamp()
       END,
       NULLIF(item.blocked_on, ''), NULLIF(item.run_time, '0001-01-01Z'),
       NULLIF(item.fire_time, '0001-01-01Z'), item.scope, item.scope_id,
       NULLIF(item.dedupe_key, ''), NULLIF(item.cron_id, ''), NULLIF(item.parent_run_id, ''),
       NULLIF(item.repeat_of_run_id, ''), NULLIF(item.payload, '')::jsonb,
       NULLIF(item.result, '')::jsonb, NULLIF(item.failure, '')::jsonb
  FROM (
    SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
           unnest(@task_ids::bigint[]) AS task_id,
           unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id,
           unnest(@template_types::text[]) AS template_type,
           unnest(@template_versions::int[]) AS template_version,
           unnest(@statuses::text[]) AS status, unnest(@attempts::int[]) AS attempt,
           unnest(@started_times::timestamptz[]) AS started_time,
           unnest(@blocked_ons::text[]) AS blocked_on,
           unnest(@run_times::timestamptz[]) AS run_time,
           unnest(@fire_times::timestamptz[]) AS fire_time, unnest(@scopes::text[]) AS scope,
           unnest(@scope_ids::text[]) AS scope_id, unnest(@dedupe_keys::text[]) AS dedupe_key,
           unnest(@cron_ids::text[]) AS cron_id, unnest(@parent_run_ids::text[]) AS parent_run_id,
           unnest(@repeat_of_run_ids::text[]) AS repeat_of_run_id,
           unnest(@payloads::text[]) AS payload, unnest(@results::text[]) AS result,
           unnest(@failures::text[]) AS failure) AS item
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t
    WHERE t.namespace = item.namespace
      AND t.process_id = item.process_id
      AND t.task_id = item.task_id
      AND t.fencing_token = item.fencing_token
      AND is_saved(item.fencing_token)
    LIMIT 1) ended
ON CONFLICT DO NOTHING;

-- UpdateRuns stores changes of runs. It runs after SaveResult and selects its items like
-- InsertRuns. If template_version is 0, the version does not change.
-- name: UpdateRuns :exec
WITH input AS MATERIALIZED (
  SELECT item.* FROM (
    SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
           unnest(@task_ids::bigint[]) AS task_id,
           unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id,
           unnest(@statuses::text[]) AS status, unnest(@attempts::int[]) AS attempt,
           unnest(@started_times::timestamptz[]) AS started_time,
           unnest(@blocked_ons::text[]) AS blocked_on,
           unnest(@template_versions::int[]) AS template_version,
           unnest(@cancel_reasons::text[]) AS cancel_reason, unnest(@cancels::bool[]) AS cancels,
           unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure) AS item
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended)
UPDATE flow_runs r
   SET status = input.status::flow_status,
       template_version = coalesce(NULLIF(input.template_version, 0), r.template_version),
       attempt = input.attempt, blocked_on = NULLIF(input.blocked_on, ''),
       updated_time = statement_timestamp(),
       running_time = coalesce(r.running_time, NULLIF(input.started_time, '0001-01-01Z')),
       finished_time = CASE
                         WHEN input.status IN ('succeeded', 'failed', 'cancelled', 'expired')
                           THEN statement_timestamp()
                       END,
       cancel_requested_time = CASE
                                 WHEN input.cancels
                                   THEN coalesce(r.cancel_requested_time, statement_timestamp())
                               END,
       cancel_reason = CASE
                         WHEN input.cancels
                           THEN coalesce(NULLIF(input.cancel_reason, ''), r.cancel_reason)
                       END,
       result = NULLIF(input.result, '')::jsonb, failure = NULLIF(input.failure, '')::jsonb
  FROM input
 WHERE r.namespace = ANY (ARRAY[input.namespace])
   AND r.run_id = input.run_id;

-- DropItems deletes the item rows of steps that start again, because they belong to an earlier
-- round. It keeps the rows of the items in kept, and moves them if their index has changed. It runs
-- before WriteSteps and selects its tasks like InsertRuns. All rows are deleted before the insert,
-- because the insert sorts its input.
-- name: DropItems :exec
WITH kept AS MATERIALIZED (
  SELECT unnest(@kept_namespaces::text[]) AS namespace, unnest(@kept_run_ids::text[]) AS run_id,
         unnest(@kept_step_ids::text[]) AS step_id, unnest(@old_indexes::int[]) AS old_index,
         unnest(@new_indexes::int[]) AS new_index),
removed AS (
  DELETE FROM flow_steps f
   USING (
     SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
            unnest(@task_ids::bigint[]) AS task_id,
            unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id,
            unnest(@step_ids::text[]) AS step_id) AS item
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended
   WHERE f.namespace = ANY (ARRAY[item.namespace])
     AND f.run_id = item.run_id
     AND f.step_id = item.step_id
     AND f.index >= 0
     AND NOT EXISTS (
       SELECT 1 FROM kept k
        WHERE k.namespace = f.namespace
          AND k.run_id = f.run_id
          AND k.step_id = f.step_id
          AND k.old_index = f.index
          AND k.new_index = f.index)
  RETURNING f.*)
INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, compensation_status,
                        attempt, running_time, finished_time, due_time, process_id,
                        process_namespace, token, worker_id, reason, input, result, failure, wait,
                        progress, item_hash)
SELECT r.namespace, r.run_id, r.step_id, k.new_index, r.ord, r.status, r.compensation_status,
       r.attempt, r.running_time, r.finished_time, r.due_time, r.process_id, r.process_namespace,
       r.token, r.worker_id, r.reason, r.input, r.result, r.failure, r.wait, r.progress, r.item_hash
  FROM removed r
  JOIN kept k
    ON k.namespace = r.namespace
   AND k.run_id = r.run_id
   AND k.step_id = r.step_id
   AND k.old_index = r.index
 ORDER BY k.new_index;

-- GetRun returns a run.
-- name: GetRun :one
SELECT r.namespace, r.run_id, r.template_type, r.template_version, r.status, r.attempt,
       r.created_time, r.updated_time, r.running_time, r.finished_time, r.cancel_requested_time,
       r.run_time, r.fire_time, r.scope, r.scope_id, coalesce(r.dedupe_key, '')::text AS dedupe_key,
       coalesce(r.blocked_on, '')::text AS blocked_on,
       coalesce(r.cancel_reason, '')::text AS cancel_reason,
       coalesce(r.cron_id, '')::text AS cron_id,
       coalesce(r.parent_run_id, '')::text AS parent_run_id,
       coalesce(r.repeat_of_run_id, '')::text AS repeat_of_run_id, r.payload, r.result, r.failure,
       p.metadata, p.status AS process_status, p.aux_state
  FROM flow_runs r
  JOIN processes p
    ON p.namespace = r.namespace
   AND p.process_id = '~flow/' || r.run_id
   AND p.removed_time IS NULL
 WHERE r.namespace = @namespace
   AND r.run_id = @run_id;

-- GetWait returns a wait, so that a response to it can be checked. An ended wait has a result or a
-- failure.
-- name: GetWait :one
SELECT f.status, coalesce(f.token, '')::text AS token, f.due_time, f.result, f.failure, f.wait
  FROM flow_steps f
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = @step_id
   AND f.index = @index;

-- ReopenRuns reopens ended runs that did not succeed, and returns them. The process becomes RUNNING
-- for the command that follows. If the command does not arrive, the timer of the process ends the
-- run again. ReopenRuns runs after LockProcesses.
-- name: ReopenRuns :many
WITH input AS MATERIALIZED (
  SELECT p.namespace, p.process_id, p.status
    FROM processes p
    JOIN flow_runs r
      ON r.namespace = p.namespace
     AND r.run_id = substr(p.process_id, 7)
   WHERE p.namespace = @namespace::text
     AND p.process_id = @process_id::text
     AND p.removed_time IS NULL
     AND p.kind = 'flow'
     AND p.status IN ('COMPLETED', 'CANCELLED')
     AND r.status IN ('failed', 'cancelled', 'expired')),
updated_processes AS (
  UPDATE processes p
     SET status = 'RUNNING', previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = NULL, attention_time = NULL,
         detail = NULL, cancel_requested_time = NULL, cancel_reason = NULL, cancel_deadline = NULL
    FROM input
   WHERE p.namespace = input.namespace
     AND p.process_id = input.process_id),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT input.namespace, change.status, sum(change.n)
    FROM input
   CROSS JOIN LATERAL (
     VALUES (input.status, -1), ('RUNNING'::process_status, 1)) AS change(status, n)
   GROUP BY input.namespace, change.status ORDER BY input.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n)
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time,
                      timer_name)
SELECT input.namespace, input.process_id, nextval('task_ids'), 'TIMEOUT', 'time',
       statement_timestamp() + interval '1 minute', ''
  FROM input
RETURNING namespace, process_id;

-- ReadRuns returns the given runs, in the given order.
-- name: ReadRuns :many
SELECT run.namespace, run.run_id, run.template_type, run.template_version, run.status, run.attempt,
       run.created_time, run.updated_time, run.running_time, run.finished_time,
       run.cancel_requested_time, run.run_time, run.fire_time, run.scope, run.scope_id,
       coalesce(run.dedupe_key, '')::text AS dedupe_key,
       coalesce(run.blocked_on, '')::text AS blocked_on,
       coalesce(run.cancel_reason, '')::text AS cancel_reason,
       coalesce(run.cron_id, '')::text AS cron_id,
       coalesce(run.parent_run_id, '')::text AS parent_run_id,
       coalesce(run.repeat_of_run_id, '')::text AS repeat_of_run_id, run.payload, run.result,
       run.failure, process.metadata, process.status AS process_status, process.aux_state
  FROM unnest(@run_ids::text[]) WITH ORDINALITY AS item(id, n)
 CROSS JOIN LATERAL (
   SELECT * FROM flow_runs x
    WHERE x.namespace = @namespace
      AND x.run_id = item.id
    LIMIT 1) run
 CROSS JOIN LATERAL (
   SELECT * FROM processes y
    WHERE y.namespace = @namespace
      AND y.process_id = '~flow/' || item.id
    LIMIT 1) process
 ORDER BY item.n;

-- ReadStatuses returns the statuses of the steps of runs, without items, with their jobs. From the
-- progress of a step, it returns the percent and the first 1,000 characters of the summary.
-- ListSteps describes held_time and tried.
-- name: ReadStatuses :many
SELECT step.run_id, step.step_id, step.status, step.running_time,
       coalesce(lease.worker_id, step.worker_id, job.worker_id, '')::text AS worker_id,
       (CASE
          WHEN coalesce(job.progress, step.progress) IS NOT NULL
            THEN jsonb_build_object(
              'percent', coalesce(coalesce(job.progress, step.progress)->'percent', '0'),
              'summary',
              left(coalesce(coalesce(job.progress, step.progress)->>'summary', ''), 1000))
        END)::jsonb AS progress,
       coalesce(lease.expires_time, 'epoch')::timestamptz AS lease_expires_time,
       coalesce(step.status = 'running'
                   AND attempt.running_time IS NULL
                   AND starts_with(step.process_id, '~job/'),
                false)::bool AS queued,
       coalesce(CASE
                  WHEN starts_with(step.process_id, '~job/') THEN attempt.running_time
                END,
                'epoch')::timestamptz AS held_time,
       (job.worker_id IS NOT NULL OR job.failures IS NOT NULL)::bool AS tried
  FROM unnest(@run_ids::text[]) AS item(id)
 CROSS JOIN LATERAL (
   SELECT * FROM flow_steps x
    WHERE x.namespace = @namespace
      AND x.run_id = item.id
      AND x.index = -1
   OFFSET 0) step
  LEFT JOIN LATERAL (
    SELECT y.worker_id, y.failures, y.progress
      FROM jobs y
     WHERE step.status = 'running'
       AND y.namespace = coalesce(step.process_namespace, step.namespace)
       AND y.process_id = step.process_id
     LIMIT 1) job ON true
  LEFT JOIN LATERAL (
    SELECT y.fencing_token, y.running_time
      FROM running_jobs y
     WHERE step.status = 'running'
       AND y.namespace = coalesce(step.process_namespace, step.namespace)
       AND y.process_id = step.process_id
     LIMIT 1) attempt ON true
  LEFT JOIN LATERAL (
    SELECT y.worker_id, y.expires_time
      FROM leases y
     WHERE y.namespace = coalesce(step.process_namespace, step.namespace)
       AND y.process_id = step.process_id
       AND y.fencing_token = attempt.fencing_token
     LIMIT 1) lease ON true;

-- ReadWaits returns the given waits, in the given order.
-- name: ReadWaits :many
SELECT step.run_id, step.step_id, step.index, coalesce(step.token, '')::text AS token,
       coalesce(step.input, run.payload) AS input, step.wait, step.running_time, step.due_time,
       (run.status = 'cancel_requested')::bool AS cancel_requested,
       coalesce(step.worker_id, '')::text AS worker_id
  FROM ROWS FROM (unnest(@run_ids::text[]), unnest(@step_ids::text[]),
                  unnest(@indexes::int[])) WITH ORDINALITY
       AS item(run_id, step_id, index, n)
 CROSS JOIN LATERAL (
   SELECT * FROM flow_steps x
    WHERE x.namespace = @namespace
      AND x.run_id = item.run_id
      AND x.step_id = item.step_id
      AND x.index = item.index
    LIMIT 1) step
 CROSS JOIN LATERAL (
   SELECT y.status, y.payload
     FROM flow_runs y
    WHERE y.namespace = @namespace
      AND y.run_id = item.run_id
    LIMIT 1) run
 ORDER BY item.n;

-- WaitingNamespaces returns the given namespaces that have open waits, in the given order.
-- name: WaitingNamespaces :many
SELECT item.namespace::text AS namespace
  FROM unnest(@namespaces::text[]) WITH ORDINALITY AS item(namespace, n)
 CROSS JOIN LATERAL (
   SELECT 1 FROM flow_steps f
    WHERE f.namespace = item.namespace
      AND f.token IS NOT NULL
    LIMIT 1) waiting
 ORDER BY item.n;
