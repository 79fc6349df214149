-- +goose Up
-- Processes, their events, and the messages between them.

CREATE TYPE message_kind AS ENUM ('start', 'notify', 'cancel', 'child_end');
COMMENT ON TYPE message_kind IS
  'Kind of a message: start creates a process, notify sends it a NOTIFY task, cancel asks it to '
  'end, child_end notifies a parent of the end of its child.';

CREATE TYPE process_status AS ENUM (
  'INIT', 'RUNNING', 'ERROR', 'SUSPENDED', 'COMPLETED', 'CANCELLED');
COMMENT ON TYPE process_status IS
  'Status of a process: INIT until its first task has finished, RUNNING, ERROR until a repair, '
  'SUSPENDED until a resume, and COMPLETED or CANCELLED after its end.';

CREATE SEQUENCE message_ids;
COMMENT ON SEQUENCE message_ids IS
  'Numbers of messages. A process assigns them under its lock, so its messages are numbered in '
  'the order in which it sent them.';

CREATE TABLE processes (
  namespace              text COLLATE "C" NOT NULL,
  process_id             text COLLATE "C" NOT NULL,
  status                 process_status NOT NULL DEFAULT 'INIT',
  previous_status        process_status,
  status_changed_time    timestamptz NOT NULL DEFAULT statement_timestamp(),
  attention              process_status,
  attention_time         timestamptz,
  detail                 text,
  corrupted_by           bigint,
  last_event_id          bigint NOT NULL DEFAULT 0,
  kind                   text NOT NULL DEFAULT '',
  created_time           timestamptz NOT NULL DEFAULT statement_timestamp(),
  removed_time           timestamptz,
  aux_state              bytea,
  metadata               jsonb,
  cancel_requested_time  timestamptz,
  cancel_reason          text,
  cancel_deadline        timestamptz,
  first_event_id         bigint NOT NULL DEFAULT 1,
  history_restarted_time timestamptz,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT processes_attention_check CHECK (attention NOT IN ('INIT', 'RUNNING')),
  CONSTRAINT processes_cancel_was_requested CHECK (
    cancel_requested_time IS NOT NULL
    OR (cancel_reason IS NULL AND cancel_deadline IS NULL)),
  CONSTRAINT processes_error_has_culprit CHECK (status <> 'ERROR' OR corrupted_by IS NOT NULL),
  CONSTRAINT processes_last_event_id_check CHECK (last_event_id >= 0),
  CONSTRAINT processes_metadata_check CHECK (jsonb_typeof(metadata) = 'object'),
  CONSTRAINT processes_process_id_check CHECK (octet_length(process_id) BETWEEN 1 AND 256)
)
WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE processes IS
  'Durable state machines that handle one task at a time. A row is written when the process is '
  'started or imported. After a removal, it is deleted when the history of the process is '
  'deleted.';
COMMENT ON COLUMN processes.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN processes.process_id IS
  'ID of the process, unique in its namespace, 1 to 256 bytes. IDs that begin with ~ are reserved '
  'for the engine.';
COMMENT ON COLUMN processes.status IS
  'Status of the process: INIT, RUNNING, ERROR, SUSPENDED, COMPLETED or CANCELLED. A FAILED job '
  'is in ERROR.';
COMMENT ON COLUMN processes.previous_status IS
  'Status before the last change. For a SUSPENDED process, the status that a resume restores. '
  'NULL if the status has never changed.';
COMMENT ON COLUMN processes.status_changed_time IS 'When the status last changed.';
COMMENT ON COLUMN processes.attention IS
  'Copy of the status, for the index of lists by status. NULL if the status is INIT or RUNNING.';
COMMENT ON COLUMN processes.attention_time IS
  'When the status last changed. NULL if attention is NULL.';
COMMENT ON COLUMN processes.detail IS
  'Why the process is in ERROR, such as the message of the first failure, or why an operator '
  'suspended it. NULL if there is no reason.';
COMMENT ON COLUMN processes.corrupted_by IS
  'Number of the task whose failure caused the ERROR. 0 if the process was imported in ERROR. '
  'NULL in any other status.';
COMMENT ON COLUMN processes.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, also after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN processes.kind IS
  'Kind of the process: empty for a plain process, otherwise job, flow, cron or bulk.';
COMMENT ON COLUMN processes.created_time IS 'When the process was started or imported.';
COMMENT ON COLUMN processes.removed_time IS
  'When the process was removed. Its row is deleted after its history, and until then requests do '
  'not find it. NULL if it was not removed.';
COMMENT ON COLUMN processes.aux_state IS
  'State of the process, set by the processor and opaque to the engine (bytes). NULL if there is '
  'none.';
COMMENT ON COLUMN processes.metadata IS
  'Searchable attributes of the process, a JSON object, set by the start and replaced by the '
  'processor. NULL if there are none.';
COMMENT ON COLUMN processes.cancel_requested_time IS
  'When a cancel was first requested. NULL if none was requested.';
COMMENT ON COLUMN processes.cancel_reason IS
  'Reason of the first cancel request. NULL if there is none.';
COMMENT ON COLUMN processes.cancel_deadline IS
  'End of the grace period of a cancel, after which the engine ends the process. NULL if no '
  'cancel is in progress.';
COMMENT ON COLUMN processes.first_event_id IS
  'Number of the first event of the history. It is larger than last_event_id if the history is '
  'empty. Earlier events are removed.';
COMMENT ON COLUMN processes.history_restarted_time IS
  'When the history was last restarted. NULL if it never was.';
CREATE INDEX processes_created
  ON processes (namespace COLLATE "POSIX", created_time DESC, process_id COLLATE "POSIX" DESC);
-- No index, and no predicate of an index, contains a column that changes with each task: PostgreSQL
-- could not use HOT updates then. The keys of indexes for lists and scans have the collation
-- "POSIX". It has the order of "C" but another name, so that a statement of the hot path, which
-- compares by "C", cannot use such an index instead of the primary key. On a new table without
-- statistics, the planner did that: locking 218 processes took 40 ms instead of 0.5 ms. Queries
-- that need one of these indexes use COLLATE "POSIX".
CREATE INDEX processes_attention
  ON processes (namespace COLLATE "POSIX", attention, attention_time DESC,
                process_id COLLATE "POSIX" DESC)
  WHERE attention IS NOT NULL;
CREATE INDEX processes_metadata
  ON processes USING gin (metadata jsonb_path_ops) WITH (fastupdate = off)
  WHERE metadata IS NOT NULL;
CREATE INDEX processes_removed ON processes (removed_time) WHERE removed_time IS NOT NULL;
CREATE INDEX processes_cancel_deadline ON processes (cancel_deadline)
  WHERE cancel_deadline IS NOT NULL;
CREATE INDEX processes_attention_created
  ON processes (namespace COLLATE "POSIX", attention, created_time DESC,
                process_id COLLATE "POSIX" DESC)
  WHERE attention IS NOT NULL;
CREATE INDEX processes_failed_jobs ON processes (namespace COLLATE "POSIX", attention_time)
  WHERE attention = 'ERROR' AND kind = 'job' AND removed_time IS NULL;
COMMENT ON INDEX processes_failed_jobs IS
  'FAILED jobs by the time of their failure, for retention. A FAILED job has ended, but a plain '
  'process in ERROR has not.';

CREATE TABLE events (
  namespace   text COLLATE "C" NOT NULL,
  process_id  text COLLATE "C" NOT NULL,
  event_id    bigint NOT NULL,
  task_id     bigint NOT NULL,
  attempt     int NOT NULL DEFAULT 0,
  "timestamp" timestamptz NOT NULL,
  metadata    jsonb,
  payload     bytea NOT NULL,
  PRIMARY KEY (namespace, process_id, event_id),
  CONSTRAINT events_event_id_check CHECK (event_id > 0)
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON TABLE events IS
  'Events of processes, stored by their processors and numbered without gaps. A row is never '
  'changed. It is deleted with its process, or after a restart of the history.';
COMMENT ON COLUMN events.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN events.process_id IS 'ID of the process.';
COMMENT ON COLUMN events.event_id IS 'Number of the event in its process: 1, 2, 3, … without gaps.';
COMMENT ON COLUMN events.task_id IS
  'Number of the task that stored the event. 0 if the event was imported by PutProcess.';
COMMENT ON COLUMN events.attempt IS
  'Number of the attempt that stored the event, from 1. 0 if the event was imported by '
  'PutProcess.';
COMMENT ON COLUMN events."timestamp" IS
  'The processor''s time of the event; by default when it was stored.';
COMMENT ON COLUMN events.metadata IS
  'Attributes of the event as JSON, such as format_version. NULL if there are none.';
COMMENT ON COLUMN events.payload IS 'Content of the event, opaque to the engine (bytes).';

CREATE TABLE requests (
  request_id   uuid NOT NULL,
  namespace    text COLLATE "C" NOT NULL,
  process_id   text COLLATE "C" NOT NULL,
  task_id      bigint NOT NULL,
  fingerprint  bytea NOT NULL,
  created_time timestamptz NOT NULL,
  PRIMARY KEY (request_id)
) WITH (fillfactor = 90);
COMMENT ON TABLE requests IS
  'Idempotency keys of requests. A repeated request gets the response of its task, also after the '
  'process was removed. Rows are deleted when the retention of keys has passed (24 hours by '
  'default).';
COMMENT ON COLUMN requests.request_id IS
  'Identifies the request: the first 16 bytes of a SHA-256 digest of namespace, process_id (empty '
  'if the engine chose it) and idempotency key.';
COMMENT ON COLUMN requests.namespace IS 'Namespace of the request.';
COMMENT ON COLUMN requests.process_id IS
  'ID of the process that the request was sent to, or that it started. If another job has the '
  'unique key of an Enqueue, the ID of that job.';
COMMENT ON COLUMN requests.task_id IS
  'Number of the task whose response the request gets. 0 if there is none, as for a repair '
  'without a task, or if another job has the unique key of an Enqueue.';
COMMENT ON COLUMN requests.fingerprint IS
  'Digest of the method and args (bytes). A different request with the same key is rejected.';
COMMENT ON COLUMN requests.created_time IS
  'Start of the retention of the key: when the request was accepted. If its task took longer than '
  'the retention, when the task ended.';
CREATE INDEX requests_created_time ON requests (created_time);

CREATE TABLE history_restarts (
  restart_id     bigint GENERATED ALWAYS AS IDENTITY,
  namespace      text COLLATE "C" NOT NULL,
  process_id     text COLLATE "C" NOT NULL,
  first_event_id bigint NOT NULL,
  next_task_id   bigint NOT NULL,
  fencing_token  bigint NOT NULL,
  restarted_time timestamptz NOT NULL,
  after_event_id bigint NOT NULL DEFAULT 0,
  after_task_id  bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (restart_id)
);
COMMENT ON TABLE history_restarts IS
  'Restarts of histories whose earlier events and tasks are not yet removed. A row is written by '
  'the restart, and deleted when the removal in batches is complete.';
COMMENT ON COLUMN history_restarts.restart_id IS
  'Number of the restart. Restarts are processed in this order.';
COMMENT ON COLUMN history_restarts.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN history_restarts.process_id IS 'ID of the process.';
COMMENT ON COLUMN history_restarts.first_event_id IS
  'Number of the first event of the new history. Events with smaller numbers are removed.';
COMMENT ON COLUMN history_restarts.next_task_id IS
  'Tasks that had ended before the restart have smaller numbers.';
COMMENT ON COLUMN history_restarts.fencing_token IS
  'Tasks whose result was stored before the restart have smaller fencing tokens.';
COMMENT ON COLUMN history_restarts.restarted_time IS 'When the history was restarted.';
COMMENT ON COLUMN history_restarts.after_event_id IS
  'Earlier events up to this event_id have been removed.';
COMMENT ON COLUMN history_restarts.after_task_id IS
  'Earlier tasks up to this task_id have been removed.';

CREATE TABLE queue_backlogs (
  namespace        text COLLATE "C" NOT NULL,
  process_id       text COLLATE "C" NOT NULL,
  resuming         boolean NOT NULL DEFAULT false,
  cancelled_by     bigint,
  after_task_id    bigint NOT NULL DEFAULT 0,
  after_message_id bigint NOT NULL DEFAULT 0,
  created_time     timestamptz NOT NULL DEFAULT statement_timestamp(),
  prepared_task_id bigint NOT NULL DEFAULT 0,
  running_task_id  bigint,
  PRIMARY KEY (namespace, process_id)
);
COMMENT ON TABLE queue_backlogs IS
  'Processes with more waiting tasks or held messages than one statement can update after a '
  'change of status. A background job updates the others in batches, and then deletes the row.';
COMMENT ON COLUMN queue_backlogs.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN queue_backlogs.process_id IS 'ID of the process.';
COMMENT ON COLUMN queue_backlogs.resuming IS
  'True while a resume updates the waiting tasks itself. The background job skips the process.';
COMMENT ON COLUMN queue_backlogs.cancelled_by IS
  'Value of cancelled_by for the waiting tasks that must still be cancelled. NULL if no task '
  'cancelled them.';
COMMENT ON COLUMN queue_backlogs.after_task_id IS
  'Waiting tasks up to this task_id have been updated.';
COMMENT ON COLUMN queue_backlogs.after_message_id IS
  'Held messages up to this message_id have been released.';
COMMENT ON COLUMN queue_backlogs.created_time IS 'When the row was written.';
COMMENT ON COLUMN queue_backlogs.prepared_task_id IS
  'Waiting tasks up to this task_id have been prepared for a resume.';
COMMENT ON COLUMN queue_backlogs.running_task_id IS
  'Number of the task that was running when the resume began. If it is retried, it waits for the '
  'operator with this number. NULL if none was running.';

CREATE TABLE parents (
  namespace         text COLLATE "C" NOT NULL,
  process_id        text COLLATE "C" NOT NULL,
  parent_namespace  text COLLATE "C" NOT NULL,
  parent_process_id text COLLATE "C" NOT NULL,
  args              bytea NOT NULL,
  PRIMARY KEY (namespace, process_id)
);
COMMENT ON TABLE parents IS
  'Parents that are notified when a process ends. A row is written when the process is created. '
  'The first end of the process deletes it and notifies the parent.';
COMMENT ON COLUMN parents.namespace IS 'Namespace of the child.';
COMMENT ON COLUMN parents.process_id IS 'ID of the child process.';
COMMENT ON COLUMN parents.parent_namespace IS 'Namespace of the parent.';
COMMENT ON COLUMN parents.parent_process_id IS
  'ID of the parent process, which started the child and is notified of its end.';
COMMENT ON COLUMN parents.args IS 'Args of the NOTIFY task that notifies the parent (bytes).';

CREATE TABLE status_counts (
  namespace text COLLATE "C" NOT NULL,
  lane      int NOT NULL
    DEFAULT coalesce(nullif(current_setting('progressor.lane', true), '')::int, 0),
  status    process_status NOT NULL,
  n         bigint NOT NULL,
  PRIMARY KEY (namespace, lane, status),
  CONSTRAINT status_counts_status_check CHECK (status <> 'INIT')
)
WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE status_counts IS
  'Number of processes in each status: sum(n) over the lanes. Each transaction that creates, '
  'removes or changes processes updates it, so the sums are exact.';
COMMENT ON COLUMN status_counts.namespace IS 'Namespace of the processes.';
COMMENT ON COLUMN status_counts.lane IS
  'Lane that counted. Each lane of each engine has its own rows, so that lanes do not wait for '
  'each other. 0 for changes outside of lanes.';
COMMENT ON COLUMN status_counts.status IS
  'Status of the processes. RUNNING includes INIT, so that a start does not change two counters.';
COMMENT ON COLUMN status_counts.n IS
  'Number of processes that entered the status minus those that left it. It may be negative in a '
  'single lane.';

CREATE TABLE messages (
  namespace          text COLLATE "C" NOT NULL,
  process_id         text COLLATE "C" NOT NULL,
  message_id         bigint NOT NULL DEFAULT nextval('progressor.message_ids'::regclass),
  kind               message_kind NOT NULL,
  held               boolean NOT NULL DEFAULT false,
  sender_namespace   text COLLATE "C",
  sender_process_id  text COLLATE "C",
  sender_task_id     bigint,
  created_time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  start_time         timestamptz,
  reason             text,
  args               bytea,
  metadata           jsonb,
  notify_parent_args bytea,
  child              jsonb,
  job                jsonb,
  context            bytea,
  grace              interval,
  PRIMARY KEY (namespace, process_id, message_id),
  CONSTRAINT messages_end_has_child CHECK ((kind = 'child_end') = (child IS NOT NULL)),
  CONSTRAINT messages_metadata_check CHECK (jsonb_typeof(metadata) = 'object'),
  CONSTRAINT messages_namespace_check CHECK (namespace ~ '^[a-zA-Z0-9._/-]{1,128}$'),
  CONSTRAINT messages_notify_parent_args_check CHECK (octet_length(notify_parent_args) <= 1048576),
  CONSTRAINT messages_process_id_check CHECK (octet_length(process_id) BETWEEN 1 AND 256),
  CONSTRAINT messages_reason_check CHECK (octet_length(reason) <= 4096),
  CONSTRAINT messages_sender_is_whole CHECK (
    ((sender_namespace IS NULL) = (sender_process_id IS NULL))
    AND ((sender_process_id IS NULL) = (sender_task_id IS NULL))),
  CONSTRAINT messages_start_time_check CHECK (
    (start_time >= '1970-01-01 00:00:00+00'::timestamptz)
    AND (start_time < '10000-01-01 00:00:00+00'::timestamptz)),
  CONSTRAINT messages_args_check CHECK (octet_length(args) <= 16777216)
)
WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2,
      autovacuum_analyze_threshold = 50000);
COMMENT ON TABLE messages IS
  'Messages to processes that are not yet delivered, from results of other processes and from SQL '
  'functions. The delivery deletes the row and applies the message in one transaction, so it '
  'happens exactly once.';
COMMENT ON COLUMN messages.namespace IS 'Namespace of the receiver.';
COMMENT ON COLUMN messages.process_id IS 'ID of the receiving process.';
COMMENT ON COLUMN messages.message_id IS
  'Number of the message. Messages to a process are delivered in this order.';
COMMENT ON COLUMN messages.kind IS 'Kind of the message: start, notify, cancel or child_end.';
COMMENT ON COLUMN messages.held IS
  'True if the receiver is SUSPENDED or in ERROR. The message waits until a resume or a repair '
  'sets this to false.';
COMMENT ON COLUMN messages.sender_namespace IS
  'Namespace of the process that sent the message. NULL if a SQL function, or the engine itself, '
  'sent it.';
COMMENT ON COLUMN messages.sender_process_id IS
  'ID of the process that sent the message. NULL if a SQL function, or the engine itself, sent '
  'it.';
COMMENT ON COLUMN messages.sender_task_id IS
  'Number of the task whose result sent the message, or whose end it reports. 0 if there is no '
  'such task. NULL if a SQL function, or the engine itself, sent the message.';
COMMENT ON COLUMN messages.created_time IS
  'When the message was sent. The node of the sender delivers it at once, and any node if it is '
  'older than a second.';
COMMENT ON COLUMN messages.start_time IS
  'For a start: earliest start of the INIT task. NULL if it may start at once.';
COMMENT ON COLUMN messages.reason IS
  'For a cancel: the reason of the request. NULL if there is none.';
COMMENT ON COLUMN messages.args IS
  'Args of the task that the message creates (bytes). NULL if there are none.';
COMMENT ON COLUMN messages.metadata IS
  'For a start: searchable attributes of the new process, a JSON object. NULL if there are none.';
COMMENT ON COLUMN messages.notify_parent_args IS
  'For a start: args of the NOTIFY task that reports the end of the new process to the sender '
  '(bytes). NULL if the sender is not notified.';
COMMENT ON COLUMN messages.child IS
  'For a child_end: the child and how it ended, as JSON (the message ChildEnd of the API). NULL '
  'for other messages.';
COMMENT ON COLUMN messages.job IS
  'For a start of a job: its name, timeout, priority and options, as JSON. NULL for other '
  'messages.';
COMMENT ON COLUMN messages.context IS
  'Context of the task that the message creates, such as a trace (bytes). NULL if there is none.';
COMMENT ON COLUMN messages.grace IS
  'For a cancel: how long the process may take to end. NULL for 30 seconds, or for a job its own '
  'grace period.';
CREATE INDEX messages_target ON messages (namespace, process_id, message_id) WHERE NOT held;
CREATE INDEX messages_held ON messages (namespace, process_id) WHERE held;
CREATE INDEX messages_created ON messages (created_time) WHERE held IS NOT TRUE;

CREATE TABLE dead_letters (
  message_id        bigint NOT NULL,
  kind              message_kind NOT NULL,
  outcome           text NOT NULL,
  namespace         text COLLATE "C" NOT NULL,
  process_id        text COLLATE "C" NOT NULL,
  sender_namespace  text COLLATE "C",
  sender_process_id text COLLATE "C",
  sender_task_id    bigint,
  created_time      timestamptz NOT NULL,
  dropped_time      timestamptz NOT NULL,
  reason            text,
  args              bytea,
  child             jsonb,
  PRIMARY KEY (message_id),
  CONSTRAINT dead_letters_outcome_check CHECK (outcome IN ('not_found', 'ended'))
);
COMMENT ON TABLE dead_letters IS
  'Messages that could not be delivered. A row is written when the delivery is given up, and '
  'deleted after 24 hours.';
COMMENT ON COLUMN dead_letters.message_id IS 'Number of the message.';
COMMENT ON COLUMN dead_letters.kind IS 'Kind of the message: start, notify, cancel or child_end.';
COMMENT ON COLUMN dead_letters.outcome IS
  'Why the message was not delivered. not_found: the process, or for a start the namespace, does '
  'not exist. ended: the process is COMPLETED or CANCELLED, is a FAILED job, or does not accept '
  'such messages.';
COMMENT ON COLUMN dead_letters.namespace IS 'Namespace of the receiver.';
COMMENT ON COLUMN dead_letters.process_id IS 'ID of the receiving process.';
COMMENT ON COLUMN dead_letters.sender_namespace IS
  'Namespace of the process that sent the message. NULL if a SQL function, or the engine itself, '
  'sent it.';
COMMENT ON COLUMN dead_letters.sender_process_id IS
  'ID of the process that sent the message. NULL if a SQL function, or the engine itself, sent '
  'it.';
COMMENT ON COLUMN dead_letters.sender_task_id IS
  'Number of the task whose result sent the message, or whose end it reports. 0 if there is no '
  'such task. NULL if a SQL function, or the engine itself, sent the message.';
COMMENT ON COLUMN dead_letters.created_time IS 'When the message was sent.';
COMMENT ON COLUMN dead_letters.dropped_time IS 'When the delivery was given up.';
COMMENT ON COLUMN dead_letters.reason IS
  'For a cancel: the reason of the request. NULL if there is none.';
COMMENT ON COLUMN dead_letters.args IS
  'Args for the task that the message would have created (bytes). NULL if there are none.';
COMMENT ON COLUMN dead_letters.child IS
  'For a child_end: the child and how it ended, as JSON (the message ChildEnd of the API). NULL '
  'for other messages.';
CREATE INDEX dead_letters_dropped_time ON dead_letters (dropped_time);

-- is_locked checks that a transaction has locked a process: see sql/lock_processes.sql.
CREATE FUNCTION is_locked(namespace text, process_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT CASE coalesce(current_setting('progressor.missing', true), '')
           WHEN '' THEN true
           ELSE namespace || '/' || process_id
                  <> ALL (current_setting('progressor.missing', true)::text[])
         END
$$;
COMMENT ON FUNCTION is_locked IS
  'Reports whether the transaction has locked a process that it finds: false if it was inserted '
  'after LockProcesses.';

CREATE FUNCTION still_missing(found text[]) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT missing.key
      FROM unnest(NULLIF(current_setting('progressor.missing', true), '')::text[]) AS missing(key)
     WHERE missing.key <> ALL (coalesce(found, '{}')))::text
$$;
COMMENT ON FUNCTION still_missing IS
  'Returns the setting progressor.missing without keys that were found.';
