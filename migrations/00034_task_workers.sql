-- +goose Up
-- Who has answered a job stands with its task, which is written then anyway: to write it into jobs was a seventh of what PostgreSQL did for a pulled job.
-- So an answer that comes after the engine has ended the attempt is told from one that comes twice.
ALTER TABLE tasks ADD COLUMN worker_id text;
COMMENT ON COLUMN tasks.worker_id IS 'The worker whose answer ended it; NULL: a processor of the engine, or nobody has answered, or it is of a process that goes on.';
COMMENT ON COLUMN jobs.worker_id IS 'The worker whose failure was stored last, or that has ended a step; NULL: none, or a processor of the engine. Who has ended another job stands in tasks.';
CREATE OR REPLACE VIEW job_list AS
  SELECT p.namespace, p.process_id AS job_id, j.name,
         CASE WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED' WHEN p.status = 'ERROR' THEN 'FAILED' WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
              WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED' WHEN r.task_id IS NOT NULL THEN 'RUNNING'
              WHEN s.taker = '~' AND s.attempt > 0 THEN CASE WHEN p.cancel_deadline IS NULL THEN 'RUNNING' ELSE 'CANCEL_REQUESTED' END
              WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE' WHEN s.waits_for = 'time' THEN 'SCHEDULED' ELSE 'AVAILABLE' END AS state,
         s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time, coalesce(r.attempt, s.attempt, t.attempt) AS attempt,
         coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers, coalesce(l.worker_id, t.worker_id, j.worker_id) AS worker_id,
         l.expires_time AS lease_expires_time, r.node_id, r.running_time, r.deadline, p.detail, p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
    FROM processes p
    JOIN jobs j ON j.namespace = p.namespace AND j.process_id = p.process_id
    LEFT JOIN schedule s ON s.namespace = p.namespace AND s.process_id = p.process_id
    LEFT JOIN running r ON r.namespace = p.namespace AND r.process_id = p.process_id
    LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
    LEFT JOIN LATERAL (SELECT k.attempt, k.worker_id FROM tasks k WHERE s.task_id IS NULL AND r.task_id IS NULL AND k.namespace = p.namespace AND k.process_id = p.process_id AND k.task_type = 'INIT'
                        ORDER BY k.task_id DESC LIMIT 1) t ON true
   WHERE p.kind = 'job' AND p.removed_time IS NULL;

-- +goose Down
CREATE OR REPLACE VIEW job_list AS
  SELECT p.namespace, p.process_id AS job_id, j.name,
         CASE WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED' WHEN p.status = 'ERROR' THEN 'FAILED' WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
              WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED' WHEN r.task_id IS NOT NULL THEN 'RUNNING'
              WHEN s.taker = '~' AND s.attempt > 0 THEN CASE WHEN p.cancel_deadline IS NULL THEN 'RUNNING' ELSE 'CANCEL_REQUESTED' END
              WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE' WHEN s.waits_for = 'time' THEN 'SCHEDULED' ELSE 'AVAILABLE' END AS state,
         s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time, coalesce(r.attempt, s.attempt, t.attempt) AS attempt,
         coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers, coalesce(l.worker_id, j.worker_id) AS worker_id,
         l.expires_time AS lease_expires_time, r.node_id, r.running_time, r.deadline, p.detail, p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
    FROM processes p
    JOIN jobs j ON j.namespace = p.namespace AND j.process_id = p.process_id
    LEFT JOIN schedule s ON s.namespace = p.namespace AND s.process_id = p.process_id
    LEFT JOIN running r ON r.namespace = p.namespace AND r.process_id = p.process_id
    LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
    LEFT JOIN LATERAL (SELECT k.attempt FROM tasks k WHERE s.task_id IS NULL AND r.task_id IS NULL AND k.namespace = p.namespace AND k.process_id = p.process_id
                        ORDER BY k.task_id DESC LIMIT 1) t ON true
   WHERE p.kind = 'job' AND p.removed_time IS NULL;
COMMENT ON COLUMN jobs.worker_id IS 'The worker whose answer was stored last; NULL: none, or a processor of the engine.';
ALTER TABLE tasks DROP COLUMN worker_id;
