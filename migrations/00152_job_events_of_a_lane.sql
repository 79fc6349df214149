-- +goose NO TRANSACTION
-- +goose Up
-- This index is for reading the job events of a lane in order.
DROP INDEX CONCURRENTLY IF EXISTS job_events_of_lane;
SET lock_timeout = 0;
CREATE UNIQUE INDEX CONCURRENTLY job_events_of_lane ON job_events (namespace, lane, event_id);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS job_events_of_lane;
