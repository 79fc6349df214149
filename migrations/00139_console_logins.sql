-- +goose Up
-- Logins to the web console. Older engines may run: they do not use this table.
CREATE TABLE console_logins (
  login_id     text COLLATE "C" NOT NULL,
  secret_hash  bytea NOT NULL,
  principal    text COLLATE "C" NOT NULL,
  group_names  text[] NOT NULL,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  used_time    timestamptz NOT NULL DEFAULT statement_timestamp(),
  expire_time  timestamptz NOT NULL,
  PRIMARY KEY (login_id),
  CONSTRAINT console_logins_login_id_check CHECK (login_id ~ '^[a-z0-9]{1,32}$'),
  CONSTRAINT console_logins_secret_hash_check CHECK (octet_length(secret_hash) = 32),
  CONSTRAINT console_logins_principal_check
    CHECK (principal ~ '^user:https?://[!-"$-~]+#[!-~]+$' AND length(principal) <= 505),
  CONSTRAINT console_logins_group_names_check CHECK (cardinality(group_names) <= 200)
);
CREATE INDEX console_logins_principal ON console_logins (principal, created_time);
CREATE INDEX console_logins_expire_time ON console_logins (expire_time);
COMMENT ON TABLE console_logins IS
  'Logins of users to the web console. Engines write a row for a login, and delete it after the '
  'logout or expire_time.';
COMMENT ON COLUMN console_logins.login_id IS 'ID of the login, the part of the cookie after pgl_.';
COMMENT ON COLUMN console_logins.secret_hash IS
  'SHA-256 of the cookie. The cookie itself is not stored.';
COMMENT ON COLUMN console_logins.principal IS 'Who has logged in: user: and the issuer and name.';
COMMENT ON COLUMN console_logins.group_names IS
  'Groups of the user at the login: group: and the name of each.';
COMMENT ON COLUMN console_logins.created_time IS 'When the user has logged in.';
COMMENT ON COLUMN console_logins.used_time IS
  'When the login was used. It is behind by at most a minute, and by a tenth of '
  'auth.console.idle.';
COMMENT ON COLUMN console_logins.expire_time IS
  'When the login ends. It ends earlier if it is not used for auth.console.idle.';

-- +goose Down
DROP TABLE console_logins;
