-- +goose NO TRANSACTION
-- +goose Up
-- This index is for reading the hash chain of the audit in order, and for finding the rows that are
-- not in it.
DROP INDEX CONCURRENTLY IF EXISTS audit_chain_position;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY audit_chain_position ON audit (chain_position, audit_id);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS audit_chain_position;
