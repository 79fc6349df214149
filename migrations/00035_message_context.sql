-- +goose Up
-- Where a trace goes on that a message is a part of: the task that it makes has it as its context. Older engines send messages without one.
ALTER TABLE messages ADD COLUMN context bytea;
COMMENT ON COLUMN messages.context IS 'Context of the task that it makes: where a trace goes on; NULL: nowhere.';

-- +goose Down
ALTER TABLE messages DROP COLUMN context;
