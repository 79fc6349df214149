-- +goose NO TRANSACTION
-- +goose Up
-- Lists of one status, newest or oldest first: without it a page of those in ERROR, one in a hundred, reads 10,000 rows of all.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS processes_attention_created;
CREATE INDEX CONCURRENTLY processes_attention_created ON processes
  (namespace COLLATE "POSIX", attention, created_time DESC, process_id COLLATE "POSIX" DESC) WHERE attention IS NOT NULL;
RESET lock_timeout;

CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 10::bigint';
COMMENT ON FUNCTION oldest_engine() IS 'Programs built for this version of the schema or a later one work with it. A migration that takes away or changes what an engine uses raises it.';

-- +goose Down
DROP FUNCTION IF EXISTS oldest_engine();
DROP INDEX CONCURRENTLY IF EXISTS processes_attention_created;
