-- +goose Up
CREATE TYPE fire_decision AS ENUM ('FIRED', 'QUEUED', 'SKIPPED_OVERLAP', 'SKIPPED_FAILURE', 'SKIPPED_CONCURRENCY', 'MISSED', 'DROPPED');
COMMENT ON TYPE fire_decision IS 'What was decided on a fire time of a cron.';
CREATE TYPE fire_status AS ENUM ('SCHEDULED', 'RUNNING', 'SUCCESS', 'FAILED', 'TIMEOUT', 'CANCELLED', 'SKIPPED');
COMMENT ON TYPE fire_status IS 'What became of a fire time: SCHEDULED is a run that waits for its place, SKIPPED that there is no run.';

CREATE TABLE cron_fires (
  namespace    text COLLATE "C" NOT NULL,
  cron_id      text COLLATE "C" NOT NULL CHECK (octet_length(cron_id) BETWEEN 1 AND 200),
  fire_time    timestamptz NOT NULL,
  decision     fire_decision NOT NULL,
  reason       text CHECK (octet_length(reason) <= 4096),
  attempt      integer NOT NULL CHECK (attempt >= 0),
  status       fire_status NOT NULL,
  process_id   text COLLATE "C" CHECK (octet_length(process_id) BETWEEN 1 AND 256),
  decided_time timestamptz NOT NULL,
  started_time timestamptz,
  ended_time   timestamptz,
  detail       text CHECK (octet_length(detail) <= 4096),
  manual       boolean NOT NULL DEFAULT false,
  count        bigint NOT NULL DEFAULT 1 CHECK (count >= 1),
  PRIMARY KEY (namespace, cron_id, fire_time),
  CONSTRAINT cron_fires_run_or_skipped CHECK ((status = 'SKIPPED') = (decision NOT IN ('FIRED', 'QUEUED'))),
  CONSTRAINT cron_fires_started CHECK ((started_time IS NOT NULL) OR status IN ('SCHEDULED', 'SKIPPED', 'CANCELLED')),
  CONSTRAINT cron_fires_ended CHECK ((ended_time IS NULL) = (status IN ('SCHEDULED', 'RUNNING')))
) WITH (fillfactor = 80);
CREATE INDEX cron_fires_decided ON cron_fires USING brin (decided_time);
COMMENT ON TABLE cron_fires IS 'The ledger of crons: one row for each fire time that came, with what was decided, why, and what became of the run. Written in the transaction of the decision. Kept for 30 days.';
COMMENT ON COLUMN cron_fires.namespace IS 'Namespace of the cron.';
COMMENT ON COLUMN cron_fires.cron_id IS 'The cron; its process is ~cron/ and this.';
COMMENT ON COLUMN cron_fires.fire_time IS 'When it was due, without jitter; of a triggered one when it was asked for, which is never a whole second.';
COMMENT ON COLUMN cron_fires.decision IS 'What was decided. It never changes: a QUEUED one that has started stays QUEUED.';
COMMENT ON COLUMN cron_fires.reason IS 'Why.';
COMMENT ON COLUMN cron_fires.attempt IS 'Of the run: 1, or more where it repeats one that failed; 0: no run has started.';
COMMENT ON COLUMN cron_fires.status IS 'What became of it. The first end of a run counts.';
COMMENT ON COLUMN cron_fires.process_id IS 'The process that is the run; NULL: there is none.';
COMMENT ON COLUMN cron_fires.decided_time IS 'When it was decided.';
COMMENT ON COLUMN cron_fires.started_time IS 'When the run started; NULL: it has not.';
COMMENT ON COLUMN cron_fires.ended_time IS 'When the run ended, or was found not to be: then with the decision.';
COMMENT ON COLUMN cron_fires.detail IS 'How the run ended, such as the message of its failure.';
COMMENT ON COLUMN cron_fires.manual IS 'true: triggered or backfilled.';
COMMENT ON COLUMN cron_fires.count IS 'How many fire times the row stands for; more than 1 only for old MISSED ones, of which it has the newest.';

-- +goose Down
DROP TABLE cron_fires;
DROP TYPE fire_status, fire_decision;
