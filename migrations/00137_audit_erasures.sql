-- +goose NO TRANSACTION
-- +goose Up
-- This index finds the audit entries of EraseProcess for a process ID.
DROP INDEX CONCURRENTLY IF EXISTS audit_erasures;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY audit_erasures ON audit (namespace, subject)
  WHERE method = 'EraseProcess';
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS audit_erasures;
