-- +goose Up
-- A job of several workers runs while a worker has one of its members, or a member has succeeded.
-- It counted as running as soon as its members existed.
ALTER TABLE job_groups ADD COLUMN running_time timestamptz;
COMMENT ON COLUMN job_groups.running_time IS
  'Since when the job runs: a worker has a member, or a member has succeeded. NULL if it waits for '
  'workers or has ended.';

-- +goose StatementBegin
CREATE FUNCTION member_runs(member_namespace text, member_id text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT EXISTS (
           SELECT FROM running r
            WHERE r.namespace = member_namespace
              AND r.process_id = member_id)
         OR EXISTS (
           SELECT FROM processes p
            WHERE p.namespace = member_namespace
              AND p.process_id = member_id
              AND p.removed_time IS NULL
              AND p.status NOT IN ('INIT', 'SUSPENDED'))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION member_runs IS
  'Reports whether a worker has a member of a job of several workers, or had it at its end, which '
  'the job learns a moment later.';

UPDATE job_groups g
   SET running_time = statement_timestamp()
 WHERE EXISTS (
   SELECT FROM schedule s
    WHERE s.namespace = g.namespace
      AND s.process_id = g.process_id
      AND s.taker = '~'
      AND s.attempt > 0)
   AND EXISTS (
     SELECT FROM job_places l
      WHERE l.namespace = g.namespace
        AND l.job_id = g.process_id
        AND (l.state = 'succeeded' OR l.state IS NULL AND member_runs(l.namespace, l.process_id)));

INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
SELECT g.namespace, g.process_id, 'waiting', 'running', 'available', 1, 'no worker runs it'
  FROM job_groups g
  JOIN schedule s
    ON s.namespace = g.namespace
   AND s.process_id = g.process_id
   AND s.taker = '~'
   AND s.attempt > 0
  JOIN processes p
    ON p.namespace = g.namespace
   AND p.process_id = g.process_id
   AND p.removed_time IS NULL
   AND p.cancel_deadline IS NULL
 WHERE g.running_time IS NULL
   AND NOT EXISTS (
     SELECT FROM namespaces n
      WHERE n.namespace = g.namespace
        AND n.config ? 'jobEvents');

DELETE FROM job_counts WHERE state IN ('running', 'cancel_requested');
COMMENT ON COLUMN job_counts.state IS
  'State of the jobs, in lower case. available includes running jobs and jobs with a cancel '
  'request. Members of jobs of several workers are not counted.';

CREATE OR REPLACE VIEW job_list AS
SELECT p.namespace, p.process_id AS job_id, j.name,
       CASE
         WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED'
         WHEN p.status = 'ERROR' THEN 'FAILED'
         WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
         WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED'
         WHEN r.task_id IS NOT NULL THEN 'RUNNING'
         WHEN s.taker = '~' AND s.attempt > 0 AND p.cancel_deadline IS NOT NULL
           THEN 'CANCEL_REQUESTED'
         WHEN s.taker = '~' AND g.running_time IS NOT NULL THEN 'RUNNING'
         WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE'
         WHEN s.waits_for = 'time' THEN 'SCHEDULED'
         ELSE 'AVAILABLE'
       END AS state,
       s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time,
       CASE
         WHEN s.taker = '~' AND g.running_time IS NULL THEN 0
         ELSE coalesce(r.attempt, s.attempt, t.attempt)
       END AS attempt,
       coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers,
       coalesce(l.worker_id, t.worker_id, j.worker_id) AS worker_id,
       l.expires_time AS lease_expires_time, r.node_id,
       coalesce(r.running_time, g.running_time) AS running_time, r.deadline, p.detail,
       p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
  FROM processes p
  JOIN jobs j
    ON j.namespace = p.namespace
   AND j.process_id = p.process_id
  LEFT JOIN schedule s
    ON s.namespace = p.namespace
   AND s.process_id = p.process_id
  LEFT JOIN running r
    ON r.namespace = p.namespace
   AND r.process_id = p.process_id
  LEFT JOIN job_groups g
    ON s.taker = '~'
   AND g.namespace = p.namespace
   AND g.process_id = p.process_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
  LEFT JOIN LATERAL (
    SELECT k.attempt, k.worker_id
      FROM tasks k
     WHERE s.task_id IS NULL
       AND r.task_id IS NULL
       AND k.namespace = p.namespace
       AND k.process_id = p.process_id
       AND k.task_type = 'INIT'
     ORDER BY k.task_id DESC LIMIT 1) t ON true
 WHERE p.kind = 'job'
   AND p.removed_time IS NULL;

-- +goose Down
CREATE OR REPLACE VIEW job_list AS
SELECT p.namespace, p.process_id AS job_id, j.name,
       CASE
         WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED'
         WHEN p.status = 'ERROR' THEN 'FAILED'
         WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
         WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED'
         WHEN r.task_id IS NOT NULL THEN 'RUNNING'
         WHEN s.taker = '~' AND s.attempt > 0
           THEN CASE WHEN p.cancel_deadline IS NULL THEN 'RUNNING' ELSE 'CANCEL_REQUESTED' END
         WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE'
         WHEN s.waits_for = 'time' THEN 'SCHEDULED'
         ELSE 'AVAILABLE'
       END AS state,
       s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time,
       coalesce(r.attempt, s.attempt, t.attempt) AS attempt,
       coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers,
       coalesce(l.worker_id, t.worker_id, j.worker_id) AS worker_id,
       l.expires_time AS lease_expires_time, r.node_id, r.running_time, r.deadline, p.detail,
       p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
  FROM processes p
  JOIN jobs j
    ON j.namespace = p.namespace
   AND j.process_id = p.process_id
  LEFT JOIN schedule s
    ON s.namespace = p.namespace
   AND s.process_id = p.process_id
  LEFT JOIN running r
    ON r.namespace = p.namespace
   AND r.process_id = p.process_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
  LEFT JOIN LATERAL (
    SELECT k.attempt, k.worker_id
      FROM tasks k
     WHERE s.task_id IS NULL
       AND r.task_id IS NULL
       AND k.namespace = p.namespace
       AND k.process_id = p.process_id
       AND k.task_type = 'INIT'
     ORDER BY k.task_id DESC LIMIT 1) t ON true
 WHERE p.kind = 'job'
   AND p.removed_time IS NULL;

DROP FUNCTION member_runs;
ALTER TABLE job_groups DROP COLUMN running_time;
COMMENT ON COLUMN job_counts.state IS
  'State of the jobs, in lower case. available includes running jobs. Running jobs of several '
  'workers are also counted as running or cancel_requested. Their members are not counted.';
INSERT INTO job_counts (namespace, name, state, n)
SELECT s.namespace, s.job_name,
       CASE WHEN p.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, count(*)
  FROM schedule s
  JOIN processes p
    ON p.namespace = s.namespace
   AND p.process_id = s.process_id
 WHERE s.taker = '~'
   AND s.attempt > 0
 GROUP BY 1, 2, 3
 ORDER BY 1, 2, 3
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = excluded.n;
