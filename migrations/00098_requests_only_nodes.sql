-- +goose Up
-- A node with engine.requests_only takes requests and runs no tasks. Other nodes leave it no chores.
ALTER TABLE nodes ADD COLUMN requests_only boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN nodes.requests_only IS 'true: it takes requests and polls of workers, and runs no tasks.';

-- +goose Down
ALTER TABLE nodes DROP COLUMN requests_only;
