-- +goose NO TRANSACTION
-- +goose Up
-- The running jobs of several workers, which statistics and lists of jobs read.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS job_groups_running;
CREATE INDEX CONCURRENTLY job_groups_running ON job_groups (namespace, process_id)
  WHERE running_time IS NOT NULL;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS job_groups_running;
RESET lock_timeout;
