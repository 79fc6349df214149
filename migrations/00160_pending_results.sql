-- +goose NO TRANSACTION
-- +goose Up
-- This index finds the leases of attempts that nodes must end with the result in the lease.
DROP INDEX CONCURRENTLY IF EXISTS leases_pending_result;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY leases_pending_result ON leases (fencing_token)
 WHERE pending_result IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS leases_pending_result;
