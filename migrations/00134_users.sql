-- +goose Up
-- Users of issuers and their groups can have grants. Older engines may run: they do not read the
-- grants of users and groups.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';
ALTER TABLE grants
  DROP CONSTRAINT grants_principal_check,
  ADD CONSTRAINT grants_principal_check
    CHECK (principal ~ ('^(key:[a-z0-9]{1,32}|cert:[a-z][a-z0-9+.-]*:[!-~]+|'
                        || 'user:https?://[!-"$-~]+#[!-~]+|group:[^[:cntrl:]]+)$')
           AND length(principal) <= 505) NOT VALID;
COMMENT ON COLUMN grants.principal IS
  'Who has the role: key: and the ID of a key, cert: and the URI of client certificates, user: and '
  'the issuer and name of a user, or group: and a group of users.';

-- +goose Down
DELETE FROM grants WHERE principal ~ '^(user|group):';
ALTER TABLE grants
  DROP CONSTRAINT grants_principal_check,
  ADD CONSTRAINT grants_principal_check
    CHECK (principal ~ '^(key:[a-z0-9]{1,32}|cert:[a-z][a-z0-9+.-]*:[!-~]+)$'
           AND length(principal) <= 505);
COMMENT ON COLUMN grants.principal IS
  'Who has the role: key: and the ID of a key, or cert: and the URI of client certificates.';
