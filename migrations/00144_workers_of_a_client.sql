-- +goose NO TRANSACTION
-- +goose Up
-- This index is for counting the worker IDs of a client.
DROP INDEX CONCURRENTLY IF EXISTS workers_owner;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY workers_owner ON workers (owner, namespace) WHERE owner IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS workers_owner;
