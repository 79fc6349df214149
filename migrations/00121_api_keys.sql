-- +goose Up
-- Keys with which clients authenticate.
CREATE TABLE api_keys (
  key_id       text COLLATE "C" NOT NULL,
  name         text NOT NULL DEFAULT '',
  secret_hash  bytea NOT NULL,
  created_by   text NOT NULL DEFAULT session_user,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  expire_time  timestamptz,
  revoked_time timestamptz,
  PRIMARY KEY (key_id),
  CONSTRAINT api_keys_key_id_check CHECK (key_id ~ '^[a-z0-9]{1,32}$'),
  CONSTRAINT api_keys_name_check CHECK (octet_length(name) <= 256),
  CONSTRAINT api_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32)
);
COMMENT ON TABLE api_keys IS
  'Keys with which clients authenticate. A row is written by progressor key create, and changed by '
  'progressor key revoke. It is never deleted, so that audit entries can be attributed.';
COMMENT ON COLUMN api_keys.key_id IS 'ID of the key, the part of the token after pgr_.';
COMMENT ON COLUMN api_keys.name IS 'What the key is for, at most 256 bytes.';
COMMENT ON COLUMN api_keys.secret_hash IS 'SHA-256 of the token. The token itself is not stored.';
COMMENT ON COLUMN api_keys.created_by IS 'Database role that created the key.';
COMMENT ON COLUMN api_keys.created_time IS 'When the key was created.';
COMMENT ON COLUMN api_keys.expire_time IS 'When the key expires. NULL if it does not.';
COMMENT ON COLUMN api_keys.revoked_time IS 'When the key was revoked. NULL if it is valid.';

-- +goose Down
DROP TABLE api_keys;
