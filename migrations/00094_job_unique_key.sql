-- +goose Up
ALTER TABLE jobs ADD COLUMN unique_key text COLLATE "C";
COMMENT ON COLUMN jobs.unique_key IS 'The unique key, if the job keeps it after its end; NULL if it does not.';

-- +goose Down
ALTER TABLE jobs DROP COLUMN unique_key;
