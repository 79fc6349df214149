-- +goose Up
ALTER TABLE processes
  ADD COLUMN cancel_requested_time timestamptz,
  ADD COLUMN cancel_reason text,
  ADD COLUMN cancel_deadline timestamptz,
  ADD CONSTRAINT processes_cancel_was_requested CHECK (cancel_requested_time IS NOT NULL OR (cancel_reason IS NULL AND cancel_deadline IS NULL));
-- cancel_deadline is NULL in every process but those that are being cancelled: results leave it as it is, and stay HOT.
CREATE INDEX processes_cancel_deadline ON processes (cancel_deadline) WHERE cancel_deadline IS NOT NULL;
COMMENT ON COLUMN processes.cancel_requested_time IS 'When a cancel was requested first; NULL: never.';
COMMENT ON COLUMN processes.cancel_reason IS 'Why a cancel was requested, as the first request told; NULL: it told nothing.';
COMMENT ON COLUMN processes.cancel_deadline IS 'While a cancel is under way: when its grace is over and the engine ends the process by itself; else NULL.';
COMMENT ON COLUMN processes.detail IS 'Of ERROR: why. The message of the first failure, or zombie detected. Of SUSPENDED: the reason that the operator gave.';

-- +goose Down
DROP INDEX processes_cancel_deadline;
ALTER TABLE processes
  DROP CONSTRAINT processes_cancel_was_requested,
  DROP COLUMN cancel_requested_time,
  DROP COLUMN cancel_reason,
  DROP COLUMN cancel_deadline;
COMMENT ON COLUMN processes.detail IS 'Of ERROR: why. The message of the first failure, or zombie detected.';
