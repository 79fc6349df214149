-- +goose Up
-- A pushed job whose processor cannot be reached releases its slot while it waits. Its row contains
-- how long it has waited, so that its timeout still ends the wait.
ALTER TABLE jobs ADD COLUMN unreached jsonb;
COMMENT ON COLUMN jobs.unreached IS
  'Set when the processor of a pushed job could not be reached: the attempt, the number of tries, '
  'the time of the first one (since) and the error of the last one (cause), as JSON. It stays when '
  'a later try succeeds. NULL if the processor was always reached.';

-- +goose Down
ALTER TABLE jobs DROP COLUMN unreached;
