-- +goose Up
-- Jobs.

CREATE TABLE jobs (
  namespace           text COLLATE "C" NOT NULL,
  process_id          text COLLATE "C" NOT NULL,
  name                text NOT NULL,
  timeout             interval NOT NULL,
  takeovers           int NOT NULL DEFAULT 0,
  updated_time        timestamptz NOT NULL DEFAULT statement_timestamp(),
  result_expires_time timestamptz,
  worker_id           text,
  tags                jsonb,
  options             jsonb,
  failures            jsonb,
  progress            jsonb,
  result              bytea,
  constraints_version bigint,
  constraint_keys     jsonb,
  unique_key          text COLLATE "C",
  unreached           jsonb,
  fairness_key        text COLLATE "C",
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT jobs_constraint_keys_check CHECK (jsonb_typeof(constraint_keys) = 'object'),
  CONSTRAINT jobs_failures_check CHECK (jsonb_typeof(failures) = 'array'),
  CONSTRAINT jobs_name_check CHECK (octet_length(name) BETWEEN 1 AND 256),
  CONSTRAINT jobs_options_check CHECK (jsonb_typeof(options) = 'object'),
  CONSTRAINT jobs_progress_check CHECK (jsonb_typeof(progress) = 'object'),
  CONSTRAINT jobs_result_expires CHECK (result IS NULL OR result_expires_time IS NOT NULL),
  CONSTRAINT jobs_tags_check CHECK (jsonb_typeof(tags) = 'array'),
  CONSTRAINT jobs_takeovers_check CHECK (takeovers >= 0)
)
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE jobs IS
  'Additional data of jobs: one row for each process of kind job, deleted with the process. Its '
  'args are those of its INIT task. For its state, see the view job_list.';
COMMENT ON COLUMN jobs.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN jobs.process_id IS 'ID of the job and of its process.';
COMMENT ON COLUMN jobs.name IS 'Name of the job, by which workers choose jobs, 1 to 256 bytes.';
COMMENT ON COLUMN jobs.timeout IS 'Timeout of an attempt.';
COMMENT ON COLUMN jobs.takeovers IS
  'How often another worker took over the job because one was lost. Such attempts do not count as '
  'retries.';
COMMENT ON COLUMN jobs.updated_time IS 'When this row or the progress of the job was last written.';
COMMENT ON COLUMN jobs.result_expires_time IS
  'Until when the kept result can be fetched. NULL if none was kept.';
COMMENT ON COLUMN jobs.worker_id IS
  'ID of the worker whose failure was stored last, or that ended a job of a step. NULL if there '
  'is none. For other ended jobs, see tasks.worker_id.';
COMMENT ON COLUMN jobs.tags IS 'Tags of the job, a JSON array of strings. NULL if there are none.';
COMMENT ON COLUMN jobs.options IS
  'Options of the job, as JSON (the message JobOptions of the API). Missing fields have their '
  'defaults. NULL if all have.';
COMMENT ON COLUMN jobs.failures IS
  'Failures of attempts, oldest first, as a JSON array of objects (attempt, workerId, time, '
  'takeover, failure). The newest 20 are kept. NULL if no attempt has failed.';
COMMENT ON COLUMN jobs.progress IS
  'Last reported progress, as JSON (percent, summary, details). NULL if none was reported.';
COMMENT ON COLUMN jobs.result IS
  'The kept result, as JSON text, until it is fetched or expires. NULL if none is kept.';
COMMENT ON COLUMN jobs.constraints_version IS
  'Version of the constraints from which constraint_keys was computed. NULL if there were none. '
  '-1 if the job must be evaluated again because it has changed.';
COMMENT ON COLUMN jobs.constraint_keys IS
  'Names of the constraints that match the job, each with the value of its key, as JSON. NULL if '
  'none matches.';
COMMENT ON COLUMN jobs.unique_key IS
  'Unique key of the job, if it keeps the key after its end. NULL if it does not.';
COMMENT ON COLUMN jobs.unreached IS
  'Set when the processor of a pushed job could not be reached: the attempt, the number of tries, '
  'the time of the first one (since) and the error of the last one (cause), as JSON. It stays when '
  'a later try succeeds. NULL if the processor was always reached.';
COMMENT ON COLUMN jobs.fairness_key IS
  'Fairness key of the job: the value of the fairness_key of its namespace when the job was '
  'enqueued. NULL if the namespace had none.';
CREATE INDEX jobs_result_expires ON jobs (result_expires_time) WHERE result IS NOT NULL;
CREATE INDEX jobs_name ON jobs (namespace COLLATE "POSIX", name COLLATE "POSIX");
CREATE INDEX jobs_tags ON jobs USING gin (tags jsonb_path_ops) WITH (fastupdate = off)
  WHERE tags IS NOT NULL;

CREATE TABLE job_keys (
  namespace  text COLLATE "C" NOT NULL,
  unique_key text COLLATE "C" NOT NULL,
  process_id text COLLATE "C",
  ttl        interval NOT NULL DEFAULT '00:00:00'::interval,
  held_until timestamptz,
  PRIMARY KEY (namespace, unique_key),
  CONSTRAINT job_keys_unique_key_check CHECK (octet_length(unique_key) BETWEEN 1 AND 256)
) WITH (fillfactor = 80);
COMMENT ON TABLE job_keys IS
  'Unique keys of jobs, and the job that has each. A key is free again when its job has ended and '
  'ttl has passed. A row is deleted when its job was removed and held_until has passed.';
COMMENT ON COLUMN job_keys.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_keys.unique_key IS
  'The unique key, or a digest of the name and args of the job.';
COMMENT ON COLUMN job_keys.process_id IS
  'ID of the last job that was enqueued with the key. NULL if none was.';
COMMENT ON COLUMN job_keys.ttl IS 'How long the job keeps the key after its end.';
COMMENT ON COLUMN job_keys.held_until IS
  'Until when the key stays in use after retention has removed the job. NULL while the job '
  'exists.';

CREATE TABLE job_groups (
  namespace    text COLLATE "C" NOT NULL,
  process_id   text COLLATE "C" NOT NULL,
  count        int NOT NULL,
  max_failures int NOT NULL,
  worker_ids   text[],
  takers       text[] NOT NULL DEFAULT '{}'::text[],
  running_time timestamptz,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT job_groups_count_check CHECK (count > 0),
  CONSTRAINT job_groups_max_failures_check CHECK (max_failures >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE job_groups IS
  'Jobs that several workers run in parallel. A row is written when the first members of the job '
  'are created, and deleted with the job.';
COMMENT ON COLUMN job_groups.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_groups.process_id IS 'ID of the job and of its process.';
COMMENT ON COLUMN job_groups.count IS
  'Number of workers that must succeed. As many run the job in parallel.';
COMMENT ON COLUMN job_groups.max_failures IS
  'Number of workers that may fail before the job fails.';
COMMENT ON COLUMN job_groups.worker_ids IS
  'IDs of the workers that may get a member. NULL for all workers.';
COMMENT ON COLUMN job_groups.takers IS
  'IDs of the workers that have a member, or whose member has succeeded or failed. They get no '
  'other one.';
COMMENT ON COLUMN job_groups.running_time IS
  'Since when the job runs: a worker has a member, or a member has succeeded. NULL if it waits for '
  'workers or has ended.';
CREATE INDEX job_groups_running ON job_groups (namespace, process_id)
  WHERE running_time IS NOT NULL;

CREATE TABLE job_places (
  namespace     text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  job_id        text COLLATE "C" NOT NULL,
  worker_id     text,
  pinned        boolean NOT NULL DEFAULT false,
  asked         boolean NOT NULL DEFAULT false,
  state         text,
  attempts      int NOT NULL DEFAULT 0,
  running_time  timestamptz,
  finished_time timestamptz,
  failure       jsonb,
  result        bytea,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT job_places_finished CHECK ((state IS NULL) = (finished_time IS NULL)),
  CONSTRAINT job_places_pinned CHECK ((NOT pinned) OR worker_id IS NOT NULL),
  CONSTRAINT job_places_state_check CHECK (state IN ('succeeded', 'failed', 'cancelled'))
) WITH (fillfactor = 70);
COMMENT ON TABLE job_places IS
  'Members of jobs that several workers run in parallel: one row for each member, written when it '
  'is created. It is deleted with the job, or when another member replaces this one.';
COMMENT ON COLUMN job_places.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_places.process_id IS
  'ID of the member, itself a job: ~job/~/, the ID of the job, and a number.';
COMMENT ON COLUMN job_places.job_id IS 'ID of the job to which the member belongs.';
COMMENT ON COLUMN job_places.worker_id IS
  'ID of the worker that has the member, or had it when it ended. NULL if there is none. No two '
  'members of a job have the same worker.';
COMMENT ON COLUMN job_places.pinned IS
  'True if the member is reserved for this worker, which may not have polled yet.';
COMMENT ON COLUMN job_places.asked IS
  'True if the member was asked to end, because the job has ended or was cancelled.';
COMMENT ON COLUMN job_places.state IS
  'Outcome of the member: succeeded, failed or cancelled. NULL if it has not ended.';
COMMENT ON COLUMN job_places.attempts IS 'Number of attempts of the member. 0 if it has not ended.';
COMMENT ON COLUMN job_places.running_time IS
  'When a worker first claimed the member. NULL if none has.';
COMMENT ON COLUMN job_places.finished_time IS 'When the member ended. NULL if it has not ended.';
COMMENT ON COLUMN job_places.failure IS
  'Last failure of the member, as JSON. NULL if there is none.';
COMMENT ON COLUMN job_places.result IS
  'Result of the member, as JSON text, until the job succeeds and contains the results of all '
  'members. NULL if none is kept.';
CREATE UNIQUE INDEX job_places_worker ON job_places (namespace, job_id, worker_id)
  WHERE worker_id IS NOT NULL;
CREATE INDEX job_places_job ON job_places (namespace, job_id, process_id);

CREATE TABLE job_events (
  namespace    text COLLATE "C" NOT NULL,
  xid          xid8 NOT NULL DEFAULT greatest(
    pg_current_xact_id(),
    (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8),
  event_id     bigint GENERATED ALWAYS AS IDENTITY,
  job_id       text COLLATE "C" NOT NULL,
  step_id      text,
  index        int,
  type         text NOT NULL,
  from_status  text,
  to_status    text,
  attempt      int NOT NULL DEFAULT 0,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  worker_id    text,
  actor        text,
  message      text,
  metadata     jsonb,
  PRIMARY KEY (namespace, xid, event_id),
  CONSTRAINT job_events_attempt_check CHECK (attempt >= 0),
  CONSTRAINT job_events_metadata_check CHECK (jsonb_typeof(metadata) = 'object')
) WITH (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON TABLE job_events IS
  'Changes of jobs, runs and steps: one row each, written in the transaction of the change and '
  'never changed. The namespace sets which events are written (job_events) and how long they are '
  'kept.';
COMMENT ON COLUMN job_events.namespace IS 'Namespace of the job or run.';
COMMENT ON COLUMN job_events.xid IS
  'ID of the transaction that wrote the event, or a later one that had ended by then. All events '
  'below pg_snapshot_xmin(pg_current_snapshot()) are visible.';
COMMENT ON COLUMN job_events.event_id IS
  'Number of the event. The events of a job are numbered in the order in which they happened.';
COMMENT ON COLUMN job_events.job_id IS 'ID of the job or run.';
COMMENT ON COLUMN job_events.step_id IS
  'For a run: the step. NULL if the event is about a job or the run itself.';
COMMENT ON COLUMN job_events.index IS
  'For a for_each step: index of the item, from 0. NULL if the event is not about an item.';
COMMENT ON COLUMN job_events.type IS
  'Type of the event: enqueued, started, succeeded, attempt_failed, timeout, lease_lost, '
  'cancel_requested, … For all types, see docs/jobs.md and docs/flows.md.';
COMMENT ON COLUMN job_events.from_status IS
  'Status before the event, in lower case. NULL if there was none, or if the status did not '
  'change.';
COMMENT ON COLUMN job_events.to_status IS
  'Status after the event, in lower case. NULL if the job was removed, or if the status did not '
  'change.';
COMMENT ON COLUMN job_events.attempt IS
  'Number of the attempt. 0 if the event is not about an attempt.';
COMMENT ON COLUMN job_events.created_time IS
  'When the event was written, by the clock of the database.';
COMMENT ON COLUMN job_events.worker_id IS
  'ID of the worker that had the attempt. NULL if there was no attempt, or a node ran it.';
COMMENT ON COLUMN job_events.actor IS
  'Who requested the change. NULL if unknown, or if it was the engine.';
COMMENT ON COLUMN job_events.message IS
  'Message of the event, such as that of a failure, or the reason of a cancel. NULL if there is '
  'none.';
COMMENT ON COLUMN job_events.metadata IS
  'More data about the event, as a JSON object. NULL if there is none.';
CREATE INDEX job_events_job_hash ON job_events (hashtext(job_id));

CREATE TABLE job_counts (
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  lane      int NOT NULL
    DEFAULT coalesce(nullif(current_setting('progressor.lane', true), '')::int, 0),
  state     text NOT NULL,
  n         bigint NOT NULL,
  PRIMARY KEY (namespace, name, lane, state),
  CONSTRAINT job_counts_state_check CHECK (
    state IN ('scheduled', 'available', 'running', 'retryable', 'cancel_requested', 'succeeded',
      'failed', 'cancelled'))
)
WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE job_counts IS
  'Number of jobs of each name in each state: sum(n) over the lanes. Each transaction that '
  'creates, removes or changes jobs updates it, so the sums are exact.';
COMMENT ON COLUMN job_counts.namespace IS 'Namespace of the jobs.';
COMMENT ON COLUMN job_counts.name IS 'Name of the jobs.';
COMMENT ON COLUMN job_counts.lane IS
  'Lane that counted. Each lane of each engine has its own rows, so that lanes do not wait for '
  'each other. 0 for changes outside of lanes.';
COMMENT ON COLUMN job_counts.state IS
  'State of the jobs, in lower case. available includes running jobs and jobs with a cancel '
  'request. Members of jobs of several workers are not counted.';
COMMENT ON COLUMN job_counts.n IS
  'Number of jobs that entered the state minus those that left it. It may be negative in a single '
  'lane.';

-- job_event_xid is the default of job_events.xid. Statements that insert many events call it once,
-- because calling it for each event takes a fifth of their time.
-- +goose StatementBegin
CREATE FUNCTION job_event_xid() RETURNS xid8
LANGUAGE sql STABLE AS $$
  SELECT greatest(pg_current_xact_id(),
                  (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION job_event_xid IS
  'Returns the xid for the rows that a statement writes into job_events: the ID of its '
  'transaction or, if larger, the largest ID of a transaction that has ended.';

CREATE VIEW job_list AS
SELECT p.namespace, p.process_id AS job_id, j.name,
       CASE
         WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED'
         WHEN p.status = 'ERROR' THEN 'FAILED'
         WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
         WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED'
         WHEN r.task_id IS NOT NULL THEN 'RUNNING'
         WHEN s.taker = '~' AND s.attempt > 0 AND p.cancel_deadline IS NOT NULL
           THEN 'CANCEL_REQUESTED'
         WHEN s.taker = '~' AND g.running_time IS NOT NULL THEN 'RUNNING'
         WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE'
         WHEN s.waits_for = 'time' THEN 'SCHEDULED'
         ELSE 'AVAILABLE'
       END AS state,
       s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time,
       CASE
         WHEN s.taker = '~' AND g.running_time IS NULL THEN 0
         ELSE coalesce(r.attempt, s.attempt, t.attempt)
       END AS attempt,
       coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers,
       coalesce(l.worker_id, t.worker_id, j.worker_id) AS worker_id,
       l.expires_time AS lease_expires_time, r.node_id,
       coalesce(r.running_time, g.running_time) AS running_time, r.deadline, p.detail,
       p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
  FROM processes p
  JOIN jobs j
    ON j.namespace = p.namespace
   AND j.process_id = p.process_id
  LEFT JOIN schedule s
    ON s.namespace = p.namespace
   AND s.process_id = p.process_id
  LEFT JOIN running r
    ON r.namespace = p.namespace
   AND r.process_id = p.process_id
  LEFT JOIN job_groups g
    ON s.taker = '~'
   AND g.namespace = p.namespace
   AND g.process_id = p.process_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
  LEFT JOIN LATERAL (
    SELECT k.attempt, k.worker_id
      FROM tasks k
     WHERE s.task_id IS NULL
       AND r.task_id IS NULL
       AND k.namespace = p.namespace
       AND k.process_id = p.process_id
       AND k.task_type = 'INIT'
     ORDER BY k.task_id DESC LIMIT 1) t ON true
 WHERE p.kind = 'job'
   AND p.removed_time IS NULL;
COMMENT ON VIEW job_list IS
  'Jobs, each with its state, what it waits for, its worker and lease, and its last failure. Use '
  'a namespace in WHERE, or LIMIT.';
COMMENT ON COLUMN job_list.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_list.job_id IS 'ID of the job and of its process.';
COMMENT ON COLUMN job_list.name IS 'Name of the job, by which workers choose jobs, 1 to 256 bytes.';
COMMENT ON COLUMN job_list.state IS
  'State of the job: SCHEDULED, AVAILABLE, RUNNING, RETRYABLE, CANCEL_REQUESTED, SUCCEEDED, '
  'FAILED or CANCELLED.';
COMMENT ON COLUMN job_list.waits_for IS
  'What the job waits for: see the type waits_for. NULL if it does not wait.';
COMMENT ON COLUMN job_list.run_time IS
  'When the job is due. For a running job, when the attempt was due. NULL if it has ended.';
COMMENT ON COLUMN job_list.attempt IS
  'Number of the running attempt, or of past attempts. 0 if there are none.';
COMMENT ON COLUMN job_list.max_retry IS 'Maximum number of retries after the first attempt.';
COMMENT ON COLUMN job_list.takeovers IS
  'How often another worker took over the job because one was lost. Such attempts do not count as '
  'retries.';
COMMENT ON COLUMN job_list.worker_id IS
  'ID of the worker that has the lease, or that sent the last result. NULL if there is none.';
COMMENT ON COLUMN job_list.lease_expires_time IS
  'Without a heartbeat until then, the lease is lost. NULL if no worker has a lease.';
COMMENT ON COLUMN job_list.node_id IS
  'ID of the node that runs the job, or leased it to a worker. NULL if no task of the job is '
  'running.';
COMMENT ON COLUMN job_list.running_time IS
  'When the running attempt began. NULL if none is running.';
COMMENT ON COLUMN job_list.deadline IS
  'End of the timeout of the running attempt. NULL if none is running.';
COMMENT ON COLUMN job_list.detail IS
  'Why the job is FAILED, or why an operator suspended it. NULL if there is no reason.';
COMMENT ON COLUMN job_list.cancel_reason IS
  'Reason of the first cancel request. NULL if there is none.';
COMMENT ON COLUMN job_list.last_failure IS
  'Failure of the last attempt that failed, as JSON (reason, message, details). NULL if none has.';
COMMENT ON COLUMN job_list.progress IS
  'Last reported progress, as JSON (percent, summary, details). NULL if none was reported.';

-- +goose StatementBegin
CREATE FUNCTION member_runs(member_namespace text, member_id text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT EXISTS (
           SELECT FROM running r
            WHERE r.namespace = member_namespace
              AND r.process_id = member_id)
         OR EXISTS (
           SELECT FROM processes p
            WHERE p.namespace = member_namespace
              AND p.process_id = member_id
              AND p.removed_time IS NULL
              AND p.status NOT IN ('INIT', 'SUSPENDED'))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION member_runs IS
  'Reports whether a worker has a member of a job of several workers, or had it at its end, which '
  'the job learns a moment later.';

-- A step whose job is for several workers runs while that job runs.
CREATE VIEW running_jobs AS
SELECT r.namespace, r.process_id, r.fencing_token, r.running_time
  FROM running r
UNION ALL
SELECT g.namespace, g.process_id, NULL, g.running_time
  FROM job_groups g WHERE g.running_time IS NOT NULL;
COMMENT ON VIEW running_jobs IS
  'What runs: tasks, and jobs of several workers, which have no running task of their own.';
COMMENT ON COLUMN running_jobs.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN running_jobs.process_id IS 'ID of the process.';
COMMENT ON COLUMN running_jobs.fencing_token IS
  'Fencing token of the attempt. NULL for a job of several workers.';
COMMENT ON COLUMN running_jobs.running_time IS 'Start of the attempt.';

-- job_pauses has the job names that are paused. Their jobs wait while others run.
CREATE TABLE job_pauses (
  namespace   text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  reason      text NOT NULL DEFAULT '',
  actor       text,
  paused_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, name),
  CONSTRAINT job_pauses_name_check CHECK (octet_length(name) BETWEEN 1 AND 256),
  CONSTRAINT job_pauses_reason_check CHECK (octet_length(reason) <= 1024)
);
COMMENT ON TABLE job_pauses IS
  'Paused names of jobs, at most 100 in a namespace. No job of such a name is claimed. A row is '
  'written by PauseJobs, and deleted by ResumeJobs.';
COMMENT ON COLUMN job_pauses.namespace IS 'Namespace of the jobs.';
COMMENT ON COLUMN job_pauses.name IS 'Name of the jobs.';
COMMENT ON COLUMN job_pauses.reason IS
  'Why the name is paused, at most 1 KiB. Empty if no reason was given.';
COMMENT ON COLUMN job_pauses.actor IS 'Who paused the name last. NULL if unknown.';
COMMENT ON COLUMN job_pauses.paused_time IS 'Since when the name has been paused.';
-- Limits of jobs by key.
