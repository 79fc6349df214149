-- +goose Up
-- Which keys a job needs. Not with the column of schedule in 00020: a migration locks one busy table.
ALTER TABLE jobs ADD COLUMN constraints_version bigint, ADD COLUMN constraint_keys jsonb CHECK (jsonb_typeof(constraint_keys) = 'object');
COMMENT ON COLUMN jobs.constraints_version IS 'The version of the constraints that constraint_keys is of; NULL: its namespace had none; -1: what they look at has changed since.';
COMMENT ON COLUMN jobs.constraint_keys IS 'The constraints that it matches, each with the key that it needs to run, as JSON; NULL: none.';

-- +goose Down
ALTER TABLE jobs DROP COLUMN constraint_keys, DROP COLUMN constraints_version;
