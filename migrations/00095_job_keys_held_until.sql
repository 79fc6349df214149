-- +goose Up
-- A unique key stays taken for its TTL after retention has removed its job.
ALTER TABLE job_keys ADD COLUMN held_until timestamptz;
COMMENT ON COLUMN job_keys.held_until IS 'Set when retention removes the job: the key stays taken until then. NULL while the job exists.';

-- +goose Down
ALTER TABLE job_keys DROP COLUMN held_until;
