-- +goose Up
ALTER TABLE history_restarts ADD COLUMN after_event_id bigint NOT NULL DEFAULT 0;
ALTER TABLE history_restarts ADD COLUMN after_task_id bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN history_restarts.after_event_id IS 'Old events up to this event_id have been removed.';
COMMENT ON COLUMN history_restarts.after_task_id IS 'Old tasks up to this task_id have been removed.';

-- +goose Down
ALTER TABLE history_restarts DROP COLUMN after_task_id;
ALTER TABLE history_restarts DROP COLUMN after_event_id;
