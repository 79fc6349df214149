-- +goose Up
-- Tasks of processes.

CREATE TYPE task_status AS ENUM ('WAITING', 'RUNNING', 'BLOCKED', 'FINISHED', 'ERROR', 'CANCELLED');
COMMENT ON TYPE task_status IS
  'Status of a task: WAITING or BLOCKED in schedule, RUNNING in running, and FINISHED, ERROR or '
  'CANCELLED in tasks. BLOCKED is not stored: it is a timer whose process handles another task.';

CREATE TYPE task_type AS ENUM ('INIT', 'CALL', 'NOTIFY', 'REPAIR', 'TIMEOUT', 'REMOVE', 'CANCEL');
COMMENT ON TYPE task_type IS
  'Type of a task. The caller waits for the response of INIT, CALL and REPAIR, but not of NOTIFY '
  'and CANCEL. TIMEOUT and REMOVE are timers.';

CREATE TYPE waits_for AS ENUM ('time', 'place', 'process', 'operator', 'constraint', 'members');
COMMENT ON TYPE waits_for IS
  'What a waiting task waits for: time (its scheduled_time), place (a free slot on any node), '
  'process (another task of its process), operator (the resume of its suspended process), '
  'constraint (a key of a constraint), or members (the end of a member of a job that several '
  'workers run).';

CREATE SEQUENCE fencing_tokens;
COMMENT ON SEQUENCE fencing_tokens IS
  'Fencing tokens, one for each attempt. Each claim of a task gets a larger one, also after its '
  'process was removed and started again.';

CREATE SEQUENCE task_ids;
COMMENT ON SEQUENCE task_ids IS
  'Numbers of tasks. They are assigned under the lock of the process, so the tasks of a process '
  'are numbered in the order in which it accepted them.';

CREATE TABLE schedule (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  waits_for       waits_for NOT NULL,
  attempt         int NOT NULL DEFAULT 0,
  priority        int NOT NULL DEFAULT 0,
  scheduled_time  timestamptz NOT NULL,
  fencing_token   bigint,
  retry_interval  interval,
  timer_name      text,
  history_range   jsonb,
  idempotency_key text,
  failure         jsonb,
  args            bytea,
  context         bytea,
  child           jsonb,
  job_name        text,
  line            text COLLATE "C",
  taker           text,
  own_priority    int,
  start_deadline  timestamptz,
  round           bigint NOT NULL DEFAULT 0,
  fairness_key    text COLLATE "C",
  PRIMARY KEY (namespace, process_id, task_id),
  CONSTRAINT schedule_attempt_check CHECK (attempt >= 0),
  CONSTRAINT schedule_timer_has_name CHECK (
    (task_type IN ('TIMEOUT', 'REMOVE')) = (timer_name IS NOT NULL))
)
WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2,
      autovacuum_analyze_threshold = 50000);
COMMENT ON TABLE schedule IS
  'Waiting tasks: timers, retries, delayed starts, and calls of a busy process. A row is deleted '
  'when the task is claimed or cancelled. At most one task of a process waits for a slot: its '
  'next one.';
COMMENT ON COLUMN schedule.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN schedule.process_id IS 'ID of the process.';
COMMENT ON COLUMN schedule.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN schedule.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN schedule.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint or members. See '
  'the type waits_for.';
COMMENT ON COLUMN schedule.attempt IS 'Number of past attempts. 0 if there are none.';
COMMENT ON COLUMN schedule.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. A task that '
  'waits for a slot has the smallest priority of the waiting tasks of its process.';
COMMENT ON COLUMN schedule.scheduled_time IS
  'When the task is due. For a call that waits, when it was accepted.';
COMMENT ON COLUMN schedule.fencing_token IS
  'Fencing token of the last attempt. NULL if the task was never claimed.';
COMMENT ON COLUMN schedule.retry_interval IS
  'Wait before the next attempt, if it is a retry. NULL otherwise.';
COMMENT ON COLUMN schedule.timer_name IS
  'Name of the timer, empty for the default timer. NULL if the task is not a timer.';
COMMENT ON COLUMN schedule.history_range IS
  'Events that the processor gets, as JSON. NULL for those that the history mode of the namespace '
  'selects.';
COMMENT ON COLUMN schedule.idempotency_key IS
  'Idempotency key of the request. NULL if it has none.';
COMMENT ON COLUMN schedule.failure IS
  'Failure of the last attempt, as JSON (reason, message, details). NULL if there is none.';
COMMENT ON COLUMN schedule.args IS
  'Args that the caller sent, opaque to the engine (bytes). NULL if there are none.';
COMMENT ON COLUMN schedule.context IS
  'Context that the caller sent, which the processor gets with this task and with the timers that '
  'it sets (bytes). NULL if there is none.';
COMMENT ON COLUMN schedule.child IS
  'For a NOTIFY task about the end of a child, or of several jobs of a run: which ended and how, '
  'as JSON. NULL for other tasks.';
COMMENT ON COLUMN schedule.job_name IS
  'Name of the job, by which workers choose jobs. NULL if the task is not that of a job.';
COMMENT ON COLUMN schedule.line IS
  'For a job that needs keys: the key queue in which it waits, or last waited (name of the '
  'constraint, =, value of its key). Empty if not yet known. NULL for other tasks.';
COMMENT ON COLUMN schedule.taker IS
  'Who may claim the task. For a member of a job that several workers run: = and the ID of its '
  'worker, or empty for any suitable worker. For the job itself: ~, the engine. NULL for other '
  'tasks.';
COMMENT ON COLUMN schedule.own_priority IS
  'Priority of the task itself, if priority is or was the smaller one of a task behind it. NULL '
  'otherwise.';
COMMENT ON COLUMN schedule.start_deadline IS
  'For a job without an attempt: until when its first attempt must begin, scheduled_time plus the '
  'option start_deadline. It is not claimed later. NULL if there is no limit, or if an attempt was '
  'counted.';
COMMENT ON COLUMN schedule.round IS
  'Round in which a job with a fairness key runs, within its priority, among the jobs that wait '
  'for a slot or for the same key of a constraint. 0 for other tasks, which run first.';
COMMENT ON COLUMN schedule.fairness_key IS
  'Fairness key of the job: the value of the fairness_key of its namespace. NULL if there is none.';
CREATE INDEX schedule_time ON schedule (namespace COLLATE "POSIX", scheduled_time)
  WHERE waits_for = 'time';
CREATE INDEX schedule_cron ON schedule (namespace COLLATE "POSIX", scheduled_time)
  WHERE waits_for = 'time' AND starts_with(process_id, '~cron/');
CREATE INDEX schedule_own ON schedule (namespace COLLATE "POSIX", priority, task_id)
  WHERE waits_for = 'place' AND starts_with(process_id, '~') AND NOT starts_with(process_id,
                                            '~job/');
CREATE INDEX schedule_job_times ON schedule (namespace COLLATE "POSIX", scheduled_time)
  WHERE waits_for = 'time' AND job_name IS NOT NULL;
CREATE INDEX schedule_line_times ON schedule (namespace COLLATE "POSIX", scheduled_time)
  WHERE waits_for = 'time' AND line IS NOT NULL;
-- The predicate on waits_for is written in another way than in all other indexes. Otherwise the
-- planner would use schedule_place, which contains all waiting tasks.
CREATE INDEX schedule_takers ON schedule (taker, namespace COLLATE "POSIX", priority, task_id)
  WHERE taker IS NOT NULL AND ((waits_for = 'place')::integer = 1);
CREATE INDEX schedule_members ON schedule (namespace COLLATE "POSIX", task_id)
  WHERE waits_for = 'members';
CREATE INDEX schedule_due ON schedule (scheduled_time) WHERE (waits_for = 'time')::integer = 1;
CREATE INDEX schedule_internal_retries ON schedule (namespace, process_id)
  WHERE attempt > 0 AND starts_with(process_id, '~') AND NOT starts_with(process_id, '~job/');
CREATE INDEX schedule_start_deadline ON schedule (start_deadline)
  WHERE start_deadline IS NOT NULL;
CREATE INDEX schedule_rounds ON schedule (namespace COLLATE "POSIX",
  priority, round, task_id)
  WHERE waits_for = 'place';
CREATE INDEX schedule_job_rounds ON schedule (namespace COLLATE "POSIX",
  job_name, priority, round, task_id)
  WHERE waits_for = 'place' AND job_name IS NOT NULL;
CREATE INDEX schedule_line_rounds ON schedule (namespace COLLATE "POSIX",
  line, priority, round, task_id)
  WHERE waits_for = 'constraint';
CREATE INDEX schedule_job_fairness ON schedule (namespace COLLATE "POSIX",
  job_name, priority, fairness_key, round)
  WHERE waits_for = 'place' AND fairness_key IS NOT NULL;
CREATE INDEX schedule_line_fairness ON schedule (namespace COLLATE "POSIX",
  line, priority, fairness_key, round)
  WHERE waits_for = 'constraint' AND fairness_key IS NOT NULL;

CREATE TABLE running (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  attempt         int NOT NULL,
  priority        int NOT NULL DEFAULT 0,
  fencing_token   bigint NOT NULL,
  node_id         bigint NOT NULL,
  deadline        timestamptz NOT NULL,
  scheduled_time  timestamptz NOT NULL,
  running_time    timestamptz NOT NULL,
  retry_interval  interval,
  timer_name      text,
  history_range   jsonb,
  idempotency_key text,
  args            bytea,
  context         bytea,
  child           jsonb,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT running_attempt_check CHECK (attempt > 0)
)
WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
      autovacuum_analyze_threshold = 50000);
COMMENT ON TABLE running IS
  'Running tasks: at most one per process. A row is written when the task is claimed, and deleted '
  'when its attempt ends. It is a lease of the node.';
COMMENT ON COLUMN running.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN running.process_id IS 'ID of the process.';
COMMENT ON COLUMN running.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN running.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN running.attempt IS 'Number of this attempt, from 1.';
COMMENT ON COLUMN running.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. It does not '
  'change the order within a process.';
COMMENT ON COLUMN running.fencing_token IS
  'Fencing token of this attempt, unique among all attempts. A result is stored only if its token '
  'is equal to this one.';
COMMENT ON COLUMN running.node_id IS
  'ID of the node that runs the task, or leased it to a worker. See nodes.';
COMMENT ON COLUMN running.deadline IS
  'End of the timeout of the attempt. 5 seconds later, or at once if it is leased to a worker, '
  'the task is a zombie, even if its node is alive.';
COMMENT ON COLUMN running.scheduled_time IS 'When the task was due, or accepted.';
COMMENT ON COLUMN running.running_time IS 'When this attempt began.';
COMMENT ON COLUMN running.retry_interval IS
  'Wait before this attempt, if it is a retry. NULL otherwise.';
COMMENT ON COLUMN running.timer_name IS
  'Name of the timer, empty for the default timer. NULL if the task is not a timer.';
COMMENT ON COLUMN running.history_range IS
  'Events that the processor gets, as JSON. NULL for those that the history mode of the namespace '
  'selects.';
COMMENT ON COLUMN running.idempotency_key IS 'Idempotency key of the request. NULL if it has none.';
COMMENT ON COLUMN running.args IS
  'Args that the caller sent, opaque to the engine (bytes). NULL if there are none.';
COMMENT ON COLUMN running.context IS
  'Context that the caller sent, which the processor gets with this task and with the timers that '
  'it sets (bytes). NULL if there is none.';
COMMENT ON COLUMN running.child IS
  'For a NOTIFY task about the end of a child, or of several jobs of a run: which ended and how, '
  'as JSON. NULL for other tasks.';

CREATE TABLE leases (
  namespace          text COLLATE "C" NOT NULL,
  process_id         text COLLATE "C" NOT NULL,
  fencing_token      bigint NOT NULL,
  worker_id          text NOT NULL,
  salt               bytea NOT NULL,
  leased_time        timestamptz NOT NULL,
  beat_time          timestamptz,
  expires_time       timestamptz NOT NULL,
  lease_duration     interval NOT NULL,
  heartbeat_interval interval NOT NULL,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT leases_worker_id_check CHECK (octet_length(worker_id) BETWEEN 1 AND 256)
)
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
      autovacuum_analyze_threshold = 50000);
COMMENT ON TABLE leases IS
  'Leases of running tasks by workers. A row is valid while running has the same fencing_token. '
  'It is deleted when the attempt ends, or later if it was left over.';
COMMENT ON COLUMN leases.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN leases.process_id IS 'ID of the process.';
COMMENT ON COLUMN leases.fencing_token IS 'Fencing token of the leased attempt, as in running.';
COMMENT ON COLUMN leases.worker_id IS 'ID of the worker, which the worker chooses.';
COMMENT ON COLUMN leases.salt IS
  'Random part of the token of the lease, so that it cannot be guessed (bytes).';
COMMENT ON COLUMN leases.leased_time IS 'When the lease began.';
COMMENT ON COLUMN leases.beat_time IS
  'When the worker sent the last heartbeat for the lease. NULL if it has sent none.';
COMMENT ON COLUMN leases.expires_time IS
  'Without a heartbeat until then, the lease is lost. Before the first heartbeat, this is two '
  'heartbeat intervals after leased_time.';
COMMENT ON COLUMN leases.lease_duration IS 'By how much a heartbeat extends the lease.';
COMMENT ON COLUMN leases.heartbeat_interval IS
  'Interval at which the worker should send heartbeats.';

CREATE TABLE tasks (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  status          task_status NOT NULL,
  attempt         int NOT NULL,
  priority        int NOT NULL DEFAULT 0,
  fencing_token   bigint,
  cancelled_by    bigint,
  scheduled_time  timestamptz NOT NULL,
  running_time    timestamptz,
  finished_time   timestamptz NOT NULL,
  retry_interval  interval,
  timer_name      text,
  idempotency_key text,
  args            bytea,
  context         bytea,
  response        bytea,
  failure         jsonb,
  rejection       jsonb,
  worker_id       text,
  PRIMARY KEY (namespace, process_id, task_id),
  CONSTRAINT tasks_status_check CHECK (status IN ('FINISHED', 'ERROR', 'CANCELLED'))
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON TABLE tasks IS
  'Ended tasks. A row is written once, when the task ends, and deleted with its process, after a '
  'restart of the history, or for a cron after 30 days by default. For all tasks, see the view '
  'task_list.';
COMMENT ON COLUMN tasks.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN tasks.process_id IS 'ID of the process.';
COMMENT ON COLUMN tasks.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN tasks.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN tasks.status IS
  'Status of the ended task: FINISHED (also if it was rejected), ERROR (failed permanently) or '
  'CANCELLED (ended without a result).';
COMMENT ON COLUMN tasks.attempt IS 'Number of attempts. 0 if the task never ran.';
COMMENT ON COLUMN tasks.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. It does not '
  'change the order within a process.';
COMMENT ON COLUMN tasks.fencing_token IS
  'Fencing token of the attempt whose result was stored, or of the last attempt of a CANCELLED '
  'task. NULL if the task was never claimed.';
COMMENT ON COLUMN tasks.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if it was '
  'imported so. NULL if no task did.';
COMMENT ON COLUMN tasks.scheduled_time IS 'When the task was due, or accepted.';
COMMENT ON COLUMN tasks.running_time IS
  'When the last attempt began. NULL if the task ended while it waited.';
COMMENT ON COLUMN tasks.finished_time IS 'When the task ended.';
COMMENT ON COLUMN tasks.retry_interval IS
  'Wait before the last attempt, if it was a retry. NULL otherwise.';
COMMENT ON COLUMN tasks.timer_name IS
  'Name of the timer, empty for the default timer. NULL if the task is not a timer.';
COMMENT ON COLUMN tasks.idempotency_key IS 'Idempotency key of the request. NULL if it has none.';
COMMENT ON COLUMN tasks.args IS
  'Args that the caller sent, opaque to the engine (bytes). NULL if there are none.';
COMMENT ON COLUMN tasks.context IS
  'Context that the caller sent, which the processor gets with this task and with the timers that '
  'it sets (bytes). NULL if there is none.';
COMMENT ON COLUMN tasks.response IS
  'Response of the processor to the caller (bytes). NULL if there is none.';
COMMENT ON COLUMN tasks.failure IS
  'Failure of the last attempt, as JSON (reason, message, details). NULL if there is none.';
COMMENT ON COLUMN tasks.rejection IS
  'Rejection by the processor, as JSON (reason, message, details). NULL if the task was not '
  'rejected.';
COMMENT ON COLUMN tasks.worker_id IS
  'ID of the worker whose result ended the task. NULL if it was a processor of the engine, if '
  'there was no result, and for most tasks whose process continues.';
CREATE INDEX tasks_cancelled_by ON tasks (namespace, process_id, cancelled_by)
  WHERE cancelled_by IS NOT NULL;
CREATE INDEX tasks_cancelled_timers ON tasks (namespace, process_id, cancelled_by)
  WHERE cancelled_by IS NOT NULL AND task_type IN ('TIMEOUT', 'REMOVE');

CREATE TABLE failed_attempts (
  namespace            text COLLATE "C" NOT NULL,
  process_id           text COLLATE "C" NOT NULL,
  task_id              bigint NOT NULL,
  attempt              int NOT NULL,
  reason               text NOT NULL,
  message              text NOT NULL,
  node_id              bigint NOT NULL,
  running_time         timestamptz NOT NULL,
  failed_time          timestamptz NOT NULL,
  first_scheduled_time timestamptz NOT NULL,
  PRIMARY KEY (namespace, process_id, task_id, attempt),
  CONSTRAINT failed_attempts_attempt_check CHECK (attempt > 0),
  CONSTRAINT failed_attempts_message_check CHECK (octet_length(message) <= 4096),
  CONSTRAINT failed_attempts_reason_check CHECK (octet_length(reason) <= 1024)
);
COMMENT ON TABLE failed_attempts IS
  'Attempts that failed and were repeated: the newest 10 of each task, except those of jobs, '
  'which are in jobs.failures. Rows are deleted with their task.';
COMMENT ON COLUMN failed_attempts.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN failed_attempts.process_id IS 'ID of the process.';
COMMENT ON COLUMN failed_attempts.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN failed_attempts.attempt IS 'Number of the attempt, from 1.';
COMMENT ON COLUMN failed_attempts.reason IS
  'Reason of the failure, at most 256 characters. Empty if there is none.';
COMMENT ON COLUMN failed_attempts.message IS
  'Message of the failure, at most 1,000 characters. Empty if there is none.';
COMMENT ON COLUMN failed_attempts.node_id IS
  'ID of the node that ran the attempt, or leased it to a worker.';
COMMENT ON COLUMN failed_attempts.running_time IS 'When the attempt began.';
COMMENT ON COLUMN failed_attempts.failed_time IS 'When the failure of the attempt was stored.';
COMMENT ON COLUMN failed_attempts.first_scheduled_time IS
  'When the task was first due. A retry has a later scheduled_time.';

CREATE TABLE answers (
  namespace     text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  task_id       bigint NOT NULL,
  task_type     task_type NOT NULL,
  status        task_status NOT NULL,
  fencing_token bigint,
  ended_time    timestamptz NOT NULL,
  response      bytea,
  failure       jsonb,
  rejection     jsonb,
  PRIMARY KEY (namespace, process_id, task_id),
  CONSTRAINT answers_status_check CHECK (status IN ('FINISHED', 'ERROR', 'CANCELLED'))
);
COMMENT ON TABLE answers IS
  'Results of tasks that were deleted because their process was removed or its history restarted. '
  'Rows are kept as long as idempotency keys (24 hours by default) after the end of the task.';
COMMENT ON COLUMN answers.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN answers.process_id IS 'ID of the process.';
COMMENT ON COLUMN answers.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN answers.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN answers.status IS
  'Status of the ended task: FINISHED (also if it was rejected), ERROR (failed permanently) or '
  'CANCELLED (ended without a result).';
COMMENT ON COLUMN answers.fencing_token IS
  'Fencing token of the last attempt. NULL if the task was deleted while it waited, or never ran.';
COMMENT ON COLUMN answers.ended_time IS 'When the task ended.';
COMMENT ON COLUMN answers.response IS
  'Response of the processor to the caller (bytes). NULL if there is none.';
COMMENT ON COLUMN answers.failure IS
  'Failure of the last attempt, as JSON (reason, message, details). NULL if there is none.';
COMMENT ON COLUMN answers.rejection IS
  'Rejection by the processor, as JSON (reason, message, details). NULL if the task was not '
  'rejected.';
CREATE INDEX answers_ended_time ON answers (ended_time);
