-- +goose Up
-- A call can be answered by a later task of its process. Until then, the task of the call stays in
-- schedule and waits for the reply. Engines before this version would run the task again after a
-- suspension.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 156::bigint';
ALTER TYPE waits_for ADD VALUE IF NOT EXISTS 'reply';
ALTER TABLE schedule ADD COLUMN running_time timestamptz;
COMMENT ON TYPE waits_for IS
  'What a waiting task waits for: time (its scheduled_time), place (a free slot on any node), '
  'process (another task of its process), operator (the resume of its suspended process), '
  'constraint (a key of a constraint), members (the end of a member of a job that several workers '
  'run), or reply (the response that a later task of its process gives).';
COMMENT ON COLUMN schedule.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint, members or reply. '
  'See the type waits_for.';
COMMENT ON COLUMN schedule.running_time IS
  'When the attempt began that deferred the response of the task. Such a task does not run again. '
  'NULL for other tasks.';
COMMENT ON COLUMN waiting_list.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint, members or reply. '
  'See the type waits_for.';

-- +goose Down
-- The value of the type remains, because PostgreSQL cannot remove it.
WITH deleted_schedule AS (
  DELETE FROM schedule WHERE running_time IS NOT NULL RETURNING *)
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                   fencing_token, scheduled_time, finished_time, retry_interval, idempotency_key,
                   args, context)
SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, priority, fencing_token,
       scheduled_time, statement_timestamp(), retry_interval, idempotency_key, args, context
  FROM deleted_schedule;
ALTER TABLE schedule DROP COLUMN running_time;
COMMENT ON TYPE waits_for IS
  'What a waiting task waits for: time (its scheduled_time), place (a free slot on any node), '
  'process (another task of its process), operator (the resume of its suspended process), '
  'constraint (a key of a constraint), or members (the end of a member of a job that several '
  'workers run).';
COMMENT ON COLUMN schedule.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint or members. See '
  'the type waits_for.';
COMMENT ON COLUMN waiting_list.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint or members. See '
  'the type waits_for.';
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 151::bigint';
