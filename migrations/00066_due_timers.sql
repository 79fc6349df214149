-- +goose NO TRANSACTION
-- +goose Up
-- A node finds what is due soon in all namespaces by one descent of this index, whatever the number of namespaces with timers
-- of later. (The condition on waits_for is in words that no other index has: no scan of one namespace takes it for schedule_time.)
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_due;
CREATE INDEX CONCURRENTLY schedule_due ON schedule (scheduled_time) WHERE (waits_for = 'time')::int = 1;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS schedule_due;
