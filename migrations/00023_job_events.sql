-- +goose Up
-- The record of what became of jobs, runs and steps.
CREATE TABLE job_events (
  namespace    text COLLATE "C" NOT NULL,
  xid          xid8 NOT NULL DEFAULT greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8),
  event_id     bigint GENERATED ALWAYS AS IDENTITY,
  job_id       text COLLATE "C" NOT NULL,
  step_id      text,
  index        int,
  type         text NOT NULL,
  from_status  text,
  to_status    text,
  attempt      int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  worker_id    text,
  actor        text,
  message      text,
  metadata     jsonb CHECK (jsonb_typeof(metadata) = 'object'),
  PRIMARY KEY (namespace, xid, event_id)
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX job_events_job ON job_events (namespace COLLATE "POSIX", job_id COLLATE "POSIX", event_id);
-- The order of a watch is (xid, event_id) below the oldest transaction that runs: whatever is still to be committed comes behind that. A flush
-- that waits for the row of a job has drawn its number before the one it waits for may have; so xid is at least the newest that had ended
-- when the row was written, and the events of one job come in the order in which they happened.
COMMENT ON TABLE job_events IS 'What became of jobs, and of runs and their steps: one row for each change of a status, written by the transaction that makes it, and never changed. The namespace says which are written (job_events: all, ends, none) and how long they stay (retention).';
COMMENT ON COLUMN job_events.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_events.xid IS 'Number of the transaction that wrote it, or of the last one that had ended then, if that is larger. Rows below pg_snapshot_xmin(pg_current_snapshot()) are all there.';
COMMENT ON COLUMN job_events.event_id IS 'Number of the event; those of one job come in its order.';
COMMENT ON COLUMN job_events.job_id IS 'The job or the run, and the process that it is.';
COMMENT ON COLUMN job_events.step_id IS 'Of a run: the step; NULL: it is about the job, or the run itself.';
COMMENT ON COLUMN job_events.index IS 'Of a step that runs once for each of many items: which of them; else NULL.';
COMMENT ON COLUMN job_events.type IS 'What happened: enqueued, started, succeeded, attempt_failed, timeout, lease_lost, cancel_requested, …; see docs/jobs.md.';
COMMENT ON COLUMN job_events.from_status IS 'The status before, in lower case; NULL: there was none.';
COMMENT ON COLUMN job_events.to_status IS 'The status after it; NULL: there is none any more. As from_status: nothing has changed.';
COMMENT ON COLUMN job_events.attempt IS 'Number of the attempt that it is about; 0: none.';
COMMENT ON COLUMN job_events.created_time IS 'When it was written.';
COMMENT ON COLUMN job_events.worker_id IS 'The worker that held the attempt; NULL: none did, or a node ran it.';
COMMENT ON COLUMN job_events.actor IS 'Who asked for it; NULL: nobody, or nobody who was asked for a name.';
COMMENT ON COLUMN job_events.message IS 'What else there is to say: the message of a failure, the reason of a cancel.';
COMMENT ON COLUMN job_events.metadata IS 'More, as a JSON object; NULL: nothing.';

-- +goose Down
DROP TABLE job_events;
