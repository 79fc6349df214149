-- +goose NO TRANSACTION
-- +goose Up
-- The lines of jobs that wait for a key, and those of them whose time has not come.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_lines;
CREATE INDEX CONCURRENTLY schedule_lines ON schedule (namespace COLLATE "POSIX", line, priority, task_id) WHERE waits_for = 'constraint';
DROP INDEX CONCURRENTLY IF EXISTS schedule_line_times;
CREATE INDEX CONCURRENTLY schedule_line_times ON schedule (namespace COLLATE "POSIX", scheduled_time) WHERE waits_for = 'time' AND line IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_line_times;
DROP INDEX CONCURRENTLY IF EXISTS schedule_lines;
