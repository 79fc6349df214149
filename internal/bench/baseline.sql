-- The schema of valitydev/progressor, the reference, for one namespace: the tables, columns,
-- foreign keys and indexes of its priv/schemas/postgres-schema.sql. Only event_id is wider here
-- (integer), for loops of more than 32,767 steps.
CREATE TYPE process_status AS ENUM ('init', 'running', 'error');
CREATE TYPE task_status AS ENUM ('waiting', 'running', 'blocked', 'error', 'finished', 'cancelled');
CREATE TYPE task_type AS ENUM ('init', 'timeout', 'call', 'notify', 'repair', 'remove');

CREATE TABLE processes (
  process_id varchar(80) PRIMARY KEY,
  status     process_status NOT NULL,
  detail     text,
  aux_state  bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  metadata   jsonb
);

CREATE TABLE tasks (
  task_id             bigserial PRIMARY KEY,
  process_id          varchar(256) NOT NULL REFERENCES processes (process_id),
  task_type           task_type NOT NULL,
  status              task_status NOT NULL,
  scheduled_time      timestamptz NOT NULL,
  running_time        timestamptz,
  finished_time       timestamptz,
  args                bytea,
  metadata            jsonb,
  idempotency_key     varchar(80) UNIQUE,
  response            bytea,
  blocked_task        bigint REFERENCES tasks (task_id),
  last_retry_interval integer NOT NULL,
  attempts_count      smallint NOT NULL,
  context             bytea
);
ALTER TABLE processes ADD COLUMN corrupted_by bigint REFERENCES tasks (task_id);

CREATE TABLE schedule (
  task_id             bigint PRIMARY KEY REFERENCES tasks (task_id),
  process_id          varchar(80) NOT NULL REFERENCES processes (process_id),
  task_type           task_type NOT NULL,
  status              task_status NOT NULL,
  scheduled_time      timestamptz NOT NULL,
  args                bytea,
  metadata            jsonb,
  last_retry_interval integer NOT NULL,
  attempts_count      smallint NOT NULL,
  context             bytea
);

CREATE TABLE running (
  process_id          varchar(80) PRIMARY KEY REFERENCES processes (process_id),
  task_id             bigint NOT NULL REFERENCES tasks (task_id),
  task_type           task_type NOT NULL,
  status              task_status NOT NULL,
  scheduled_time      timestamptz NOT NULL,
  running_time        timestamptz NOT NULL,
  args                bytea,
  metadata            jsonb,
  last_retry_interval integer NOT NULL,
  attempts_count      smallint NOT NULL,
  context             bytea
);

CREATE TABLE events (
  process_id  varchar(80) NOT NULL REFERENCES processes (process_id),
  task_id     bigint NOT NULL REFERENCES tasks (task_id),
  event_id    integer NOT NULL,
  "timestamp" timestamptz DEFAULT now(),
  metadata    jsonb,
  payload     bytea NOT NULL,
  PRIMARY KEY (process_id, event_id)
);

CREATE INDEX events_process ON events USING hash (process_id);
CREATE INDEX tasks_process ON tasks USING hash (process_id);
CREATE INDEX schedule_process ON schedule USING hash (process_id);
CREATE INDEX running_task ON running USING hash (task_id);
