-- +goose NO TRANSACTION
-- +goose Up
-- Clearer comments of columns. COMMENT waits for a vacuum of the table, but does not block engines,
-- so it may wait for a long time.
SET lock_timeout = 0;
COMMENT ON COLUMN schedule.running_time IS
  'Start of the attempt that deferred the response of the task. Such a task does not run again. '
  'NULL for other tasks.';
COMMENT ON COLUMN schedule.taker IS
  'Who may claim the task. For a member of a job that several workers run: = and the ID of its '
  'worker, or empty for any suitable worker. For the job itself: ~, because only the engine may '
  'claim it. NULL for other tasks.';
COMMENT ON COLUMN queue_backlogs.running_task_id IS
  'Number of the task that was running when the resume began. If this task is retried, it waits '
  'for the operator, even if prepared_task_id is not smaller. NULL if no task was running.';
COMMENT ON COLUMN dead_letters.dropped_time IS 'When the delivery was abandoned.';
COMMENT ON COLUMN jobs.takeovers IS
  'How often another worker took over the job because the previous one was lost. Such attempts do '
  'not count as retries.';
COMMENT ON COLUMN job_list.takeovers IS
  'How often another worker took over the job because the previous one was lost. Such attempts do '
  'not count as retries.';
COMMENT ON COLUMN jobs.options IS
  'Options of the job, as JSON (the message JobOptions of the API). Missing fields have their '
  'defaults. NULL if all fields have their defaults.';
COMMENT ON COLUMN job_groups.running_time IS
  'When the job began to run. It runs while a worker has a member, or if a member has succeeded. '
  'NULL if it waits for workers or has ended.';
COMMENT ON COLUMN nodes.beat_time IS
  'When the node sent its last heartbeat, by the clock of the database. The interval is three '
  'tenths of --engine.zombie-after, which is 10 seconds by default.';
COMMENT ON COLUMN api_keys.used_time IS
  'When the key was last used. The value lags by up to about a minute. NULL if the key was never '
  'used.';
COMMENT ON COLUMN console_logins.used_time IS
  'When the login was last used. The value lags by up to a minute, or by a tenth of '
  'auth.console.idle if that is less.';
COMMENT ON COLUMN audit.erased_time IS
  'When EraseProcess deleted the details and replaced the subject with its hash, which follows '
  'erased: in the column. NULL if it has not done so.';
RESET lock_timeout;

-- +goose Down
SET lock_timeout = 0;
COMMENT ON COLUMN schedule.running_time IS
  'When the attempt began that deferred the response of the task. Such a task does not run again. '
  'NULL for other tasks.';
COMMENT ON COLUMN schedule.taker IS
  'Who may claim the task. For a member of a job that several workers run: = and the ID of its '
  'worker, or empty for any suitable worker. For the job itself: ~, the engine. NULL for other '
  'tasks.';
COMMENT ON COLUMN queue_backlogs.running_task_id IS
  'Number of the task that was running when the resume began. If it is retried, it waits for the '
  'operator with this number. NULL if none was running.';
COMMENT ON COLUMN dead_letters.dropped_time IS 'When the delivery was given up.';
COMMENT ON COLUMN jobs.takeovers IS
  'How often another worker took over the job because one was lost. Such attempts do not count as '
  'retries.';
COMMENT ON COLUMN job_list.takeovers IS
  'How often another worker took over the job because one was lost. Such attempts do not count as '
  'retries.';
COMMENT ON COLUMN jobs.options IS
  'Options of the job, as JSON (the message JobOptions of the API). Missing fields have their '
  'defaults. NULL if all have.';
COMMENT ON COLUMN job_groups.running_time IS
  'When the job began to run, which it does while a worker has a member or a member has '
  'succeeded. NULL if it waits for workers or has ended.';
COMMENT ON COLUMN nodes.beat_time IS
  'When the node sent its last heartbeat, by the clock of the database. It sends one every three '
  'tenths of --engine.zombie-after (10 seconds by default).';
COMMENT ON COLUMN api_keys.used_time IS
  'When the key was last used, up to about a minute behind. NULL if it was never used.';
COMMENT ON COLUMN console_logins.used_time IS
  'When the login was last used, up to a minute, or a tenth of auth.console.idle if that is less, '
  'behind.';
COMMENT ON COLUMN audit.erased_time IS
  'When EraseProcess deleted the details, and replaced the subject by its hash after erased:. '
  'NULL if it has not done so.';
RESET lock_timeout;
