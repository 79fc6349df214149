-- +goose NO TRANSACTION
-- +goose Up
-- These indexes are for finding the processes and runs of an error group. The reason of an error is
-- stored only with the task that caused it. An imported process has no such task. The index of
-- imported processes does not contain detail, because an update of an indexed column is not HOT.
DROP INDEX CONCURRENTLY IF EXISTS tasks_errors;
DROP INDEX CONCURRENTLY IF EXISTS processes_imported_errors;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_errors;
SET lock_timeout = 0;
CREATE INDEX CONCURRENTLY tasks_errors
    ON tasks (namespace COLLATE "POSIX",
              error_fingerprint(failure->>'reason', failure->>'message'))
 WHERE status = 'ERROR';
CREATE INDEX CONCURRENTLY processes_imported_errors
    ON processes (namespace COLLATE "POSIX", process_id COLLATE "POSIX")
 WHERE attention = 'ERROR' AND corrupted_by = 0;
CREATE INDEX CONCURRENTLY flow_runs_errors
    ON flow_runs (namespace COLLATE "POSIX",
                  error_fingerprint(failure->>'reason', failure->>'message'),
                  created_time DESC, run_id COLLATE "POSIX" DESC)
 WHERE status IN ('failed', 'expired') AND parent_run_id IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_errors;
DROP INDEX CONCURRENTLY IF EXISTS processes_imported_errors;
DROP INDEX CONCURRENTLY IF EXISTS tasks_errors;
