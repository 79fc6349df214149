-- +goose Up
-- The data of a namespace is deleted when every live node knows that it is being deleted.
ALTER TABLE nodes ADD COLUMN known_deletions timestamptz[];
COMMENT ON COLUMN nodes.known_deletions IS
  'The deletion_requested_time of the namespaces that are being deleted and for which the node '
  'accepts no requests. NULL if there never was one.';

-- +goose Down
ALTER TABLE nodes DROP COLUMN known_deletions;
