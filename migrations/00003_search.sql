-- +goose Up
CREATE TABLE status_counts (
  namespace text COLLATE "C" NOT NULL,
  lane      int NOT NULL DEFAULT coalesce(NULLIF(current_setting('progressor.lane', true), '')::int, 0),
  status    process_status NOT NULL CHECK (status <> 'INIT'),
  n         bigint NOT NULL,
  PRIMARY KEY (namespace, lane, status)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE status_counts IS 'How many processes there are in each status: sum n over the lanes. A transaction that makes, removes or moves processes counts what it does, so the sums are exact.';
COMMENT ON COLUMN status_counts.namespace IS 'Namespace of the processes.';
COMMENT ON COLUMN status_counts.lane IS 'Who counted: each lane of each engine has rows of its own, so that none waits for another (one row for all costs 11 %). 0: who has no lane.';
COMMENT ON COLUMN status_counts.status IS 'Status of the processes; RUNNING counts those in INIT too: else every start would be counted twice.';
COMMENT ON COLUMN status_counts.n IS 'How many came into the status, less those that left it. Of one lane it may be negative: another may have counted them in.';
INSERT INTO status_counts (namespace, lane, status, n)
SELECT namespace, 0, coalesce(attention, 'RUNNING'), count(*) FROM processes WHERE removed_time IS NULL GROUP BY namespace, coalesce(attention, 'RUNNING');

-- +goose Down
DROP TABLE status_counts;
