-- +goose Up
-- Which program a worker is, and on which machine. Older engines write neither.
ALTER TABLE workers ADD COLUMN address text;
ALTER TABLE workers ADD COLUMN user_agent text;
COMMENT ON COLUMN workers.address IS
  'IP address from which the worker last sent a request, or that of its proxy. NULL if unknown.';
COMMENT ON COLUMN workers.user_agent IS
  'User-Agent of that request, cut to 256 bytes, such as progressor-node/0.1.0. NULL if it has '
  'none.';

-- +goose Down
ALTER TABLE workers DROP COLUMN user_agent;
ALTER TABLE workers DROP COLUMN address;
