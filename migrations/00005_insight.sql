-- +goose Up
ALTER TABLE nodes ADD COLUMN drain_requested_time timestamptz;
COMMENT ON COLUMN nodes.drain_requested_time IS 'When an operator asked the node to drain; NULL: nobody has. The node reads it with its next heartbeat.';
COMMENT ON COLUMN nodes.draining IS 'true: the node is stopping, or was asked to drain; it ends what it runs and takes nothing new.';

-- +goose Down
COMMENT ON COLUMN nodes.draining IS 'true: the node is stopping; it ends what it runs and takes nothing new.';
ALTER TABLE nodes DROP COLUMN drain_requested_time;
