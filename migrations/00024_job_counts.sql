-- +goose Up
-- How many jobs stand where, by name. Counted as status_counts are.
CREATE TABLE job_counts (
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  lane      int NOT NULL DEFAULT coalesce(NULLIF(current_setting('progressor.lane', true), '')::int, 0),
  state     text NOT NULL CHECK (state IN ('scheduled', 'available', 'retryable', 'succeeded', 'failed', 'cancelled')),
  n         bigint NOT NULL,
  PRIMARY KEY (namespace, name, lane, state)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE job_counts IS 'How many jobs of each name stand in each state: sum n over the lanes. A transaction that makes, removes or moves jobs counts what it does, so the sums are exact.';
COMMENT ON COLUMN job_counts.namespace IS 'Namespace of the jobs.';
COMMENT ON COLUMN job_counts.name IS 'Name of the jobs.';
COMMENT ON COLUMN job_counts.lane IS 'Who counted: each lane of each engine has rows of its own, so that none waits for another. 0: who has no lane.';
COMMENT ON COLUMN job_counts.state IS 'State of the jobs in lower case; available counts those that run too, which running tells: else every claim would count.';
COMMENT ON COLUMN job_counts.n IS 'How many came into the state, less those that left it. Of one lane it may be negative: another may have counted them in.';
INSERT INTO job_counts (namespace, name, lane, state, n)
SELECT j.namespace, j.name, 0, x.state, count(*)
  FROM jobs j JOIN processes p ON p.namespace = j.namespace AND p.process_id = j.process_id AND p.removed_time IS NULL
  LEFT JOIN schedule s ON s.namespace = j.namespace AND s.process_id = j.process_id
 CROSS JOIN LATERAL (SELECT CASE WHEN p.status = 'COMPLETED' THEN 'succeeded' WHEN p.status = 'ERROR' THEN 'failed' WHEN p.status = 'CANCELLED' THEN 'cancelled'
                                 WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable' WHEN s.waits_for = 'time' THEN 'scheduled' ELSE 'available' END AS state) x
 GROUP BY j.namespace, j.name, x.state;

-- +goose Down
DROP TABLE job_counts;
