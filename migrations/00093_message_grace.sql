-- +goose Up
ALTER TABLE messages ADD COLUMN grace interval;
COMMENT ON COLUMN messages.grace IS 'Of a cancel: how long the process may take to end. NULL: 30 s, or for a job its own.';

-- +goose Down
ALTER TABLE messages DROP COLUMN grace;
