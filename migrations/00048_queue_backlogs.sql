-- +goose Up
-- A change of status moves a bounded number of waiting rows. The others follow in batches, and until then their process is listed here. Older
-- engines move all rows at once, and ignore this table.
CREATE TABLE queue_backlogs (
  namespace        text COLLATE "C" NOT NULL,
  process_id       text COLLATE "C" NOT NULL,
  resuming         boolean NOT NULL DEFAULT false,
  cancelled_by     bigint,
  after_task_id    bigint NOT NULL DEFAULT 0,
  after_message_id bigint NOT NULL DEFAULT 0,
  created_time     timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, process_id)
);
COMMENT ON TABLE queue_backlogs IS 'Processes with more waiting tasks or held messages than one statement moves. A background job moves the rest as the status of the process requires, then deletes the row.';
COMMENT ON COLUMN queue_backlogs.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN queue_backlogs.process_id IS 'The process.';
COMMENT ON COLUMN queue_backlogs.resuming IS 'true: a resume is moving the rows itself; the background job leaves them alone.';
COMMENT ON COLUMN queue_backlogs.cancelled_by IS 'cancelled_by of the waiting tasks that are still to be cancelled; NULL if no task cancelled them.';
COMMENT ON COLUMN queue_backlogs.after_task_id IS 'Waiting tasks up to this task_id have been moved.';
COMMENT ON COLUMN queue_backlogs.after_message_id IS 'Held messages up to this message_id have been released.';
COMMENT ON COLUMN queue_backlogs.created_time IS 'When the row was written.';

-- +goose Down
DROP TABLE queue_backlogs;
