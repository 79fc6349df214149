-- +goose Up
-- The tokens of a sink begin at a number of this sequence. Before, they began at 0, so a node whose
-- sink was deleted and created again could have the token of the new sink. Each claim and each
-- rewind increments the token by 1, so the numbers of the sequence are far apart. Older engines
-- that are still running create sinks with the token 0.
CREATE SEQUENCE sink_tokens INCREMENT BY 1000000 START WITH 1000000;
COMMENT ON SEQUENCE sink_tokens IS
  'First tokens of the leases of sinks, so that a sink that is created again has other tokens.';
COMMENT ON COLUMN sinks.token IS
  'Number of the lease, incremented by each claim and rewind. The first one is from sink_tokens. '
  'Only its holder moves the cursor.';

-- +goose Down
COMMENT ON COLUMN sinks.token IS
  'Number of the lease, incremented by each claim and rewind. Only its holder moves the cursor.';
DROP SEQUENCE sink_tokens;
