-- +goose Up
-- A worker ID belongs to the client that uses it. Older engines write no owner, and check none.
ALTER TABLE workers ADD COLUMN owner text;
COMMENT ON COLUMN workers.owner IS
  'Client that uses the ID: the name of its key, or of the client. NULL if the engine does not '
  'authenticate.';

-- +goose Down
ALTER TABLE workers DROP COLUMN owner;
