-- +goose Up
-- A process can restart its history: it keeps its state, and its history begins with the next event. Older engines ignore the
-- new columns: they read older events until these have been removed.
ALTER TABLE processes
  ADD COLUMN first_event_id bigint NOT NULL DEFAULT 1,
  ADD COLUMN history_restarted_time timestamptz;
COMMENT ON COLUMN processes.first_event_id IS 'Number of the first event of its history; larger than last_event_id if the history is empty. Earlier events were removed, or will be.';
COMMENT ON COLUMN processes.history_restarted_time IS 'When its history was restarted last; NULL: never.';
COMMENT ON COLUMN processes.last_event_id IS 'Number of its last event. Events are numbered 1, 2, 3, … without gaps, also after its history was restarted.';

CREATE TABLE history_restarts (
  restart_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace      text COLLATE "C" NOT NULL,
  process_id     text COLLATE "C" NOT NULL,
  first_event_id bigint NOT NULL,
  next_task_id   bigint NOT NULL,
  fencing_token  bigint NOT NULL,
  restarted_time timestamptz NOT NULL
);
COMMENT ON TABLE history_restarts IS 'Restarts of histories whose old events and tasks are still to be removed. Rows are never changed, so that a restart waits for no removal.';
COMMENT ON COLUMN history_restarts.restart_id IS 'Number of the restart. Restarts are carried out in this order.';
COMMENT ON COLUMN history_restarts.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN history_restarts.process_id IS 'The process whose history was restarted.';
COMMENT ON COLUMN history_restarts.first_event_id IS 'Events with smaller numbers are removed.';
COMMENT ON COLUMN history_restarts.next_task_id IS 'Tasks that had ended before the restart have smaller numbers.';
COMMENT ON COLUMN history_restarts.fencing_token IS 'Tasks whose result was stored before the restart have smaller tokens.';
COMMENT ON COLUMN history_restarts.restarted_time IS 'When the history was restarted.';

-- +goose Down
DROP TABLE history_restarts;
ALTER TABLE processes DROP COLUMN first_event_id, DROP COLUMN history_restarted_time;
