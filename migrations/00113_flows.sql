-- +goose Up
-- Templates and runs of flows.

CREATE TYPE flow_status AS ENUM (
  'pending', 'active', 'cancel_requested', 'compensating', 'succeeded', 'failed', 'cancelled',
  'expired');
COMMENT ON TYPE flow_status IS
  'Status of a run as stored in flow_runs. The value active covers QUEUED, RUNNING and '
  'WAITING_WORKER of the API.';

CREATE TYPE step_status AS ENUM (
  'pending', 'running', 'succeeded', 'failed', 'skipped', 'cancelled');
COMMENT ON TYPE step_status IS
  'Status of a step of a run, of an item of a for_each step, or of the compensation of a step.';

CREATE TABLE flow_types (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL,
  version       int NOT NULL,
  enabled       boolean NOT NULL DEFAULT true,
  created_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, template_type),
  CONSTRAINT flow_types_template_type_check CHECK (octet_length(template_type) BETWEEN 1 AND 128),
  CONSTRAINT flow_types_version_check CHECK (version > 0)
);
COMMENT ON TABLE flow_types IS
  'Flow templates: one row for each, independent of its versions. A row is written with the first '
  'version, and deleted by DeleteTemplate.';
COMMENT ON COLUMN flow_types.namespace IS 'Namespace of the template and of its runs.';
COMMENT ON COLUMN flow_types.template_type IS
  'Name of the template, 1 to 128 characters of [a-z0-9_.-].';
COMMENT ON COLUMN flow_types.version IS 'Newest version of the template.';
COMMENT ON COLUMN flow_types.enabled IS
  'False if no new run of the template may start. Existing runs continue.';
COMMENT ON COLUMN flow_types.created_time IS 'When the first version of the template was stored.';

CREATE TABLE flow_templates (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL,
  version       int NOT NULL,
  definition    jsonb NOT NULL,
  created_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, template_type, version),
  CONSTRAINT flow_templates_definition_check CHECK (jsonb_typeof(definition) = 'object'),
  FOREIGN KEY (namespace, template_type)
    REFERENCES flow_types(namespace, template_type) ON DELETE CASCADE
);
COMMENT ON TABLE flow_templates IS
  'Versions of flow templates. A row is never changed, and is deleted with its template. A run '
  'keeps its version unless RetryRun sets newest_version.';
COMMENT ON COLUMN flow_templates.namespace IS 'Namespace of the template and of its runs.';
COMMENT ON COLUMN flow_templates.template_type IS
  'Name of the template, 1 to 128 characters of [a-z0-9_.-].';
COMMENT ON COLUMN flow_templates.version IS 'Version of the template, counted from 1.';
COMMENT ON COLUMN flow_templates.definition IS
  'Definition of the template, as JSON (the message Template of the API).';
COMMENT ON COLUMN flow_templates.created_time IS 'When the version was stored.';

CREATE TABLE flow_runs (
  namespace             text COLLATE "C" NOT NULL,
  run_id                text COLLATE "C" NOT NULL,
  template_type         text COLLATE "C" NOT NULL,
  template_version      int NOT NULL,
  status                flow_status NOT NULL,
  attempt               int NOT NULL DEFAULT 0,
  created_time          timestamptz NOT NULL DEFAULT statement_timestamp(),
  updated_time          timestamptz NOT NULL DEFAULT statement_timestamp(),
  running_time          timestamptz,
  finished_time         timestamptz,
  cancel_requested_time timestamptz,
  run_time              timestamptz,
  fire_time             timestamptz,
  scope                 text NOT NULL DEFAULT '',
  scope_id              text NOT NULL DEFAULT '',
  dedupe_key            text COLLATE "C",
  blocked_on            text,
  cancel_reason         text,
  cron_id               text,
  parent_run_id         text,
  repeat_of_run_id      text,
  payload               jsonb,
  result                jsonb,
  failure               jsonb,
  PRIMARY KEY (namespace, run_id),
  CONSTRAINT flow_runs_attempt_check CHECK (attempt >= 0),
  CONSTRAINT flow_runs_failure_check CHECK (jsonb_typeof(failure) = 'object'),
  CONSTRAINT flow_runs_finished CHECK (
    (finished_time IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'expired'))),
  CONSTRAINT flow_runs_run_id_check CHECK (octet_length(run_id) BETWEEN 1 AND 160)
)
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE flow_runs IS
  'Flow runs: one row for each process of kind flow, written with the first result of the process '
  'and deleted with it. For the status that the API shows, see the view run_list.';
COMMENT ON COLUMN flow_runs.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_runs.run_id IS 'ID of the run. Its process is ~flow/RUN_ID.';
COMMENT ON COLUMN flow_runs.template_type IS 'Name of the template of the run.';
COMMENT ON COLUMN flow_runs.template_version IS 'Version of the template of the run.';
COMMENT ON COLUMN flow_runs.status IS
  'Status of the run. pending: it waits for what blocked_on says. active: it has open steps.';
COMMENT ON COLUMN flow_runs.attempt IS
  'Number of attempts of the whole run. 0 if the first one has not begun.';
COMMENT ON COLUMN flow_runs.created_time IS 'When the run was stored.';
COMMENT ON COLUMN flow_runs.updated_time IS
  'When this row was last written: with each change of the run, and with the change of a step if a '
  'minute has passed.';
COMMENT ON COLUMN flow_runs.running_time IS
  'When the first step of the run began. A job begins when a worker takes it. NULL if that is not '
  'known yet.';
COMMENT ON COLUMN flow_runs.finished_time IS 'When the run ended. NULL if it has not ended.';
COMMENT ON COLUMN flow_runs.cancel_requested_time IS
  'When a cancel of the run was first requested. NULL if none was requested.';
COMMENT ON COLUMN flow_runs.run_time IS 'Earliest start of the run. NULL if it may start at once.';
COMMENT ON COLUMN flow_runs.fire_time IS
  'Fire time of the cron that started the run. NULL if none did.';
COMMENT ON COLUMN flow_runs.scope IS
  'Kind of the subject of the run, such as user, account or system. Empty if there is none.';
COMMENT ON COLUMN flow_runs.scope_id IS 'ID of the subject of the run. Empty if there is none.';
COMMENT ON COLUMN flow_runs.dedupe_key IS
  'Dedupe key of the run. Runs of a template with the same key do not run at the same time. NULL '
  'if the run has no key.';
COMMENT ON COLUMN flow_runs.blocked_on IS
  'For a pending run, what it waits for: scope: RUN_ID, time: TIME, or backoff: TIME. NULL if it '
  'waits for none of these.';
COMMENT ON COLUMN flow_runs.cancel_reason IS 'Reason of the cancel request. NULL if there is none.';
COMMENT ON COLUMN flow_runs.cron_id IS 'ID of the cron that started the run. NULL if none did.';
COMMENT ON COLUMN flow_runs.parent_run_id IS
  'ID of the run that started this run in a step. NULL if there is none.';
COMMENT ON COLUMN flow_runs.repeat_of_run_id IS
  'ID of the run that this run repeats, with the same payload. NULL if there is none.';
COMMENT ON COLUMN flow_runs.payload IS 'Input of the run, as JSON. NULL if there is none.';
COMMENT ON COLUMN flow_runs.result IS 'Result of the run, as JSON. NULL if it has not succeeded.';
COMMENT ON COLUMN flow_runs.failure IS
  'Failure of the step that failed the run, as JSON. NULL if the run has not failed.';
CREATE INDEX flow_runs_same ON flow_runs (namespace, template_type, dedupe_key)
  WHERE status = 'succeeded' AND dedupe_key IS NOT NULL;
CREATE INDEX flow_runs_created
  ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX");
CREATE INDEX flow_runs_type
  ON flow_runs (namespace COLLATE "POSIX", template_type COLLATE "POSIX", created_time,
                run_id COLLATE "POSIX");
CREATE INDEX flow_runs_updated
  ON flow_runs (namespace COLLATE "POSIX", updated_time, run_id COLLATE "POSIX");
CREATE INDEX flow_runs_unfinished
  ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX")
  WHERE finished_time IS NULL;
CREATE INDEX flow_runs_unsuccessful
  ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX")
  WHERE status IN ('failed', 'cancelled', 'expired');
CREATE INDEX flow_runs_scope
  ON flow_runs (namespace COLLATE "POSIX", scope_id COLLATE "POSIX", created_time,
                run_id COLLATE "POSIX")
  WHERE scope_id <> '';
CREATE INDEX flow_runs_cron
  ON flow_runs (namespace COLLATE "POSIX", cron_id COLLATE "POSIX", created_time,
                run_id COLLATE "POSIX")
  WHERE cron_id IS NOT NULL;

CREATE TABLE flow_steps (
  namespace           text COLLATE "C" NOT NULL,
  run_id              text COLLATE "C" NOT NULL,
  step_id             text COLLATE "C" NOT NULL,
  index               int NOT NULL,
  ord                 int NOT NULL,
  status              step_status NOT NULL,
  compensation_status step_status,
  attempt             int NOT NULL DEFAULT 0,
  running_time        timestamptz,
  finished_time       timestamptz,
  due_time            timestamptz,
  process_id          text,
  process_namespace   text,
  token               text,
  worker_id           text,
  reason              text,
  input               jsonb,
  result              jsonb,
  failure             jsonb,
  wait                jsonb,
  progress            jsonb,
  item_hash           bigint,
  PRIMARY KEY (namespace, run_id, step_id, index),
  CONSTRAINT flow_steps_failure_check CHECK (jsonb_typeof(failure) = 'object'),
  CONSTRAINT flow_steps_index_check CHECK (index >= '-1'::integer),
  CONSTRAINT flow_steps_progress_check CHECK (jsonb_typeof(progress) = 'object'),
  CONSTRAINT flow_steps_wait_check CHECK (jsonb_typeof(wait) = 'object')
)
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE flow_steps IS
  'Steps of runs, and items of for_each steps, that have started, were skipped or were cancelled. '
  'A step of the template without a row is PENDING. Rows are deleted with their run.';
COMMENT ON COLUMN flow_steps.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_steps.run_id IS 'ID of the run. Its process is ~flow/RUN_ID.';
COMMENT ON COLUMN flow_steps.step_id IS 'ID of the step in its template.';
COMMENT ON COLUMN flow_steps.index IS
  'Index of the item of a for_each step, from 0. -1 for the step itself.';
COMMENT ON COLUMN flow_steps.ord IS 'Position of the step in its template, from 0.';
COMMENT ON COLUMN flow_steps.status IS
  'Status of the step. running: it has started and has not ended, even if its job still waits for '
  'a worker.';
COMMENT ON COLUMN flow_steps.compensation_status IS
  'Status of the compensation of the step: running, succeeded, failed or cancelled. NULL if it '
  'was not compensated.';
COMMENT ON COLUMN flow_steps.attempt IS
  'Number of starts of the step. An open job counts from when it was enqueued.';
COMMENT ON COLUMN flow_steps.running_time IS
  'Last start of the step. For a job that has ended, when its last attempt began. NULL for an open '
  'job.';
COMMENT ON COLUMN flow_steps.finished_time IS 'When the step ended. NULL if it has not ended.';
COMMENT ON COLUMN flow_steps.due_time IS 'End of a delay, or due time of a wait. NULL if none.';
COMMENT ON COLUMN flow_steps.process_id IS
  'ID of the job, process or run that executes the step. NULL if there is none.';
COMMENT ON COLUMN flow_steps.process_namespace IS
  'Namespace of the job, process or run that executes the step. NULL for the namespace of the '
  'run.';
COMMENT ON COLUMN flow_steps.token IS 'Token that completes an open wait. NULL otherwise.';
COMMENT ON COLUMN flow_steps.worker_id IS
  'Who completed a wait, or the worker of a job that has ended. NULL if unknown.';
COMMENT ON COLUMN flow_steps.reason IS 'Why the step was skipped or cancelled. NULL if it was not.';
COMMENT ON COLUMN flow_steps.input IS 'Input of the step, JSON. NULL for the payload of the run.';
COMMENT ON COLUMN flow_steps.result IS
  'Result of the step, as JSON. For a for_each step, the results of its items in order. NULL if '
  'there is none.';
COMMENT ON COLUMN flow_steps.failure IS 'Failure of the step, as JSON. NULL if it has not failed.';
COMMENT ON COLUMN flow_steps.wait IS
  'For a wait: its kind, title and assignees, as JSON. NULL for other steps.';
COMMENT ON COLUMN flow_steps.progress IS
  'For a wait: the last reported progress, as JSON (percent, summary). NULL if none was reported.';
COMMENT ON COLUMN flow_steps.item_hash IS
  'Hash of the value of an item, by which RetryRun finds the items of a changed list. NULL for a '
  'step itself, or if an older version started the item.';
CREATE INDEX flow_steps_waits
  ON flow_steps (namespace, COALESCE(due_time, 'infinity'::timestamptz), run_id, step_id, index)
  WHERE token IS NOT NULL;

CREATE TABLE flow_scopes (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL,
  dedupe_key    text COLLATE "C" NOT NULL,
  run_id        text COLLATE "C" NOT NULL,
  holds         boolean NOT NULL,
  turn          bigint GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (namespace, template_type, dedupe_key, run_id),
  CONSTRAINT flow_scopes_dedupe_key_check CHECK (octet_length(dedupe_key) BETWEEN 1 AND 1024)
) WITH (fillfactor = 80);
COMMENT ON TABLE flow_scopes IS
  'Runs that have a dedupe key, and runs that wait for it. A row is deleted when its run ends or '
  'is removed. Rows of ended or removed runs have no effect.';
COMMENT ON COLUMN flow_scopes.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_scopes.template_type IS 'Name of the template of the run.';
COMMENT ON COLUMN flow_scopes.dedupe_key IS 'Dedupe key of the run, as in flow_runs.';
COMMENT ON COLUMN flow_scopes.run_id IS 'ID of the run. Its process is ~flow/RUN_ID.';
COMMENT ON COLUMN flow_scopes.holds IS
  'True if the run has the key, which is the case for at most one run. False if it waits for the '
  'key.';
COMMENT ON COLUMN flow_scopes.turn IS
  'Number that determines the order of the waiting runs, smallest first.';
CREATE UNIQUE INDEX flow_scopes_holder ON flow_scopes (namespace, template_type, dedupe_key)
  WHERE holds;
