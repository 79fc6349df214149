-- +goose Up
-- Grants of the clients with keys.
CREATE TABLE grants (
  principal    text COLLATE "C" NOT NULL,
  role         text COLLATE "C" NOT NULL,
  namespaces   text COLLATE "C" NOT NULL,
  created_by   text NOT NULL DEFAULT session_user,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (principal, role, namespaces),
  CONSTRAINT grants_principal_check CHECK (principal ~ '^key:[a-z0-9]{1,32}$'),
  CONSTRAINT grants_role_check CHECK (role ~ '^[a-z]{1,32}$'),
  CONSTRAINT grants_namespaces_check
    CHECK (namespaces ~ '^([a-zA-Z0-9._/-]{0,127}\*|[a-zA-Z0-9._/-]{1,128})$')
);
COMMENT ON TABLE grants IS
  'What clients may do: their roles in namespaces. Without a grant, a client may do nothing.';
COMMENT ON COLUMN grants.principal IS 'Who has the role: key: and the ID of a key.';
COMMENT ON COLUMN grants.role IS 'viewer, support, client, worker, author, admin or root.';
COMMENT ON COLUMN grants.namespaces IS
  'Where: the name of a namespace, a prefix and *, such as shop/*, or * for all.';
COMMENT ON COLUMN grants.created_by IS 'Database role that created the grant.';
COMMENT ON COLUMN grants.created_time IS 'When the grant was created.';

-- Keys that were created before grants existed may still do everything.
INSERT INTO grants (principal, role, namespaces)
SELECT 'key:' || key_id, 'root', '*' FROM api_keys;

-- +goose Down
DROP TABLE grants;
