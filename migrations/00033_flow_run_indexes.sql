-- +goose NO TRANSACTION
-- +goose Up
-- A run is written twice, and each index of flow_runs with it: those that hardly anybody asks go. No statement read flow_runs_finished, since retention
-- goes by the end of the process. What DeleteTemplate asked of flow_runs_open it finds by flow_runs_unfinished.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_finished;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_open;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_open;
CREATE INDEX CONCURRENTLY flow_runs_open ON flow_runs (namespace, template_type) WHERE finished_time IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_finished;
CREATE INDEX CONCURRENTLY flow_runs_finished ON flow_runs (namespace, finished_time) WHERE finished_time IS NOT NULL;
