-- +goose Up
-- A cron may start runs of flows, which are refused where another run of the same scope goes on: then its fire has skipped.
COMMENT ON COLUMN cron_fires.decision IS 'What was decided. A QUEUED one that has started stays QUEUED; one whose run was refused, because another of its scope was there, becomes SKIPPED_CONCURRENCY.';

-- +goose Down
COMMENT ON COLUMN cron_fires.decision IS 'What was decided. It never changes: a QUEUED one that has started stays QUEUED.';
