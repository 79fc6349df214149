-- +goose Up
-- Secrets that headers refer to, and the key that encrypts secrets and headers.
CREATE TABLE secrets (
  namespaces   text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  value        text NOT NULL,
  created_by   text NOT NULL DEFAULT session_user,
  updated_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (name, namespaces),
  CONSTRAINT secrets_name_check CHECK (name ~ '^[a-zA-Z0-9_.-]{1,64}$'),
  CONSTRAINT secrets_namespaces_check
    CHECK (namespaces ~ '^([a-zA-Z0-9._/-]{0,127}\*|[a-zA-Z0-9._/-]{1,128})$')
);
COMMENT ON TABLE secrets IS
  'Secrets that headers use as ${secret:NAME}. A row is written by progressor secret put, and '
  'deleted by progressor secret remove.';
COMMENT ON COLUMN secrets.namespaces IS
  'Who may use it: the name of a namespace, a prefix and *, such as shop/*, or * for all.';
COMMENT ON COLUMN secrets.name IS 'Name in references.';
COMMENT ON COLUMN secrets.value IS 'The encrypted value.';
COMMENT ON COLUMN secrets.created_by IS 'Database role that stored the value.';
COMMENT ON COLUMN secrets.updated_time IS 'When the value was stored.';

CREATE TABLE seal_keys (
  one_row      boolean NOT NULL DEFAULT true,
  key          bytea NOT NULL,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (one_row),
  CONSTRAINT seal_keys_one_row_check CHECK (one_row),
  CONSTRAINT seal_keys_key_check CHECK (octet_length(key) = 32)
);
COMMENT ON TABLE seal_keys IS
  'The key that encrypts secrets and headers if the engine has no secrets.master_key_file: at most '
  'one row. The engine creates it when it needs it.';
COMMENT ON COLUMN seal_keys.one_row IS 'Always true: the key of the only row.';
COMMENT ON COLUMN seal_keys.key IS 'Key of AES-256-GCM, 32 random bytes.';
COMMENT ON COLUMN seal_keys.created_time IS 'When the key was created.';

COMMENT ON COLUMN sinks.secrets IS
  'Secrets of the target, encrypted: the fields of Sink that have them.';

-- +goose Down
COMMENT ON COLUMN sinks.secrets IS 'Secrets of the target: the fields of Sink that have them.';
DROP TABLE seal_keys;
DROP TABLE secrets;
