-- +goose NO TRANSACTION
-- +goose Up
-- The timers of crons, so that they are claimed before others without a look at these.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_cron;
CREATE INDEX CONCURRENTLY schedule_cron ON schedule (namespace COLLATE "POSIX", scheduled_time) WHERE waits_for = 'time' AND starts_with(process_id, '~cron/');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_cron;
