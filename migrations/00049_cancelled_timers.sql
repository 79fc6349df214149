-- +goose NO TRANSACTION
-- +goose Up
-- A repair reads the timers that an error cancelled. Without this index it also reads every call and notification that the error cancelled.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS tasks_cancelled_timers;
CREATE INDEX CONCURRENTLY tasks_cancelled_timers ON tasks (namespace, process_id, cancelled_by) WHERE cancelled_by IS NOT NULL AND task_type IN ('TIMEOUT', 'REMOVE');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS tasks_cancelled_timers;
