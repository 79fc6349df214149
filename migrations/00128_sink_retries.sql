-- +goose NO TRANSACTION
-- +goose Up
-- Dead letters of sinks are delivered again. Older engines add dead letters without lane and seq.
ALTER TABLE sink_dead_letters
  ADD COLUMN IF NOT EXISTS lane bigint,
  ADD COLUMN IF NOT EXISTS seq bigint,
  ADD COLUMN IF NOT EXISTS attempts integer NOT NULL DEFAULT 1,
  ADD COLUMN IF NOT EXISTS retry_time timestamptz;
COMMENT ON COLUMN sink_dead_letters.error IS 'Why the last attempt to deliver it failed.';
COMMENT ON COLUMN sink_dead_letters."time" IS 'When it failed.';
COMMENT ON COLUMN sink_dead_letters.lane IS
  'Lane of the change in the table changes. NULL if an older engine added the dead letter.';
COMMENT ON COLUMN sink_dead_letters.seq IS 'Number of the change in that lane.';
COMMENT ON COLUMN sink_dead_letters.attempts IS
  'How often the change was rejected, or failed to be delivered again.';
COMMENT ON COLUMN sink_dead_letters.retry_time IS
  'Since when it waits to be delivered again. NULL if it does not.';
DROP INDEX CONCURRENTLY IF EXISTS sink_dead_letters_retry;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY sink_dead_letters_retry
    ON sink_dead_letters (namespace, sink_id, change_id) WHERE retry_time IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS sink_dead_letters_retry;
ALTER TABLE sink_dead_letters
  DROP COLUMN IF EXISTS lane, DROP COLUMN IF EXISTS seq, DROP COLUMN IF EXISTS attempts,
  DROP COLUMN IF EXISTS retry_time;
