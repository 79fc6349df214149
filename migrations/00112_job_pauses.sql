-- +goose Up
-- Job names that are paused: their jobs wait, while others run.
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

-- +goose Down
DROP TABLE job_pauses;
