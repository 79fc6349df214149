-- +goose Up
CREATE TABLE failed_attempts (
  namespace            text COLLATE "C" NOT NULL,
  process_id           text COLLATE "C" NOT NULL,
  task_id              bigint NOT NULL,
  attempt              int NOT NULL CHECK (attempt > 0),
  reason               text NOT NULL CHECK (octet_length(reason) <= 1024),
  message              text NOT NULL CHECK (octet_length(message) <= 4096),
  node_id              bigint NOT NULL,
  running_time         timestamptz NOT NULL,
  failed_time          timestamptz NOT NULL,
  first_scheduled_time timestamptz NOT NULL,
  PRIMARY KEY (namespace, process_id, task_id, attempt)
);
COMMENT ON TABLE failed_attempts IS 'Attempts that failed and were repeated: the newest 10 of each task that is not a job. Jobs keep their own failures. Removed with the task.';
COMMENT ON COLUMN failed_attempts.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN failed_attempts.process_id IS 'The process of the task.';
COMMENT ON COLUMN failed_attempts.task_id IS 'The task.';
COMMENT ON COLUMN failed_attempts.attempt IS 'Number of the attempt, from 1.';
COMMENT ON COLUMN failed_attempts.reason IS 'Reason of the failure, at most 256 characters.';
COMMENT ON COLUMN failed_attempts.message IS 'Message of the failure, at most 1,000 characters.';
COMMENT ON COLUMN failed_attempts.node_id IS 'The node that ran the attempt.';
COMMENT ON COLUMN failed_attempts.running_time IS 'When the attempt began.';
COMMENT ON COLUMN failed_attempts.failed_time IS 'When its failure was stored.';
COMMENT ON COLUMN failed_attempts.first_scheduled_time IS 'When the task was first due: a retry has another scheduled_time.';

-- +goose Down
DROP TABLE failed_attempts;
