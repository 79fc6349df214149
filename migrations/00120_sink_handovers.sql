-- +goose Up
-- A node that has fewer sinks than another one asks for one of them.
ALTER TABLE sinks
  ADD COLUMN asked_node_id bigint,
  ADD COLUMN asked_time timestamptz;
COMMENT ON COLUMN sinks.asked_node_id IS
  'Node that has asked for the lease, because it has fewer sinks. NULL if there is none.';
COMMENT ON COLUMN sinks.asked_time IS 'When it asked.';

-- +goose Down
ALTER TABLE sinks DROP COLUMN asked_node_id, DROP COLUMN asked_time;
