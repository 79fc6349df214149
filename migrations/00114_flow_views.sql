-- +goose Up
-- Views of runs and steps.

-- The row of a step has no running_time while its job is open: the row in running has it. So a step
-- and a run begin when a worker takes the job, not when the job is enqueued. status and phase are
-- those of the API. storage/search/runs.go has the same conditions, and a test compares them.
CREATE VIEW run_list AS
  SELECT r.namespace, r.run_id, r.template_type, r.template_version,
         CASE WHEN r.status <> 'active' THEN upper(r.status::text) ELSE active.status END AS status,
         CASE WHEN r.finished_time IS NULL THEN coalesce(active.phase, next_step.step_id) END
           AS phase,
         CASE
           WHEN r.attempt = 1
                AND r.finished_time IS NULL
                AND r.running_time IS NULL
                AND active.begun IS NOT TRUE
             THEN 0
           ELSE r.attempt
         END AS attempt,
         r.blocked_on, r.scope, r.scope_id, r.created_time, r.updated_time, r.run_time,
         coalesce(r.running_time, active.running_time) AS running_time, r.finished_time,
         coalesce(r.finished_time, statement_timestamp())
           - coalesce(r.running_time, active.running_time) AS runs_for,
         r.cancel_requested_time, r.cancel_reason, r.cron_id, r.fire_time, r.parent_run_id,
         r.repeat_of_run_id, r.failure->>'reason' AS failure_reason,
         r.failure->>'message' AS failure_message, r.payload, r.result, p.metadata
    FROM flow_runs r
    JOIN processes p
      ON p.namespace = r.namespace
     AND p.process_id = '~flow/' || r.run_id
     AND p.removed_time IS NULL
    LEFT JOIN LATERAL (
      SELECT CASE
               WHEN bool_or(open.status = 'running' AND NOT open.waits AND NOT open.queued)
                 THEN 'RUNNING'
               WHEN bool_or(open.status = 'running' AND open.waits)
                    AND NOT bool_or(open.queued)
                 THEN 'WAITING_WORKER'
               ELSE 'QUEUED'
             END AS status,
             (array_agg(open.step_id ORDER BY open.ord)
                FILTER (WHERE open.status = 'running' AND NOT open.queued))[1] AS phase,
             min(open.running_time) AS running_time,
             bool_or(open.running_time IS NOT NULL OR open.tried) AS begun
        FROM (
          SELECT f.step_id, f.ord, f.status,
                 f.wait IS NOT NULL
                   OR f.process_id IS NULL
                      AND f.due_time IS NULL
                      AND coalesce((
                        SELECT i.wait IS NOT NULL FROM flow_steps i
                         WHERE i.namespace = f.namespace
                           AND i.run_id = f.run_id
                           AND i.step_id = f.step_id
                           AND i.index = 0), false) AS waits,
                 kind.is_job AND attempt.running_time IS NULL AS queued,
                 job.worker_id IS NOT NULL OR job.failures IS NOT NULL AS tried,
                 CASE WHEN kind.is_job THEN attempt.running_time ELSE f.running_time END
                   AS running_time
            FROM flow_steps f
           CROSS JOIN LATERAL (
             SELECT f.status = 'running'
                      AND coalesce(starts_with(f.process_id, '~job/'), false) AS is_job) kind
            LEFT JOIN LATERAL (
              SELECT j.worker_id, j.failures
                FROM jobs j
               WHERE kind.is_job
                 AND j.namespace = coalesce(f.process_namespace, f.namespace)
                 AND j.process_id = f.process_id
               LIMIT 1) job ON true
            LEFT JOIN LATERAL (
              SELECT u.running_time FROM running_jobs u
               WHERE kind.is_job
                 AND u.namespace = coalesce(f.process_namespace, f.namespace)
                 AND u.process_id = f.process_id
               LIMIT 1) attempt ON true
           WHERE r.finished_time IS NULL
             AND f.namespace = r.namespace
             AND f.run_id = r.run_id
             AND f.index = -1) open) active ON true
    LEFT JOIN LATERAL (
      SELECT x.step->>'stepId' AS step_id
        FROM flow_templates v
       CROSS JOIN LATERAL jsonb_array_elements(v.definition->'steps') WITH ORDINALITY AS x(step, n)
       WHERE r.finished_time IS NULL
         AND v.namespace = r.namespace
         AND v.template_type = r.template_type
         AND v.version = r.template_version
         AND NOT EXISTS (
           SELECT 1 FROM flow_steps f
            WHERE f.namespace = r.namespace
              AND f.run_id = r.run_id
              AND f.step_id = x.step->>'stepId'
              AND f.index = -1
              AND f.status NOT IN ('pending', 'running'))
       ORDER BY x.n LIMIT 1) next_step ON true;
COMMENT ON VIEW run_list IS
  'Flow runs, each with the status and the phase that the API shows. Use a namespace in WHERE, or '
  'LIMIT, because the steps of open runs are read for each row.';
COMMENT ON COLUMN run_list.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN run_list.run_id IS 'ID of the run. Its process is ~flow/RUN_ID.';
COMMENT ON COLUMN run_list.template_type IS 'Name of the template of the run.';
COMMENT ON COLUMN run_list.template_version IS 'Version of the template of the run.';
COMMENT ON COLUMN run_list.status IS
  'Status of the run: PENDING, QUEUED, RUNNING, WAITING_WORKER, CANCEL_REQUESTED, COMPENSATING, '
  'SUCCEEDED, FAILED, CANCELLED or EXPIRED.';
COMMENT ON COLUMN run_list.phase IS
  'ID of the running step, or of the next one: the first one in the template if there are '
  'several. NULL if the run has ended.';
COMMENT ON COLUMN run_list.blocked_on IS
  'For a pending run, what it waits for: scope: RUN_ID, time: TIME, or backoff: TIME. NULL if it '
  'waits for none of these.';
COMMENT ON COLUMN run_list.scope IS
  'Kind of the subject of the run, such as user, account or system. Empty if there is none.';
COMMENT ON COLUMN run_list.scope_id IS 'ID of the subject of the run. Empty if there is none.';
COMMENT ON COLUMN run_list.created_time IS 'When the run was stored.';
COMMENT ON COLUMN run_list.run_time IS 'Earliest start of the run. NULL if it may start at once.';
COMMENT ON COLUMN run_list.finished_time IS 'When the run ended. NULL if it has not ended.';
COMMENT ON COLUMN run_list.runs_for IS
  'Time since the first step started, until the end of the run or now. NULL if no step has '
  'started.';
COMMENT ON COLUMN run_list.cancel_requested_time IS
  'When a cancel of the run was first requested. NULL if none was requested.';
COMMENT ON COLUMN run_list.cancel_reason IS 'Reason of the cancel request. NULL if there is none.';
COMMENT ON COLUMN run_list.cron_id IS 'ID of the cron that started the run. NULL if none did.';
COMMENT ON COLUMN run_list.fire_time IS
  'Fire time of the cron that started the run. NULL if none did.';
COMMENT ON COLUMN run_list.parent_run_id IS
  'ID of the run that started this run in a step. NULL if there is none.';
COMMENT ON COLUMN run_list.repeat_of_run_id IS
  'ID of the run that this run repeats, with the same payload. NULL if there is none.';
COMMENT ON COLUMN run_list.failure_reason IS
  'Reason of the failure of the step that failed the run. NULL if the run has not failed.';
COMMENT ON COLUMN run_list.failure_message IS
  'Message of the failure of the step that failed the run. NULL if the run has not failed.';
COMMENT ON COLUMN run_list.payload IS 'Input of the run, as JSON. NULL if there is none.';
COMMENT ON COLUMN run_list.result IS 'Result of the run, as JSON. NULL if it has not succeeded.';
COMMENT ON COLUMN run_list.metadata IS
  'Searchable attributes of the run, a JSON object. NULL if there are none.';
COMMENT ON COLUMN run_list.attempt IS
  'Number of attempts of the whole run. 0 if no step has started.';
COMMENT ON COLUMN run_list.updated_time IS
  'When the run or one of its steps last changed. For a step, it is up to a minute too early.';
COMMENT ON COLUMN run_list.running_time IS
  'When the first step of the run started. A job starts when a worker takes it.';

CREATE VIEW step_list AS
  SELECT f.namespace, f.run_id, f.ord, f.step_id, NULLIF(f.index, -1) AS index,
         CASE WHEN state.queued THEN 'PENDING' ELSE upper(f.status::text) END AS status,
         CASE
           WHEN state.queued AND job.worker_id IS NULL AND job.failures IS NULL
             THEN f.attempt - 1
           ELSE f.attempt
         END AS attempt,
         coalesce(f.process_namespace, f.namespace) AS process_namespace, f.process_id,
         CASE
           WHEN f.status <> 'running' THEN f.reason
           WHEN f.token IS NOT NULL THEN 'an answer'
           WHEN f.due_time IS NOT NULL THEN 'its time'
           WHEN state.queued THEN 'a worker'
         END AS reason,
         coalesce(lease.worker_id, f.worker_id) AS worker_id,
         lease.expires_time AS lease_expires_time, f.due_time, state.running_time, f.finished_time,
         coalesce(f.finished_time, statement_timestamp()) - state.running_time AS runs_for,
         f.failure->>'reason' AS failure_reason, f.failure->>'message' AS failure_message,
         upper(f.compensation_status::text) AS compensation_status, f.wait->>'title' AS title,
         f.wait->'assignees' AS assignees, f.input, f.result,
         coalesce(job.progress, f.progress) AS progress
    FROM flow_steps f
    LEFT JOIN LATERAL (
      SELECT j.worker_id, j.failures, j.progress
        FROM jobs j
       WHERE f.status = 'running'
         AND j.namespace = coalesce(f.process_namespace, f.namespace)
         AND j.process_id = f.process_id
       LIMIT 1) job ON true
    LEFT JOIN LATERAL (
      SELECT u.fencing_token, u.running_time
        FROM running_jobs u
       WHERE f.status = 'running'
         AND u.namespace = coalesce(f.process_namespace, f.namespace)
         AND u.process_id = f.process_id
       LIMIT 1) attempt ON true
    LEFT JOIN LATERAL (
      SELECT l.worker_id, l.expires_time
        FROM leases l
       WHERE l.namespace = coalesce(f.process_namespace, f.namespace)
         AND l.process_id = f.process_id
         AND l.fencing_token = attempt.fencing_token
       LIMIT 1) lease ON true
   CROSS JOIN LATERAL (
     SELECT kind.is_job AND attempt.running_time IS NULL AS queued,
            CASE WHEN kind.is_job THEN attempt.running_time ELSE f.running_time END AS running_time
       FROM (
         SELECT f.status = 'running'
                  AND coalesce(starts_with(f.process_id, '~job/'), false) AS is_job) kind) state
  UNION ALL
  SELECT r.namespace, r.run_id, x.n::int - 1, x.step->>'stepId', NULL, 'PENDING', 0, r.namespace,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL
    FROM flow_runs r
    JOIN flow_templates v
      ON v.namespace = r.namespace
     AND v.template_type = r.template_type
     AND v.version = r.template_version
   CROSS JOIN LATERAL jsonb_array_elements(v.definition->'steps') WITH ORDINALITY AS x(step, n)
   WHERE NOT EXISTS (
     SELECT 1 FROM flow_steps f
      WHERE f.namespace = r.namespace
        AND f.run_id = r.run_id
        AND f.step_id = x.step->>'stepId'
        AND f.index = -1);
COMMENT ON VIEW step_list IS
  'Steps of runs and items of for_each steps, including steps that have not started. Use a '
  'namespace and a run in WHERE.';
COMMENT ON COLUMN step_list.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN step_list.run_id IS 'ID of the run. Its process is ~flow/RUN_ID.';
COMMENT ON COLUMN step_list.ord IS
  'Position of the step in its template, from 0. To sort steps and items, use ORDER BY ord, index '
  'NULLS FIRST.';
COMMENT ON COLUMN step_list.step_id IS 'ID of the step in its template.';
COMMENT ON COLUMN step_list.index IS
  'Index of the item of a for_each step, from 0. NULL for the step itself.';
COMMENT ON COLUMN step_list.status IS
  'Status of the step: PENDING (also while its job waits for a worker), RUNNING, SUCCEEDED, '
  'FAILED, SKIPPED or CANCELLED.';
COMMENT ON COLUMN step_list.process_namespace IS
  'Namespace of the job, process or run that executes the step.';
COMMENT ON COLUMN step_list.process_id IS
  'ID of the job, process or run that executes the step. NULL if there is none.';
COMMENT ON COLUMN step_list.reason IS
  'What the step waits for, if it has started. Otherwise, why it was skipped or cancelled. NULL '
  'if none of these applies.';
COMMENT ON COLUMN step_list.worker_id IS
  'ID of the worker that has the lease of the job. For an ended step, its last worker, or who '
  'completed the wait. NULL if unknown.';
COMMENT ON COLUMN step_list.lease_expires_time IS
  'Without a heartbeat until then, the lease is lost. NULL if no worker has a lease.';
COMMENT ON COLUMN step_list.due_time IS 'End of a delay, or due time of a wait. NULL if none.';
COMMENT ON COLUMN step_list.finished_time IS 'When the step ended. NULL if it has not ended.';
COMMENT ON COLUMN step_list.failure_reason IS
  'Reason of the failure of the step. NULL if it has not failed.';
COMMENT ON COLUMN step_list.failure_message IS
  'Message of the failure of the step. NULL if it has not failed.';
COMMENT ON COLUMN step_list.compensation_status IS
  'Status of the compensation of the step: RUNNING, SUCCEEDED, FAILED or CANCELLED. NULL if it '
  'was not compensated.';
COMMENT ON COLUMN step_list.title IS 'For a wait: its title. NULL for other steps.';
COMMENT ON COLUMN step_list.assignees IS
  'For a wait: who may complete it, a JSON array. NULL if anyone may, and for other steps.';
COMMENT ON COLUMN step_list.input IS 'Input of the step, as JSON. NULL for the payload of the run.';
COMMENT ON COLUMN step_list.result IS
  'Result of the step, as JSON. For a for_each step, the results of its items in order. NULL if '
  'there is none.';
COMMENT ON COLUMN step_list.progress IS
  'Last reported progress of the step, as JSON (percent, summary, details). NULL if none was '
  'reported.';
COMMENT ON COLUMN step_list.attempt IS 'Number of starts. A job starts when a worker takes it.';
COMMENT ON COLUMN step_list.running_time IS
  'Last start of the step. For a job, when its last attempt began. NULL if it waits for a worker.';
COMMENT ON COLUMN step_list.runs_for IS 'Time since its last start, until its end or now.';
