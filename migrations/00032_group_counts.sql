-- +goose Up
-- A job that several workers run stands in schedule while they do, not in running: so that it is told from those that wait, it is counted.
ALTER TABLE job_counts DROP CONSTRAINT job_counts_state_check, ADD CONSTRAINT job_counts_state_check
  CHECK (state IN ('scheduled', 'available', 'running', 'retryable', 'cancel_requested', 'succeeded', 'failed', 'cancelled')) NOT VALID;
COMMENT ON COLUMN job_counts.state IS 'State of the jobs in lower case. available counts those that run too: of one worker running tells which these are, else every claim would count; of several they are counted once more, as running or cancel_requested.';
INSERT INTO job_counts (namespace, name, lane, state, n)
SELECT s.namespace, s.job_name, 0, CASE WHEN p.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, count(*)
  FROM schedule s JOIN processes p ON p.namespace = s.namespace AND p.process_id = s.process_id
 WHERE s.taker = '~' AND s.attempt > 0 GROUP BY 1, 2, 3, 4
    ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;

-- An older one would end them uncounted.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';

-- +goose Down
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 25::bigint';
DELETE FROM job_counts WHERE state IN ('running', 'cancel_requested');
ALTER TABLE job_counts DROP CONSTRAINT job_counts_state_check, ADD CONSTRAINT job_counts_state_check
  CHECK (state IN ('scheduled', 'available', 'retryable', 'succeeded', 'failed', 'cancelled'));
