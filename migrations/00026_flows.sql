-- +goose Up
-- A run is a process of kind flow, ~flow/RUN_ID; its steps are jobs (~job/RUN_ID/STEP), processes, waits, delays and other runs. What the next
-- step is follows from aux_state of its process, which is written with the rows of these tables in one transaction.

CREATE TYPE flow_status AS ENUM ('pending', 'active', 'cancel_requested', 'compensating', 'succeeded', 'failed', 'cancelled', 'expired');
CREATE TYPE step_status AS ENUM ('pending', 'running', 'succeeded', 'failed', 'skipped', 'cancelled');
COMMENT ON TYPE flow_status IS 'Status of a run, as its row says it.';
COMMENT ON TYPE step_status IS 'Status of a step of a run, or of an item of it.';

CREATE TABLE flow_types (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL CHECK (octet_length(template_type) BETWEEN 1 AND 128),
  version       int NOT NULL CHECK (version > 0),
  enabled       boolean NOT NULL DEFAULT true,
  created_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, template_type)
);
COMMENT ON TABLE flow_types IS 'Kinds of work that runs do: one row for each template, whatever its versions.';
COMMENT ON COLUMN flow_types.namespace IS 'Namespace of the template and of its runs.';
COMMENT ON COLUMN flow_types.template_type IS 'Its name, 1 to 128 of [a-z0-9_.-].';
COMMENT ON COLUMN flow_types.version IS 'Its newest version.';
COMMENT ON COLUMN flow_types.enabled IS 'False: no new run starts; what runs goes on.';
COMMENT ON COLUMN flow_types.created_time IS 'When its first version was stored.';

CREATE TABLE flow_templates (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL,
  version       int NOT NULL,
  definition    jsonb NOT NULL CHECK (jsonb_typeof(definition) = 'object'),
  created_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, template_type, version),
  FOREIGN KEY (namespace, template_type) REFERENCES flow_types ON DELETE CASCADE
);
COMMENT ON TABLE flow_templates IS 'Versions of templates. A row never changes; a run keeps the version that it was started with.';
COMMENT ON COLUMN flow_templates.namespace IS 'As in flow_types.';
COMMENT ON COLUMN flow_templates.template_type IS 'As in flow_types.';
COMMENT ON COLUMN flow_templates.version IS '1, 2, 3, …';
COMMENT ON COLUMN flow_templates.definition IS 'The API''s message Template as JSON.';
COMMENT ON COLUMN flow_templates.created_time IS 'When it was stored.';

CREATE TABLE flow_runs (
  namespace             text COLLATE "C" NOT NULL,
  run_id                text COLLATE "C" NOT NULL CHECK (octet_length(run_id) BETWEEN 1 AND 160),
  template_type         text COLLATE "C" NOT NULL,
  template_version      int NOT NULL,
  status                flow_status NOT NULL,
  attempt               int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
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
  failure               jsonb CHECK (jsonb_typeof(failure) = 'object'),
  PRIMARY KEY (namespace, run_id),
  CONSTRAINT flow_runs_finished CHECK ((finished_time IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'expired')))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX flow_runs_created ON flow_runs (namespace, created_time, run_id);
CREATE INDEX flow_runs_type ON flow_runs (namespace, template_type, created_time, run_id);
CREATE INDEX flow_runs_finished ON flow_runs (namespace, finished_time) WHERE finished_time IS NOT NULL;
CREATE INDEX flow_runs_same ON flow_runs (namespace, template_type, dedupe_key) WHERE status = 'succeeded' AND dedupe_key IS NOT NULL;
CREATE INDEX flow_runs_open ON flow_runs (namespace, template_type) WHERE finished_time IS NULL;
COMMENT ON TABLE flow_runs IS 'Runs of templates: one row for each process of kind flow. Between active and its end a run is QUEUED, RUNNING or WAITING_WORKER by what its steps do: see the view run_list.';
COMMENT ON COLUMN flow_runs.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_runs.run_id IS 'The run; its process is ~flow/ and this.';
COMMENT ON COLUMN flow_runs.template_type IS 'Template that it executes.';
COMMENT ON COLUMN flow_runs.template_version IS 'Version of the template.';
COMMENT ON COLUMN flow_runs.status IS 'pending: blocked_on says what it waits for; active: steps of it are open.';
COMMENT ON COLUMN flow_runs.attempt IS 'Attempts of the whole run; 0: no step has begun.';
COMMENT ON COLUMN flow_runs.created_time IS 'When it was stored.';
COMMENT ON COLUMN flow_runs.updated_time IS 'When this row was written last.';
COMMENT ON COLUMN flow_runs.running_time IS 'When its first step began.';
COMMENT ON COLUMN flow_runs.finished_time IS 'When it came to its end.';
COMMENT ON COLUMN flow_runs.cancel_requested_time IS 'When somebody asked it to end.';
COMMENT ON COLUMN flow_runs.run_time IS 'Not before; NULL: at once.';
COMMENT ON COLUMN flow_runs.fire_time IS 'Fire time of the cron that started it.';
COMMENT ON COLUMN flow_runs.scope IS 'Whom it is for: user, account, system, …';
COMMENT ON COLUMN flow_runs.scope_id IS 'Which one of these.';
COMMENT ON COLUMN flow_runs.dedupe_key IS 'What makes it the same as another run of its template; NULL: it is the same as none, or nobody asks.';
COMMENT ON COLUMN flow_runs.blocked_on IS 'Of a pending run: scope: RUN_ID; backoff: TIME.';
COMMENT ON COLUMN flow_runs.cancel_reason IS 'Why it was asked to end.';
COMMENT ON COLUMN flow_runs.cron_id IS 'The cron that started it.';
COMMENT ON COLUMN flow_runs.parent_run_id IS 'The run whose step it is.';
COMMENT ON COLUMN flow_runs.repeat_of_run_id IS 'The run whose payload it was started with again.';
COMMENT ON COLUMN flow_runs.payload IS 'What it was started with.';
COMMENT ON COLUMN flow_runs.result IS 'Of a run that succeeded.';
COMMENT ON COLUMN flow_runs.failure IS 'Of the step that failed it, as JSON.';

CREATE TABLE flow_scopes (
  namespace     text COLLATE "C" NOT NULL,
  template_type text COLLATE "C" NOT NULL,
  dedupe_key    text COLLATE "C" NOT NULL CHECK (octet_length(dedupe_key) BETWEEN 1 AND 1024),
  run_id        text COLLATE "C" NOT NULL,
  holds         boolean NOT NULL,
  turn          bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (namespace, template_type, dedupe_key, run_id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX flow_scopes_holder ON flow_scopes (namespace, template_type, dedupe_key) WHERE holds;
COMMENT ON TABLE flow_scopes IS 'Which run has a dedupe key, and which wait for it. A row whose run is at its end, or gone, holds nothing.';
COMMENT ON COLUMN flow_scopes.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_scopes.template_type IS 'Template of the run.';
COMMENT ON COLUMN flow_scopes.dedupe_key IS 'As in flow_runs.';
COMMENT ON COLUMN flow_scopes.run_id IS 'The run.';
COMMENT ON COLUMN flow_scopes.holds IS 'It has the key; at most one does.';
COMMENT ON COLUMN flow_scopes.turn IS 'Order of those that wait.';

CREATE TABLE flow_steps (
  namespace           text COLLATE "C" NOT NULL,
  run_id              text COLLATE "C" NOT NULL,
  step_id             text COLLATE "C" NOT NULL,
  index               int NOT NULL CHECK (index >= -1),
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
  failure             jsonb CHECK (jsonb_typeof(failure) = 'object'),
  wait                jsonb CHECK (jsonb_typeof(wait) = 'object'),
  progress            jsonb CHECK (jsonb_typeof(progress) = 'object'),
  PRIMARY KEY (namespace, run_id, step_id, index)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX flow_steps_waits ON flow_steps (namespace, (coalesce(due_time, 'infinity')), run_id, step_id, index) WHERE token IS NOT NULL;
COMMENT ON TABLE flow_steps IS 'Steps of runs that have begun, were skipped or cancelled; a step of the template without a row is PENDING.';
COMMENT ON COLUMN flow_steps.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN flow_steps.run_id IS 'The run.';
COMMENT ON COLUMN flow_steps.step_id IS 'The step of its template.';
COMMENT ON COLUMN flow_steps.index IS 'Item of for_each, from 0; -1: the step itself.';
COMMENT ON COLUMN flow_steps.ord IS 'Place of the step in its template, from 0.';
COMMENT ON COLUMN flow_steps.status IS 'running: begun and not at its end; whether a worker holds its job says the job.';
COMMENT ON COLUMN flow_steps.compensation_status IS 'What became of undoing it; NULL: nobody has tried.';
COMMENT ON COLUMN flow_steps.attempt IS 'How often it has begun.';
COMMENT ON COLUMN flow_steps.running_time IS 'When it began last.';
COMMENT ON COLUMN flow_steps.finished_time IS 'When it ended.';
COMMENT ON COLUMN flow_steps.due_time IS 'Of a wait or a delay: until when.';
COMMENT ON COLUMN flow_steps.process_id IS 'The job, process or run that does it.';
COMMENT ON COLUMN flow_steps.process_namespace IS 'Its namespace; NULL: that of the run.';
COMMENT ON COLUMN flow_steps.token IS 'Of a wait that is open: what its answer has to name.';
COMMENT ON COLUMN flow_steps.worker_id IS 'Who answered a wait.';
COMMENT ON COLUMN flow_steps.reason IS 'Why it was skipped or cancelled.';
COMMENT ON COLUMN flow_steps.input IS 'What it was given; NULL: the payload of the run.';
COMMENT ON COLUMN flow_steps.result IS 'Of for_each the results of the items in their order.';
COMMENT ON COLUMN flow_steps.failure IS 'Why it failed, as JSON.';
COMMENT ON COLUMN flow_steps.wait IS 'Of a wait: kind, title and assignees, as JSON.';
COMMENT ON COLUMN flow_steps.progress IS 'Of a wait: what was reported last.';

-- +goose Down
DROP TABLE flow_steps, flow_scopes, flow_runs, flow_templates, flow_types;
DROP TYPE step_status, flow_status;
