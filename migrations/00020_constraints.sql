-- +goose Up
-- Constraints limit how many jobs of a key run at a time, and how many start in a time.

CREATE TABLE constraints (
  namespace    text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256 AND position('=' IN name) = 0),
  match        text NOT NULL CHECK (match <> ''),
  key          text NOT NULL DEFAULT '',
  max_running  int NOT NULL DEFAULT 0 CHECK (max_running >= 0),
  rate_count   int CHECK (rate_count > 0),
  rate_per     interval CHECK (rate_per > interval '0'),
  rate_burst   int CHECK (rate_burst > 0),
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  updated_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, name),
  CONSTRAINT constraints_limit CHECK (max_running > 0 OR rate_count IS NOT NULL),
  CONSTRAINT constraints_rate CHECK ((rate_count IS NULL) = (rate_per IS NULL) AND (rate_count IS NULL) = (rate_burst IS NULL))
);
COMMENT ON TABLE constraints IS 'Limits of jobs. Change them by PutConstraint: it has the jobs that wait evaluated again.';
COMMENT ON COLUMN constraints.namespace IS 'Namespace of the jobs that it limits.';
COMMENT ON COLUMN constraints.name IS 'Its name, 1 to 256 bytes without =.';
COMMENT ON COLUMN constraints.match IS 'Which jobs it limits, in CEL.';
COMMENT ON COLUMN constraints.key IS 'One limit for each value of this CEL expression; empty: one for all.';
COMMENT ON COLUMN constraints.max_running IS 'How many jobs of a key may run at a time; 0: any number.';
COMMENT ON COLUMN constraints.rate_count IS 'How many jobs of a key may start in rate_per; NULL: any number.';
COMMENT ON COLUMN constraints.rate_per IS 'See rate_count.';
COMMENT ON COLUMN constraints.rate_burst IS 'How many starts that were not used up may follow at once.';
COMMENT ON COLUMN constraints.created_time IS 'When it was put first.';
COMMENT ON COLUMN constraints.updated_time IS 'When it was put last.';

CREATE TABLE constraint_sets (
  namespace    text COLLATE "C" PRIMARY KEY,
  version      bigint NOT NULL CHECK (version > 0),
  changed_time timestamptz NOT NULL,
  began_time   timestamptz NOT NULL,
  swept_time   timestamptz,
  cursor       text COLLATE "C"
) WITH (fillfactor = 50);
COMMENT ON TABLE constraint_sets IS 'One row for each namespace that has, or had, constraints. Whoever gives keys to jobs locks it first.';
COMMENT ON COLUMN constraint_sets.namespace IS 'The namespace.';
COMMENT ON COLUMN constraint_sets.version IS 'Grows with each change of a constraint. A job runs only with the keys of this version.';
COMMENT ON COLUMN constraint_sets.changed_time IS 'When version grew.';
COMMENT ON COLUMN constraint_sets.began_time IS 'When the last look through the jobs that wait began.';
COMMENT ON COLUMN constraint_sets.swept_time IS 'When the last look that came to its end had begun.';
COMMENT ON COLUMN constraint_sets.cursor IS 'How far the look has come: up to this process_id; NULL: none is under way.';

CREATE TABLE constraint_holds (
  namespace  text COLLATE "C" NOT NULL,
  process_id text COLLATE "C" NOT NULL,
  line       text COLLATE "C" NOT NULL,
  held_time  timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, process_id, line)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX constraint_holds_line ON constraint_holds (namespace COLLATE "POSIX", line);
-- Rows and no counter: a counter is one row that every end of a job of the key would have to lock, in the middle of a flush.
COMMENT ON TABLE constraint_holds IS 'Which keys of constraints jobs hold: from when they may be claimed until the attempt ends. How many rows a line has is what max_running bounds.';
COMMENT ON COLUMN constraint_holds.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN constraint_holds.process_id IS 'The job.';
COMMENT ON COLUMN constraint_holds.line IS 'The key: name of the constraint, =, value.';
COMMENT ON COLUMN constraint_holds.held_time IS 'Since when.';

CREATE TABLE constraint_buckets (
  namespace     text COLLATE "C" NOT NULL,
  line          text COLLATE "C" NOT NULL,
  tokens        double precision NOT NULL CHECK (tokens >= 0),
  unstarted     int NOT NULL CHECK (unstarted >= 0),
  refilled_time timestamptz NOT NULL,
  full_time     timestamptz NOT NULL,
  next_time     timestamptz,
  PRIMARY KEY (namespace, line)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX constraint_buckets_next ON constraint_buckets (namespace, next_time) WHERE next_time IS NOT NULL;
COMMENT ON TABLE constraint_buckets IS 'Token buckets of keys whose constraint has a rate; a key without a row has a full one.';
COMMENT ON COLUMN constraint_buckets.namespace IS 'Namespace of the constraint.';
COMMENT ON COLUMN constraint_buckets.line IS 'The key: name of the constraint, =, value.';
COMMENT ON COLUMN constraint_buckets.tokens IS 'How many starts were left at refilled_time.';
COMMENT ON COLUMN constraint_buckets.unstarted IS 'How many jobs had been given one then and had not started. The bucket holds so many less: they may start all at once.';
COMMENT ON COLUMN constraint_buckets.refilled_time IS 'When it was filled up last.';
COMMENT ON COLUMN constraint_buckets.full_time IS 'When it is full again, if nobody takes any. Then the row says nothing and goes.';
COMMENT ON COLUMN constraint_buckets.next_time IS 'When the next job of the key may start; NULL: one may now.';

ALTER TABLE schedule ADD COLUMN line text COLLATE "C";
COMMENT ON COLUMN schedule.line IS 'Of a job that needs keys: the line of the one that it waits for, or waited for (name of the constraint, =, value); empty: it is to be found. Else NULL.';

-- +goose Down
UPDATE schedule SET waits_for = 'place' WHERE waits_for = 'constraint';
ALTER TABLE schedule DROP COLUMN line;
DROP TABLE constraint_buckets, constraint_holds, constraint_sets, constraints;
