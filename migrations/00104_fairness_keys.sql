-- +goose Up
-- Jobs of a namespace with a fairness_key take turns by their keys within a priority.
ALTER TABLE jobs ADD COLUMN fairness_key text COLLATE "C";
COMMENT ON COLUMN jobs.fairness_key IS
  'Fairness key of the job: the value of the fairness_key of its namespace when the job was '
  'enqueued. NULL if the namespace had none.';

-- +goose Down
ALTER TABLE jobs DROP COLUMN fairness_key;
