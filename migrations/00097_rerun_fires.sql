-- +goose Up
-- RerunFire gives the row of a fire that has ended another run.
COMMENT ON COLUMN cron_fires.decision IS 'The decision. A QUEUED fire that has started stays QUEUED. A run that was refused, because another run of its scope existed, becomes SKIPPED_CONCURRENCY. A fire that is run again becomes FIRED.';
COMMENT ON COLUMN cron_fires.attempt IS 'Attempt of the run: more than 1 if it repeats a run that failed, or the fire was run again; 0 if no run has started.';
COMMENT ON COLUMN cron_fires.decided_time IS 'When the fire was decided, or run again.';
COMMENT ON COLUMN cron_fires.manual IS 'true: triggered, backfilled or run again.';

-- +goose Down
COMMENT ON COLUMN cron_fires.decision IS 'What was decided. A QUEUED one that has started stays QUEUED; one whose run was refused, because another of its scope was there, becomes SKIPPED_CONCURRENCY.';
COMMENT ON COLUMN cron_fires.attempt IS 'Of the run: 1, or more where it repeats one that failed; 0: no run has started.';
COMMENT ON COLUMN cron_fires.decided_time IS 'When it was decided.';
COMMENT ON COLUMN cron_fires.manual IS 'true: triggered or backfilled.';
