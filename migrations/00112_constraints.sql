-- +goose Up
-- Constraints of jobs.

CREATE TABLE constraint_buckets (
  namespace     text COLLATE "C" NOT NULL,
  line          text COLLATE "C" NOT NULL,
  tokens        double precision NOT NULL,
  unstarted     int NOT NULL,
  refilled_time timestamptz NOT NULL,
  full_time     timestamptz NOT NULL,
  next_time     timestamptz,
  PRIMARY KEY (namespace, line),
  CONSTRAINT constraint_buckets_tokens_check CHECK (tokens >= (0)::double precision),
  CONSTRAINT constraint_buckets_unstarted_check CHECK (unstarted >= 0)
)
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE constraint_buckets IS
  'Token buckets of keys whose constraint has a rate. A key without a row has a full bucket. A '
  'row is written when a job gets the key, and deleted when the bucket is full or the constraint '
  'has no rate.';
COMMENT ON COLUMN constraint_buckets.namespace IS 'Namespace of the constraint.';
COMMENT ON COLUMN constraint_buckets.line IS
  'Key queue: name of the constraint, =, value of its key.';
COMMENT ON COLUMN constraint_buckets.tokens IS
  'Tokens in the bucket at refilled_time: how many more jobs could get the key.';
COMMENT ON COLUMN constraint_buckets.unstarted IS
  'Number of jobs that had the key at refilled_time and were not yet claimed. They reduce the '
  'size of the bucket, because all of them may start at once.';
COMMENT ON COLUMN constraint_buckets.refilled_time IS 'When the bucket was last refilled.';
COMMENT ON COLUMN constraint_buckets.full_time IS
  'When the bucket is full again if no other job gets the key. The row is deleted after that.';
COMMENT ON COLUMN constraint_buckets.next_time IS
  'When the next job may get the key. NULL if one may get it now.';
CREATE INDEX constraint_buckets_next ON constraint_buckets (namespace, next_time)
  WHERE next_time IS NOT NULL;

CREATE TABLE constraint_holds (
  namespace  text COLLATE "C" NOT NULL,
  process_id text COLLATE "C" NOT NULL,
  line       text COLLATE "C" NOT NULL,
  held_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, process_id, line)
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE constraint_holds IS
  'Keys of constraints that jobs have. A row is written when the job may be claimed, and deleted '
  'when its attempt ends. max_running limits the number of rows of a key.';
COMMENT ON COLUMN constraint_holds.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN constraint_holds.process_id IS 'ID of the job and of its process.';
COMMENT ON COLUMN constraint_holds.line IS
  'Key queue: name of the constraint, =, value of its key.';
COMMENT ON COLUMN constraint_holds.held_time IS 'When the job got the key.';
CREATE INDEX constraint_holds_line ON constraint_holds (namespace COLLATE "POSIX", line);

CREATE TABLE constraint_reservations (
  namespace     text COLLATE "C" NOT NULL,
  line          text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  reserved_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, line)
);
COMMENT ON TABLE constraint_reservations IS
  'Keys of constraints that are kept for a job that needs several keys and waits for another one '
  'of them. A row is deleted when the job no longer waits for a key.';
COMMENT ON COLUMN constraint_reservations.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN constraint_reservations.line IS
  'Key queue: name of the constraint, =, value of its key.';
COMMENT ON COLUMN constraint_reservations.process_id IS
  'ID of the job for which the key is reserved. The row has no effect if the job does not wait '
  'for a key.';
COMMENT ON COLUMN constraint_reservations.reserved_time IS 'When the key was reserved.';

CREATE TABLE constraint_sets (
  namespace    text COLLATE "C" NOT NULL,
  version      bigint NOT NULL,
  changed_time timestamptz NOT NULL,
  began_time   timestamptz NOT NULL,
  swept_time   timestamptz,
  cursor       text COLLATE "C",
  PRIMARY KEY (namespace),
  CONSTRAINT constraint_sets_version_check CHECK (version > 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE constraint_sets IS
  'State of the constraints of a namespace: one row for each namespace that has, or had, '
  'constraints. Transactions that assign keys to jobs lock it first.';
COMMENT ON COLUMN constraint_sets.namespace IS 'Namespace of the constraints.';
COMMENT ON COLUMN constraint_sets.version IS
  'Version of the constraints, incremented with each change. A job runs only with the keys of '
  'this version.';
COMMENT ON COLUMN constraint_sets.changed_time IS 'When a constraint was last changed.';
COMMENT ON COLUMN constraint_sets.began_time IS
  'When the last evaluation of the waiting jobs began.';
COMMENT ON COLUMN constraint_sets.swept_time IS
  'When the last evaluation that was completed had begun. NULL if none was completed.';
COMMENT ON COLUMN constraint_sets.cursor IS
  'Progress of the evaluation: the last process_id that was evaluated, empty at the beginning. '
  'NULL if no evaluation is in progress.';

CREATE TABLE constraints (
  namespace    text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  match        text NOT NULL,
  key          text NOT NULL DEFAULT '',
  max_running  int NOT NULL DEFAULT 0,
  rate_count   int,
  rate_per     interval,
  rate_burst   int,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  updated_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, name),
  CONSTRAINT constraints_limit CHECK (max_running > 0 OR rate_count IS NOT NULL),
  CONSTRAINT constraints_match_check CHECK (match <> ''),
  CONSTRAINT constraints_max_running_check CHECK (max_running >= 0),
  CONSTRAINT constraints_name_check CHECK (
    octet_length(name) BETWEEN 1
    AND 256
    AND (POSITION(('=') IN (name)) = 0)),
  CONSTRAINT constraints_rate CHECK (
    ((rate_count IS NULL) = (rate_per IS NULL))
    AND ((rate_count IS NULL) = (rate_burst IS NULL))),
  CONSTRAINT constraints_rate_burst_check CHECK (rate_burst > 0),
  CONSTRAINT constraints_rate_count_check CHECK (rate_count > 0),
  CONSTRAINT constraints_rate_per_check CHECK (rate_per > '00:00:00'::interval)
);
COMMENT ON TABLE constraints IS
  'Limits of jobs. Change them only with PutConstraint and DeleteConstraint, which also cause '
  'waiting jobs to be evaluated again.';
COMMENT ON COLUMN constraints.namespace IS 'Namespace of the jobs that the constraint limits.';
COMMENT ON COLUMN constraints.name IS 'Name of the constraint, 1 to 256 bytes without =.';
COMMENT ON COLUMN constraints.match IS
  'CEL expression that selects the jobs that the constraint limits.';
COMMENT ON COLUMN constraints.key IS
  'CEL expression. Each of its values has its own limit. Empty if all jobs share one limit.';
COMMENT ON COLUMN constraints.max_running IS
  'Maximum number of jobs of a key that run at the same time. 0 for no limit.';
COMMENT ON COLUMN constraints.rate_count IS
  'Maximum number of jobs of a key that start in rate_per. NULL for no limit.';
COMMENT ON COLUMN constraints.rate_per IS 'Period to which rate_count applies. NULL for no limit.';
COMMENT ON COLUMN constraints.rate_burst IS
  'Size of the token bucket: how many unused starts may follow at once. NULL if the constraint '
  'has no rate.';
COMMENT ON COLUMN constraints.created_time IS 'When the constraint was created.';
COMMENT ON COLUMN constraints.updated_time IS
  'When the constraint was last created or replaced by PutConstraint.';
