-- +goose Up
-- Whether a node is dead was derived from the age of its heartbeat, so a step of the clock declared all nodes dead. Now another
-- node declares it, for one value of beat_time. A later heartbeat by an older version makes the node alive again.
ALTER TABLE nodes ADD COLUMN dead_beat_time timestamptz;
COMMENT ON COLUMN nodes.dead_beat_time IS 'The beat_time for which another node declared this node dead; NULL if none has. The node is dead while beat_time has this value.';

-- +goose Down
ALTER TABLE nodes DROP COLUMN dead_beat_time;
