-- +goose NO TRANSACTION
-- +goose Up
-- The events of one job are found by a hash of its id: the index of the ids themselves, 102 bytes a row, was most of what an event cost.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS job_events_job_hash;
CREATE INDEX CONCURRENTLY job_events_job_hash ON job_events (hashtext(job_id));
DROP INDEX CONCURRENTLY IF EXISTS job_events_job;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS job_events_job;
CREATE INDEX CONCURRENTLY job_events_job ON job_events (namespace COLLATE "POSIX", job_id COLLATE "POSIX", event_id);
DROP INDEX CONCURRENTLY IF EXISTS job_events_job_hash;
