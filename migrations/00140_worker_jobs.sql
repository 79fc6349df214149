-- +goose Up
-- A worker can be limited to some jobs. Older engines may run: they do not know the role worker:…,
-- so this role gives no permissions there.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';
ALTER TABLE grants
  DROP CONSTRAINT grants_role_check,
  ADD CONSTRAINT grants_role_check
    CHECK (role ~ '^([a-z]{1,32}|worker:[^[:cntrl:]]+)$' AND octet_length(role) <= 263) NOT VALID;
COMMENT ON COLUMN grants.role IS
  'viewer, support, client, worker, author, admin or root. worker: and the name of a job, or a '
  'prefix and *, such as worker:mail-*, is the role of a worker that is limited to these jobs.';

-- +goose Down
DELETE FROM grants WHERE starts_with(role, 'worker:');
ALTER TABLE grants
  DROP CONSTRAINT grants_role_check,
  ADD CONSTRAINT grants_role_check CHECK (role ~ '^[a-z]{1,32}$');
COMMENT ON COLUMN grants.role IS 'viewer, support, client, worker, author, admin or root.';
