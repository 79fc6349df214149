-- +goose Up
-- When a key was used, and which key replaces it. Older engines may run: they write neither.
ALTER TABLE api_keys
  ADD COLUMN used_time timestamptz,
  ADD COLUMN replaced_by text COLLATE "C";
COMMENT ON TABLE api_keys IS
  'Keys with which clients authenticate. Engines and the command progressor key write them. A row '
  'is never deleted, so that audit entries can be attributed.';
COMMENT ON COLUMN api_keys.created_by IS
  'Who created the key: a client, such as key:ID, or a database role.';
COMMENT ON COLUMN api_keys.used_time IS
  'When the key was used. It is behind by at most about a minute. NULL if it was not used.';
COMMENT ON COLUMN api_keys.replaced_by IS
  'ID of the key that replaces the key. NULL if it was not rotated.';
COMMENT ON COLUMN grants.created_by IS
  'Who created the grant: a client, such as key:ID, or a database role.';

-- +goose Down
ALTER TABLE api_keys
  DROP COLUMN replaced_by,
  DROP COLUMN used_time;
COMMENT ON TABLE api_keys IS
  'Keys with which clients authenticate. A row is written by progressor key create, and changed by '
  'progressor key revoke. It is never deleted, so that audit entries can be attributed.';
COMMENT ON COLUMN api_keys.created_by IS 'Database role that created the key.';
COMMENT ON COLUMN grants.created_by IS 'Database role that created the grant.';
