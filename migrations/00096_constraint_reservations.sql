-- +goose Up
-- A job that needs several keys keeps the next free one of each, so that jobs which need fewer keys
-- do not always go first.
CREATE TABLE constraint_reservations (
  namespace     text COLLATE "C" NOT NULL,
  line          text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  reserved_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, line)
);
COMMENT ON TABLE constraint_reservations IS 'Keys of constraints that are kept free for a job that needs several keys and waits for another one of them.';
COMMENT ON COLUMN constraint_reservations.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN constraint_reservations.line IS 'The key: name of the constraint, =, value.';
COMMENT ON COLUMN constraint_reservations.process_id IS 'The job. The row has no effect if the job does not wait for a key.';
COMMENT ON COLUMN constraint_reservations.reserved_time IS 'When the key was reserved.';

-- +goose Down
DROP TABLE constraint_reservations;
