-- +goose NO TRANSACTION
-- +goose Up
-- Workers as they make themselves known. Nothing refers to a row: a worker that is not in it is served as any other.
CREATE TABLE IF NOT EXISTS workers (
  namespace      text COLLATE "C" NOT NULL,
  worker_id      text COLLATE "C" NOT NULL CHECK (octet_length(worker_id) BETWEEN 1 AND 256),
  last_seen_time timestamptz NOT NULL,
  directive      text CHECK (directive IN ('quiet', 'stop')),
  lost_time      timestamptz,
  reason         text,
  PRIMARY KEY (namespace, worker_id),
  CONSTRAINT workers_stop_has_time CHECK ((directive IS NOT DISTINCT FROM 'stop') = (lost_time IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS workers_worker ON workers (worker_id);
COMMENT ON TABLE workers IS 'Workers that have polled or beaten within a day: one row for each namespace that one works for. Written every few seconds, not with every poll.';
COMMENT ON COLUMN workers.namespace IS 'A namespace that it takes tasks of.';
COMMENT ON COLUMN workers.worker_id IS 'The worker, as it calls itself: one worker in all namespaces.';
COMMENT ON COLUMN workers.last_seen_time IS 'When it polled or beat last, by the clock of the database; up to a few seconds late.';
COMMENT ON COLUMN workers.directive IS 'What an operator has told it: quiet (take nothing new), stop (and end); NULL: go on.';
COMMENT ON COLUMN workers.lost_time IS 'Of stop: when what it still holds then is given to others.';
COMMENT ON COLUMN workers.reason IS 'Why the operator has told it so; NULL: not said.';

-- Lists of jobs by name and by tag, neither of which changes while a job runs, so that no attempt writes them; and of those that wait for their
-- time, among any number of timers.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_job_times;
CREATE INDEX CONCURRENTLY schedule_job_times ON schedule (namespace COLLATE "POSIX", scheduled_time) WHERE waits_for = 'time' AND job_name IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS jobs_name;
CREATE INDEX CONCURRENTLY jobs_name ON jobs (namespace COLLATE "POSIX", name COLLATE "POSIX");
DROP INDEX CONCURRENTLY IF EXISTS jobs_tags;
CREATE INDEX CONCURRENTLY jobs_tags ON jobs USING gin (tags jsonb_path_ops) WITH (fastupdate = off) WHERE tags IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_tags;
DROP INDEX CONCURRENTLY IF EXISTS jobs_name;
DROP INDEX CONCURRENTLY IF EXISTS schedule_job_times;
DROP TABLE IF EXISTS workers;
