-- +goose NO TRANSACTION
-- +goose Up
-- Clearer comments. COMMENT waits for a vacuum of the table, but does not block engines, so it may
-- wait for a long time.
SET lock_timeout = 0;
COMMENT ON COLUMN task_list.attempt IS
  'Number of the running attempt. If no attempt runs, the number of attempts so far.';
COMMENT ON COLUMN job_list.attempt IS
  'Number of the running attempt. If no attempt runs, the number of attempts so far.';
COMMENT ON COLUMN task_list.scheduled_time IS
  'When the task is due. For a call that waits, when it was accepted. For a task that runs or has '
  'ended, when it was due or accepted.';
COMMENT ON VIEW change_triggers IS
  'The triggers that record changes. They exist while at least one namespace records changes.';
COMMENT ON FUNCTION require_change_triggers IS
  'Trigger function that rejects the setting "changes" of a namespace while a trigger that records '
  'changes is missing.';
COMMENT ON COLUMN sinks.resumed_time IS
  'When the sink was created, resumed or rewound. max_lag is measured from this time, or from the '
  'oldest undelivered change if that is later.';
RESET lock_timeout;

-- +goose Down
SET lock_timeout = 0;
COMMENT ON COLUMN task_list.attempt IS
  'Number of the running attempt, or of past attempts. 0 if there are none.';
COMMENT ON COLUMN job_list.attempt IS
  'Number of the running attempt, or of past attempts. 0 if there are none.';
COMMENT ON COLUMN task_list.scheduled_time IS 'When the task is or was due, or was accepted.';
COMMENT ON VIEW change_triggers IS
  'The triggers that record changes, which exist while a namespace records.';
COMMENT ON FUNCTION require_change_triggers IS
  'Trigger function that rejects a namespace with the setting changes while a trigger is missing.';
COMMENT ON COLUMN sinks.resumed_time IS
  'When the sink was created, resumed or rewound. Its lag counts from then.';
RESET lock_timeout;
