-- +goose Up
-- Clients with a certificate can have grants. Older engines may run: they read only the grants of
-- keys.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';
ALTER TABLE grants
  DROP CONSTRAINT grants_principal_check,
  ADD CONSTRAINT grants_principal_check
    CHECK (principal ~ '^(key:[a-z0-9]{1,32}|cert:[a-z][a-z0-9+.-]*:[!-~]+)$'
           AND length(principal) <= 505) NOT VALID;
COMMENT ON COLUMN grants.principal IS
  'Who has the role: key: and the ID of a key, or cert: and the URI of client certificates.';

-- +goose Down
DELETE FROM grants WHERE NOT starts_with(principal, 'key:');
ALTER TABLE grants
  DROP CONSTRAINT grants_principal_check,
  ADD CONSTRAINT grants_principal_check CHECK (principal ~ '^key:[a-z0-9]{1,32}$');
COMMENT ON COLUMN grants.principal IS 'Who has the role: key: and the ID of a key.';
