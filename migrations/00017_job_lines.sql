-- +goose NO TRANSACTION
-- +goose Up
-- The lines in which workers look: jobs by name, and in a namespace of workers what the engine runs by itself.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_jobs;
CREATE INDEX CONCURRENTLY schedule_jobs ON schedule (namespace COLLATE "POSIX", job_name, priority, task_id) WHERE waits_for = 'place' AND job_name IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS schedule_own;
CREATE INDEX CONCURRENTLY schedule_own ON schedule (namespace COLLATE "POSIX", priority, task_id)
  WHERE waits_for = 'place' AND starts_with(process_id, '~') AND NOT starts_with(process_id, '~job/');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_own;
DROP INDEX CONCURRENTLY IF EXISTS schedule_jobs;
