-- +goose Up
-- A job is a process of kind job: its INIT task is what runs. Here stands what a plain process has not.

ALTER TABLE schedule ADD COLUMN job_name text;
COMMENT ON COLUMN schedule.job_name IS 'Of a job: its name, by which workers choose; else NULL.';

CREATE TABLE jobs (
  namespace           text COLLATE "C" NOT NULL,
  process_id          text COLLATE "C" NOT NULL,
  name                text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
  timeout             interval NOT NULL,
  takeovers           int NOT NULL DEFAULT 0 CHECK (takeovers >= 0),
  updated_time        timestamptz NOT NULL DEFAULT statement_timestamp(),
  result_expires_time timestamptz,
  worker_id           text,
  tags                jsonb CHECK (jsonb_typeof(tags) = 'array'),
  options             jsonb CHECK (jsonb_typeof(options) = 'object'),
  failures            jsonb CHECK (jsonb_typeof(failures) = 'array'),
  progress            jsonb CHECK (jsonb_typeof(progress) = 'object'),
  result              bytea,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT jobs_result_expires CHECK (result IS NULL OR result_expires_time IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_result_expires ON jobs (result_expires_time) WHERE result IS NOT NULL;
COMMENT ON TABLE jobs IS 'What jobs have beyond processes: one row for each process of kind job. Its args are those of its INIT task; where it stands follows from processes, schedule and running.';
COMMENT ON COLUMN jobs.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN jobs.process_id IS 'The job, and the process that it is.';
COMMENT ON COLUMN jobs.name IS 'What is to be done, by which workers choose; 1 to 256 bytes.';
COMMENT ON COLUMN jobs.timeout IS 'How long one attempt may take.';
COMMENT ON COLUMN jobs.takeovers IS 'How often it went to another worker because one was lost, without using up a retry.';
COMMENT ON COLUMN jobs.updated_time IS 'When a row of it, or its progress, was written last by what this table records.';
COMMENT ON COLUMN jobs.result_expires_time IS 'Until when a kept result can be fetched; NULL: none was kept.';
COMMENT ON COLUMN jobs.worker_id IS 'The worker whose answer was stored last; NULL: none, or a processor of the engine.';
COMMENT ON COLUMN jobs.tags IS 'Its tags, a JSON array of strings; NULL: none.';
COMMENT ON COLUMN jobs.options IS 'The API''s message JobOptions as JSON: maxRetry, backoff, keepResult, …; what is missing has its default; NULL: all have.';
COMMENT ON COLUMN jobs.failures IS 'The failures of its attempts, oldest first, as JSON: [{attempt, workerId, time, failure}]; NULL: none failed.';
COMMENT ON COLUMN jobs.progress IS 'What its worker told last: percent, summary, details; NULL: nothing.';
COMMENT ON COLUMN jobs.result IS 'The kept result, JSON text, until it is fetched or expires; NULL: there is none.';

CREATE TABLE job_keys (
  namespace  text COLLATE "C" NOT NULL,
  unique_key text COLLATE "C" NOT NULL CHECK (octet_length(unique_key) BETWEEN 1 AND 256),
  process_id text COLLATE "C",
  ttl        interval NOT NULL DEFAULT '0',
  PRIMARY KEY (namespace, unique_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE job_keys IS 'Unique keys of jobs: who holds each. A key is free again once its job is at its end, and its ttl over; nothing is written then.';
COMMENT ON COLUMN job_keys.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_keys.unique_key IS 'The key, or a digest of name and args.';
COMMENT ON COLUMN job_keys.process_id IS 'The job that was enqueued with it last; NULL: the row was made by a transaction that enqueued nothing.';
COMMENT ON COLUMN job_keys.ttl IS 'For how long after the end of that job no other is enqueued.';

CREATE TABLE leases (
  namespace          text COLLATE "C" NOT NULL,
  process_id         text COLLATE "C" NOT NULL,
  fencing_token      bigint NOT NULL,
  worker_id          text NOT NULL CHECK (octet_length(worker_id) BETWEEN 1 AND 256),
  salt               bytea NOT NULL,
  leased_time        timestamptz NOT NULL,
  beat_time          timestamptz,
  expires_time       timestamptz NOT NULL,
  lease_duration     interval NOT NULL,
  heartbeat_interval interval NOT NULL,
  PRIMARY KEY (namespace, process_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
-- Not columns of running: a result changes its running row where it lies, so that nothing but the holder of the process may move it.
COMMENT ON TABLE leases IS 'Who holds the running task of a process, where that is a worker and not a node. It counts while running has the same fencing_token; another row is a leftover.';
COMMENT ON COLUMN leases.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN leases.process_id IS 'The process whose task is leased.';
COMMENT ON COLUMN leases.fencing_token IS 'Number of the attempt, as in running.';
COMMENT ON COLUMN leases.worker_id IS 'The worker, as it calls itself.';
COMMENT ON COLUMN leases.salt IS 'Random part of the lease token: nobody guesses the lease of another.';
COMMENT ON COLUMN leases.leased_time IS 'When it was taken.';
COMMENT ON COLUMN leases.beat_time IS 'Last heartbeat; NULL: none yet.';
COMMENT ON COLUMN leases.expires_time IS 'Silent until then, the worker has lost it. Until its first heartbeat that is twice heartbeat_interval, if that is sooner.';
COMMENT ON COLUMN leases.lease_duration IS 'By how much a heartbeat moves expires_time.';
COMMENT ON COLUMN leases.heartbeat_interval IS 'How often the worker was told to beat.';

-- +goose Down
DROP TABLE leases, job_keys, jobs;
ALTER TABLE schedule DROP COLUMN job_name;
