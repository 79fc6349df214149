-- +goose Up
-- The names of columns that mean what the reference's do are the reference's: see docs/sql.md.

CREATE TYPE process_status AS ENUM ('INIT', 'RUNNING', 'ERROR', 'SUSPENDED', 'COMPLETED', 'CANCELLED');
CREATE TYPE task_type AS ENUM ('INIT', 'CALL', 'NOTIFY', 'REPAIR', 'TIMEOUT', 'REMOVE', 'CANCEL');
CREATE TYPE task_status AS ENUM ('WAITING', 'RUNNING', 'BLOCKED', 'FINISHED', 'ERROR', 'CANCELLED');
CREATE TYPE waits_for AS ENUM ('time', 'place', 'process', 'operator', 'constraint');

COMMENT ON TYPE process_status IS 'What a process may do: INIT runs its first task, RUNNING takes calls, ERROR waits for a repair, SUSPENDED is held, COMPLETED and CANCELLED are ends.';
COMMENT ON TYPE task_type IS 'What a task is. CALL is waited for, NOTIFY is not; TIMEOUT and REMOVE are timers.';
COMMENT ON TYPE task_status IS 'WAITING and BLOCKED stand in schedule, RUNNING in running, the others in tasks. BLOCKED is derived: a timer whose process handles another task.';
COMMENT ON TYPE waits_for IS 'time: until scheduled_time. place: a free place on any node. process: behind another task of its process. operator: the process is suspended. constraint: a limit is reached.';

CREATE SEQUENCE task_ids;
CREATE SEQUENCE fencing_tokens;
COMMENT ON SEQUENCE task_ids IS 'Numbers tasks. Drawn under the lock of the process, so that task_id order is the order of acceptance.';
COMMENT ON SEQUENCE fencing_tokens IS 'Numbers attempts. Grows with every claim, also after a process was removed and started again.';

CREATE TABLE namespaces (
  namespace    text COLLATE "C" PRIMARY KEY CHECK (namespace ~ '^[a-zA-Z0-9._/-]{1,128}$'),
  config       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config) = 'object'),
  paused       boolean NOT NULL DEFAULT false,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  updated_time timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE namespaces IS 'Units of isolation and policy: which processor, how to retry, how much at a time. Every node reads changes within a second.';
COMMENT ON COLUMN namespaces.namespace IS 'Name, 1 to 128 of [a-zA-Z0-9._/-].';
COMMENT ON COLUMN namespaces.config IS 'The API''s message Namespace as JSON: processor, retryPolicy, stepTimeout, maxRunning, …; what is missing has its default.';
COMMENT ON COLUMN namespaces.paused IS 'true: nothing of the namespace is handed out; what runs goes on, requests are stored and wait.';
COMMENT ON COLUMN namespaces.created_time IS 'When the namespace was put first.';
COMMENT ON COLUMN namespaces.updated_time IS 'When the namespace was put, paused or resumed last.';

CREATE TABLE nodes (
  node_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  address      text NOT NULL,
  version      text NOT NULL,
  started_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  beat_time    timestamptz NOT NULL DEFAULT statement_timestamp(),
  draining     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
COMMENT ON TABLE nodes IS 'Engines that run on this database. A node that has not beaten for 10 s (setting) is dead, and what it ran is a zombie.';
COMMENT ON COLUMN nodes.node_id IS 'Identity of one run of an engine; a restart takes a new one. running.node_id refers to it.';
COMMENT ON COLUMN nodes.address IS 'Where the node listens, as it was told by --engine.address.';
COMMENT ON COLUMN nodes.version IS 'Version of the program that runs.';
COMMENT ON COLUMN nodes.started_time IS 'When the node came up.';
COMMENT ON COLUMN nodes.beat_time IS 'Last heartbeat, by the clock of the database. One every three tenths of --engine.zombie-after.';
COMMENT ON COLUMN nodes.draining IS 'true: the node is stopping; it ends what it runs and takes nothing new.';

CREATE TABLE processes (
  namespace           text COLLATE "C" NOT NULL,
  process_id          text COLLATE "C" NOT NULL CHECK (octet_length(process_id) BETWEEN 1 AND 256),
  status              process_status NOT NULL DEFAULT 'INIT',
  previous_status     process_status,
  status_changed_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  attention           process_status CHECK (attention NOT IN ('INIT', 'RUNNING')),
  attention_time      timestamptz,
  detail              text,
  corrupted_by        bigint,
  last_event_id       bigint NOT NULL DEFAULT 0 CHECK (last_event_id >= 0),
  kind                text NOT NULL DEFAULT '',
  created_time        timestamptz NOT NULL DEFAULT statement_timestamp(),
  removed_time        timestamptz,
  aux_state           bytea,
  metadata            jsonb CHECK (jsonb_typeof(metadata) = 'object'),
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT processes_error_has_culprit CHECK (status <> 'ERROR' OR corrupted_by IS NOT NULL)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- No index and no predicate below names a column that changes in the hot path: a status in one of them takes HOT updates to 0 %.
-- The keys of lists and scans are collated "POSIX" (the same order as "C", but another name), so that no hot statement, which
-- compares by "C", can take such an index for the primary key: on a young table, whose statistics are empty, it did (a lock of
-- 218 processes took 40 ms, 0.5 ms by the primary key). Queries that want one of these indexes say COLLATE "POSIX".
CREATE INDEX processes_created ON processes (namespace COLLATE "POSIX", created_time DESC, process_id COLLATE "POSIX" DESC);
CREATE INDEX processes_attention ON processes (namespace COLLATE "POSIX", attention, attention_time DESC, process_id COLLATE "POSIX" DESC) WHERE attention IS NOT NULL;
CREATE INDEX processes_metadata ON processes USING gin (metadata jsonb_path_ops) WITH (fastupdate = off) WHERE metadata IS NOT NULL;
CREATE INDEX processes_removed ON processes (removed_time) WHERE removed_time IS NOT NULL;
COMMENT ON TABLE processes IS 'One row for each process: a durable state machine that handles one task at a time.';
COMMENT ON COLUMN processes.namespace IS 'Namespace of the process; always the first part of a key.';
COMMENT ON COLUMN processes.process_id IS 'Identity within the namespace, 1 to 256 bytes. Ids that begin with ~ are the engine''s own.';
COMMENT ON COLUMN processes.status IS 'INIT until its first task has finished, then RUNNING; ERROR waits for a repair; COMPLETED and CANCELLED are ends.';
COMMENT ON COLUMN processes.previous_status IS 'The status before the last change; of a SUSPENDED process the status that a resume gives back.';
COMMENT ON COLUMN processes.status_changed_time IS 'When status changed last.';
COMMENT ON COLUMN processes.attention IS 'The status, where it is neither INIT nor RUNNING; else NULL. Lists by status use it: an index on status itself would slow every start.';
COMMENT ON COLUMN processes.attention_time IS 'status_changed_time where attention is set, else NULL.';
COMMENT ON COLUMN processes.detail IS 'Of ERROR: why. The message of the first failure, or zombie detected.';
COMMENT ON COLUMN processes.corrupted_by IS 'Of ERROR: task_id of the task that broke the process; 0 where it was imported so.';
COMMENT ON COLUMN processes.last_event_id IS 'How many events it has: they are numbered 1, 2, 3, … without gaps.';
COMMENT ON COLUMN processes.kind IS 'Empty for a plain process; else what the engine made of it (job, cron, flow).';
COMMENT ON COLUMN processes.created_time IS 'When it was started or put.';
COMMENT ON COLUMN processes.removed_time IS 'When it was removed. For every request it is gone; its history is being deleted in batches, then this row goes.';
COMMENT ON COLUMN processes.aux_state IS 'The processor''s own state, opaque to the engine (bytes).';
COMMENT ON COLUMN processes.metadata IS 'Searchable attributes, a JSON object: set by the client at the start, replaced by the processor.';

CREATE TABLE running (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  attempt         int NOT NULL CHECK (attempt > 0),
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
  PRIMARY KEY (namespace, process_id)
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
COMMENT ON TABLE running IS 'Tasks that are being run: at most one of each process, by the primary key. A row is a lease of its node. Small and busy: rows live for milliseconds.';
COMMENT ON COLUMN running.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN running.process_id IS 'The process that the task belongs to.';
COMMENT ON COLUMN running.task_id IS 'Number of the task, unique in the database; in one process the order in which tasks were accepted.';
COMMENT ON COLUMN running.task_type IS 'INIT, CALL, NOTIFY, REPAIR, CANCEL, or a timer: TIMEOUT, REMOVE.';
COMMENT ON COLUMN running.attempt IS 'Number of this attempt, from 1.';
COMMENT ON COLUMN running.priority IS 'Smaller first, among processes that wait for a place; never within one process.';
COMMENT ON COLUMN running.fencing_token IS 'Number of this attempt among all attempts of all processes. A result is stored only under the token that stands here.';
COMMENT ON COLUMN running.node_id IS 'The node that runs it, see nodes.';
COMMENT ON COLUMN running.deadline IS 'When the step timeout is over; 5 s later the row is a zombie, even if its node lives.';
COMMENT ON COLUMN running.scheduled_time IS 'When the task was due, or accepted.';
COMMENT ON COLUMN running.running_time IS 'When this attempt began.';
COMMENT ON COLUMN running.retry_interval IS 'The wait before this attempt, where it is a retry; else NULL.';
COMMENT ON COLUMN running.timer_name IS 'Of a timer: its name, empty for the default timer; NULL for every other task.';
COMMENT ON COLUMN running.history_range IS 'Which events the processor is shown, as JSON; NULL: as the namespace''s history mode says.';
COMMENT ON COLUMN running.idempotency_key IS 'The client''s key of the request; NULL: none.';
COMMENT ON COLUMN running.args IS 'What the caller sent, opaque to the engine (bytes).';
COMMENT ON COLUMN running.context IS 'What the caller sent along, handed to the processor with this task and with the timers that it sets (bytes).';

CREATE TABLE schedule (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  waits_for       waits_for NOT NULL,
  attempt         int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
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
  PRIMARY KEY (namespace, process_id, task_id),
  CONSTRAINT schedule_timer_has_name CHECK ((task_type IN ('TIMEOUT', 'REMOVE')) = (timer_name IS NOT NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000);
CREATE INDEX schedule_time ON schedule (namespace COLLATE "POSIX", scheduled_time) WHERE waits_for = 'time';
CREATE INDEX schedule_place ON schedule (namespace COLLATE "POSIX", priority, task_id) WHERE waits_for = 'place';
COMMENT ON TABLE schedule IS 'Tasks that wait: timers, retries, delayed starts, and calls whose turn has not come. At most one row of a process waits for a place: its next task.';
COMMENT ON COLUMN schedule.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN schedule.process_id IS 'The process that the task belongs to.';
COMMENT ON COLUMN schedule.task_id IS 'Number of the task, unique in the database; in one process the order in which tasks were accepted.';
COMMENT ON COLUMN schedule.task_type IS 'INIT, CALL, NOTIFY, REPAIR, CANCEL, or a timer: TIMEOUT, REMOVE.';
COMMENT ON COLUMN schedule.waits_for IS 'time (until scheduled_time), place (for a free place on any node), process (behind another task of its process), operator, constraint.';
COMMENT ON COLUMN schedule.attempt IS 'Attempts made so far, the last of which failed; 0: it has not run.';
COMMENT ON COLUMN schedule.priority IS 'Smaller first, among processes that wait for a place; never within one process.';
COMMENT ON COLUMN schedule.scheduled_time IS 'Not to be run before; of a call that waits: when it was accepted.';
COMMENT ON COLUMN schedule.fencing_token IS 'Token of the last attempt; NULL: it has not run.';
COMMENT ON COLUMN schedule.retry_interval IS 'The wait before the next attempt, where it is a retry; else NULL.';
COMMENT ON COLUMN schedule.timer_name IS 'Of a timer: its name, empty for the default timer; NULL for every other task.';
COMMENT ON COLUMN schedule.history_range IS 'Which events the processor is shown, as JSON; NULL: as the namespace''s history mode says.';
COMMENT ON COLUMN schedule.idempotency_key IS 'The client''s key of the request; NULL: none.';
COMMENT ON COLUMN schedule.failure IS 'Failure of the last attempt, as JSON (reason, message, …); NULL: it has not run.';
COMMENT ON COLUMN schedule.args IS 'What the caller sent, opaque to the engine (bytes).';
COMMENT ON COLUMN schedule.context IS 'What the caller sent along, handed to the processor with this task and with the timers that it sets (bytes).';

CREATE TABLE tasks (
  namespace       text COLLATE "C" NOT NULL,
  process_id      text COLLATE "C" NOT NULL,
  task_id         bigint NOT NULL,
  task_type       task_type NOT NULL,
  status          task_status NOT NULL CHECK (status IN ('FINISHED', 'ERROR', 'CANCELLED')),
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
  PRIMARY KEY (namespace, process_id, task_id)
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX tasks_cancelled_by ON tasks (namespace, process_id, cancelled_by) WHERE cancelled_by IS NOT NULL;
COMMENT ON TABLE tasks IS 'The history of tasks: one row each, written once, at the end of the task. The view task_list shows waiting, running and ended tasks together.';
COMMENT ON COLUMN tasks.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN tasks.process_id IS 'The process that the task belongs to.';
COMMENT ON COLUMN tasks.task_id IS 'Number of the task, unique in the database; in one process the order in which tasks were accepted.';
COMMENT ON COLUMN tasks.task_type IS 'INIT, CALL, NOTIFY, REPAIR, CANCEL, or a timer: TIMEOUT, REMOVE.';
COMMENT ON COLUMN tasks.status IS 'FINISHED (rejected ones too), ERROR (failed for good), CANCELLED (never finished).';
COMMENT ON COLUMN tasks.attempt IS 'Attempts that it took; 0: it never ran.';
COMMENT ON COLUMN tasks.priority IS 'Smaller first, among processes that wait for a place; never within one process.';
COMMENT ON COLUMN tasks.fencing_token IS 'Token of the attempt whose result was stored.';
COMMENT ON COLUMN tasks.cancelled_by IS 'Of CANCELLED: task_id of the task whose failure or end cancelled it; NULL: a timer that was replaced or dropped.';
COMMENT ON COLUMN tasks.scheduled_time IS 'When it was due, or accepted.';
COMMENT ON COLUMN tasks.running_time IS 'When its last attempt began; NULL: it never ran.';
COMMENT ON COLUMN tasks.finished_time IS 'When it ended.';
COMMENT ON COLUMN tasks.retry_interval IS 'The wait before the last attempt, where that was a retry; else NULL.';
COMMENT ON COLUMN tasks.timer_name IS 'Of a timer: its name, empty for the default timer; NULL for every other task.';
COMMENT ON COLUMN tasks.idempotency_key IS 'The client''s key of the request; NULL: none.';
COMMENT ON COLUMN tasks.args IS 'What the caller sent, opaque to the engine (bytes).';
COMMENT ON COLUMN tasks.context IS 'What the caller sent along, handed to the processor with this task and with the timers that it sets (bytes).';
COMMENT ON COLUMN tasks.response IS 'The processor''s answer to the caller (bytes).';
COMMENT ON COLUMN tasks.failure IS 'Of ERROR: why, as JSON (reason, message, details).';
COMMENT ON COLUMN tasks.rejection IS 'Of a FINISHED request to which the processor said no: why, as JSON (reason, message, details).';

CREATE TABLE events (
  namespace  text COLLATE "C" NOT NULL,
  process_id text COLLATE "C" NOT NULL,
  event_id   bigint NOT NULL CHECK (event_id > 0),
  task_id    bigint NOT NULL,
  attempt    int NOT NULL DEFAULT 0,
  "timestamp" timestamptz NOT NULL,
  metadata   jsonb,
  payload    bytea NOT NULL,
  PRIMARY KEY (namespace, process_id, event_id)
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON TABLE events IS 'What happened in a process, as its processor told it: written once, never changed, numbered without gaps.';
COMMENT ON COLUMN events.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN events.process_id IS 'The process that it happened in.';
COMMENT ON COLUMN events.event_id IS '1, 2, 3, … in each process.';
COMMENT ON COLUMN events.task_id IS 'The task that produced it; 0: imported by PutProcess.';
COMMENT ON COLUMN events.attempt IS 'The attempt of that task; 0: imported.';
COMMENT ON COLUMN events."timestamp" IS 'The processor''s time of the event; by default when it was stored.';
COMMENT ON COLUMN events.metadata IS 'Attributes of the event as JSON, such as format_version.';
COMMENT ON COLUMN events.payload IS 'What happened, in the processor''s own format (bytes).';

CREATE TABLE requests (
  request_id   uuid PRIMARY KEY,
  namespace    text COLLATE "C" NOT NULL,
  process_id   text COLLATE "C" NOT NULL,
  task_id      bigint NOT NULL,
  fingerprint  bytea NOT NULL,
  created_time timestamptz NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX requests_created ON requests USING brin (created_time);
COMMENT ON TABLE requests IS 'Idempotent requests: who repeats one gets the answer of its task. Outlives the process.';
COMMENT ON COLUMN requests.request_id IS 'First 16 bytes of SHA-256 over namespace, process_id (empty where the engine chose it) and idempotency key, each with its length.';
COMMENT ON COLUMN requests.namespace IS 'Namespace of the request.';
COMMENT ON COLUMN requests.process_id IS 'The process that it went to, or started.';
COMMENT ON COLUMN requests.task_id IS 'The task whose answer is the request''s; 0: a repair that needed none.';
COMMENT ON COLUMN requests.fingerprint IS 'Digest of method and args: another request under the same key is refused.';
COMMENT ON COLUMN requests.created_time IS 'When the request was accepted.';

CREATE TABLE answers (
  namespace     text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  task_id       bigint NOT NULL,
  task_type     task_type NOT NULL,
  status        task_status NOT NULL CHECK (status IN ('FINISHED', 'ERROR', 'CANCELLED')),
  fencing_token bigint,
  ended_time    timestamptz NOT NULL,
  response      bytea,
  failure       jsonb,
  rejection     jsonb,
  PRIMARY KEY (namespace, process_id, task_id)
);
CREATE INDEX answers_ended ON answers USING brin (ended_time);
COMMENT ON TABLE answers IS 'What became of tasks whose process is gone: those that ran, waited or had an idempotency key when it was removed.';
COMMENT ON COLUMN answers.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN answers.process_id IS 'The process that the task belonged to.';
COMMENT ON COLUMN answers.task_id IS 'Number of the task.';
COMMENT ON COLUMN answers.task_type IS 'INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN answers.status IS 'FINISHED (rejected ones too), ERROR (failed for good), CANCELLED (never finished).';
COMMENT ON COLUMN answers.fencing_token IS 'Token of the attempt whose result was stored.';
COMMENT ON COLUMN answers.ended_time IS 'When the task ended.';
COMMENT ON COLUMN answers.response IS 'The processor''s answer to the caller (bytes).';
COMMENT ON COLUMN answers.failure IS 'Of ERROR: why, as JSON (reason, message, details).';
COMMENT ON COLUMN answers.rejection IS 'Of a FINISHED request to which the processor said no: why, as JSON.';

CREATE VIEW task_list AS
  SELECT namespace, process_id, task_id, task_type, status, attempt, scheduled_time, running_time, finished_time, timer_name,
         NULL::waits_for AS waits_for, idempotency_key, args, response, failure, rejection, cancelled_by FROM tasks
  UNION ALL
  SELECT namespace, process_id, task_id, task_type, 'RUNNING', attempt, scheduled_time, running_time, NULL, timer_name,
         NULL, idempotency_key, args, NULL, NULL, NULL, NULL FROM running
  UNION ALL
  SELECT s.namespace, s.process_id, s.task_id, s.task_type,
         CASE WHEN s.timer_name IS NOT NULL AND s.waits_for = 'time' AND (r.task_id IS NOT NULL OR EXISTS (
              SELECT 1 FROM schedule c WHERE c.namespace = s.namespace AND c.process_id = s.process_id AND c.waits_for IN ('process', 'place')))
              THEN 'BLOCKED' ELSE 'WAITING' END::task_status,
         s.attempt, s.scheduled_time, NULL, NULL, s.timer_name, s.waits_for, s.idempotency_key, s.args, NULL, s.failure, NULL, NULL
    FROM schedule s LEFT JOIN running r ON r.namespace = s.namespace AND r.process_id = s.process_id;
COMMENT ON VIEW task_list IS 'All tasks, waiting, running and ended, as one list. Name namespace and process_id in WHERE: then every part is reached by its primary key.';
COMMENT ON COLUMN task_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN task_list.process_id IS 'The process that the task belongs to.';
COMMENT ON COLUMN task_list.task_id IS 'Number of the task; in one process the order in which tasks were accepted.';
COMMENT ON COLUMN task_list.task_type IS 'INIT, CALL, NOTIFY, REPAIR, CANCEL, or a timer: TIMEOUT, REMOVE.';
COMMENT ON COLUMN task_list.status IS 'WAITING or BLOCKED (in schedule), RUNNING (in running), FINISHED, ERROR or CANCELLED (in tasks).';
COMMENT ON COLUMN task_list.attempt IS 'Number of the attempt that runs, or of those made; 0: it has not run.';
COMMENT ON COLUMN task_list.scheduled_time IS 'When it was due, is due, or was accepted.';
COMMENT ON COLUMN task_list.running_time IS 'When its last attempt began; NULL while it waits.';
COMMENT ON COLUMN task_list.finished_time IS 'When it ended; NULL while it waits or runs.';
COMMENT ON COLUMN task_list.timer_name IS 'Of a timer: its name, empty for the default timer.';
COMMENT ON COLUMN task_list.waits_for IS 'Of a task that waits: what for. See the type waits_for.';
COMMENT ON COLUMN task_list.idempotency_key IS 'The client''s key of the request.';
COMMENT ON COLUMN task_list.args IS 'What the caller sent (bytes).';
COMMENT ON COLUMN task_list.response IS 'The processor''s answer (bytes).';
COMMENT ON COLUMN task_list.failure IS 'Of ERROR, and of a retry that waits: why, as JSON.';
COMMENT ON COLUMN task_list.rejection IS 'Of a request to which the processor said no: why, as JSON.';
COMMENT ON COLUMN task_list.cancelled_by IS 'Of CANCELLED: task_id of the task whose failure or end cancelled it.';

-- +goose Down
DROP VIEW task_list;
DROP TABLE answers, requests, events, tasks, schedule, running, processes, nodes, namespaces;
DROP SEQUENCE task_ids, fencing_tokens;
DROP TYPE process_status, task_type, task_status, waits_for;
