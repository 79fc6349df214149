-- +goose NO TRANSACTION
-- +goose Up
-- This index finds when a process was suspended and resumed, for its explanation.
DROP INDEX CONCURRENTLY IF EXISTS audit_suspensions;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY audit_suspensions ON audit (namespace, subject, audit_id)
  WHERE method IN ('SuspendProcess', 'ResumeProcess');
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS audit_suspensions;
