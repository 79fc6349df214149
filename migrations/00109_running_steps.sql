-- +goose Up
-- A step whose job is for several workers runs while that job runs.
CREATE VIEW running_jobs AS
SELECT r.namespace, r.process_id, r.fencing_token, r.running_time
  FROM running r
UNION ALL
SELECT g.namespace, g.process_id, NULL, g.running_time
  FROM job_groups g WHERE g.running_time IS NOT NULL;
COMMENT ON VIEW running_jobs IS
  'What runs: tasks, and jobs of several workers, which have no running task of their own.';
COMMENT ON COLUMN running_jobs.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN running_jobs.process_id IS 'ID of the process.';
COMMENT ON COLUMN running_jobs.fencing_token IS
  'Fencing token of the attempt. NULL for a job of several workers.';
COMMENT ON COLUMN running_jobs.running_time IS 'Start of the attempt.';

CREATE OR REPLACE VIEW run_list AS
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

CREATE OR REPLACE VIEW step_list AS
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

-- +goose Down
CREATE OR REPLACE VIEW run_list AS
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
              SELECT u.running_time FROM running u
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

CREATE OR REPLACE VIEW step_list AS
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
      SELECT u.task_id, u.fencing_token, u.running_time
        FROM running u
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
     SELECT kind.is_job AND attempt.task_id IS NULL AS queued,
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

DROP VIEW running_jobs;
