-- +goose NO TRANSACTION
-- +goose Up
-- With this index, GetTimers finds the timers of a process without reading its other waiting tasks.
-- Statements of the hot path do not use the index, because their conditions do not imply its
-- predicate.
DROP INDEX CONCURRENTLY IF EXISTS schedule_timers;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY schedule_timers
    ON schedule (namespace, process_id) WHERE (timer_name IS NOT NULL)::int = 1;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_timers;
