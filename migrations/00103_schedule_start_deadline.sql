-- +goose NO TRANSACTION
-- +goose Up
-- The jobs whose start deadline passes next. Few jobs have one, so the index is small.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_start_deadline;
CREATE INDEX CONCURRENTLY schedule_start_deadline ON schedule (start_deadline)
  WHERE start_deadline IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_start_deadline;
