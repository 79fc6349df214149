-- +goose NO TRANSACTION
-- +goose Up
-- Nodes and doctor look for runs, crons and bulk operations whose own tasks fail. They are few,
-- and other tasks that wait are many.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_internal_retries;
CREATE INDEX CONCURRENTLY schedule_internal_retries ON schedule (namespace, process_id) WHERE attempt > 0 AND starts_with(process_id, '~') AND NOT starts_with(process_id, '~job/');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_internal_retries;
