-- +goose NO TRANSACTION
-- +goose Up
-- Jobs that several workers run side by side. Each run is a job of its own, a member; here stand who may have a place, and what became of each.
SET lock_timeout = 0;
ALTER TYPE waits_for ADD VALUE IF NOT EXISTS 'members';
COMMENT ON TYPE waits_for IS 'time: until scheduled_time. place: a free place on any node. process: behind another task of its process. operator: the process is suspended. constraint: a limit is reached. members: a job that several workers run, until one of its members ends.';
RESET lock_timeout;

ALTER TABLE schedule ADD COLUMN IF NOT EXISTS taker text;
COMMENT ON COLUMN schedule.taker IS 'Who alone may take it from its place. Of a member of a group: = and the worker that has its place, or empty: a worker that the group allows and that has none. Of the group itself: ~, the engine. Else NULL.';

CREATE TABLE IF NOT EXISTS job_groups (
  namespace    text COLLATE "C" NOT NULL,
  process_id   text COLLATE "C" NOT NULL,
  count        int NOT NULL CHECK (count > 0),
  max_failures int NOT NULL CHECK (max_failures >= 0),
  worker_ids   text[],
  takers       text[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (namespace, process_id)
) WITH (fillfactor = 50);
-- takers repeats what job_places says so that one row has it: whoever takes a place locks and changes this row, and sees what the one before has made of it.
COMMENT ON TABLE job_groups IS 'Jobs that several workers run side by side, from when their members are made.';
COMMENT ON COLUMN job_groups.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_groups.process_id IS 'The job.';
COMMENT ON COLUMN job_groups.count IS 'How many workers have to succeed; as many run it side by side.';
COMMENT ON COLUMN job_groups.max_failures IS 'How many workers may fail before the job does.';
COMMENT ON COLUMN job_groups.worker_ids IS 'The workers that may have a place; NULL: any.';
COMMENT ON COLUMN job_groups.takers IS 'The workers that have a place, or have succeeded or failed: none of them gets another one.';

CREATE TABLE IF NOT EXISTS job_places (
  namespace     text COLLATE "C" NOT NULL,
  process_id    text COLLATE "C" NOT NULL,
  job_id        text COLLATE "C" NOT NULL,
  worker_id     text,
  pinned        boolean NOT NULL DEFAULT false,
  asked         boolean NOT NULL DEFAULT false,
  state         text CHECK (state IN ('succeeded', 'failed', 'cancelled')),
  attempts      int NOT NULL DEFAULT 0,
  running_time  timestamptz,
  finished_time timestamptz,
  failure       jsonb,
  result        bytea,
  PRIMARY KEY (namespace, process_id),
  CONSTRAINT job_places_finished CHECK ((state IS NULL) = (finished_time IS NULL)),
  CONSTRAINT job_places_pinned CHECK (NOT pinned OR worker_id IS NOT NULL)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX IF NOT EXISTS job_places_worker ON job_places (namespace, job_id, worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS job_places_job ON job_places (namespace, job_id, process_id);
COMMENT ON TABLE job_places IS 'The places of jobs that several workers run: one row for each member.';
COMMENT ON COLUMN job_places.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_places.process_id IS 'The member: ~job/~/, the job, a number. It is a job itself.';
COMMENT ON COLUMN job_places.job_id IS 'The job that it is a member of.';
COMMENT ON COLUMN job_places.worker_id IS 'The worker that has the place, or had it to its end; NULL: nobody has. Two places of a job never have the same.';
COMMENT ON COLUMN job_places.pinned IS 'The place is for this worker alone, who may not have come yet.';
COMMENT ON COLUMN job_places.asked IS 'The member was asked to end, because the job is at its end or was cancelled.';
COMMENT ON COLUMN job_places.state IS 'What became of the member; NULL: it has not ended.';
COMMENT ON COLUMN job_places.attempts IS 'How many attempts it took, once it has ended.';
COMMENT ON COLUMN job_places.running_time IS 'When a worker took it first; NULL: none has.';
COMMENT ON COLUMN job_places.finished_time IS 'When it ended.';
COMMENT ON COLUMN job_places.failure IS 'Why it failed.';
COMMENT ON COLUMN job_places.result IS 'Its result, JSON text, until the job ends, which has them all; NULL: none is kept.';

SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS schedule_takers;
-- (The condition on waits_for is in words that no other index has: the planner takes schedule_place for it otherwise, in which all that waits stands.)
CREATE INDEX CONCURRENTLY schedule_takers ON schedule (taker, namespace COLLATE "POSIX", priority, task_id) WHERE taker IS NOT NULL AND (waits_for = 'place')::int = 1;
DROP INDEX CONCURRENTLY IF EXISTS schedule_members;
CREATE INDEX CONCURRENTLY schedule_members ON schedule (namespace COLLATE "POSIX", task_id) WHERE waits_for = 'members';
RESET lock_timeout;

-- A job that several workers run is RUNNING from when its members are made.
CREATE OR REPLACE VIEW job_list AS
  SELECT p.namespace, p.process_id AS job_id, j.name,
         CASE WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED' WHEN p.status = 'ERROR' THEN 'FAILED' WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
              WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED' WHEN r.task_id IS NOT NULL THEN 'RUNNING'
              WHEN s.taker = '~' AND s.attempt > 0 THEN CASE WHEN p.cancel_deadline IS NULL THEN 'RUNNING' ELSE 'CANCEL_REQUESTED' END
              WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE' WHEN s.waits_for = 'time' THEN 'SCHEDULED' ELSE 'AVAILABLE' END AS state,
         s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time, coalesce(r.attempt, s.attempt, t.attempt) AS attempt,
         coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers, coalesce(l.worker_id, j.worker_id) AS worker_id,
         l.expires_time AS lease_expires_time, r.node_id, r.running_time, r.deadline, p.detail, p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
    FROM processes p
    JOIN jobs j ON j.namespace = p.namespace AND j.process_id = p.process_id
    LEFT JOIN schedule s ON s.namespace = p.namespace AND s.process_id = p.process_id
    LEFT JOIN running r ON r.namespace = p.namespace AND r.process_id = p.process_id
    LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
    LEFT JOIN LATERAL (SELECT k.attempt FROM tasks k WHERE s.task_id IS NULL AND r.task_id IS NULL AND k.namespace = p.namespace AND k.process_id = p.process_id
                        ORDER BY k.task_id DESC LIMIT 1) t ON true
   WHERE p.kind = 'job' AND p.removed_time IS NULL;

-- An older one would hand a member to any worker, and a group to nobody.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 25::bigint';

-- +goose Down
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 10::bigint';
DROP INDEX CONCURRENTLY IF EXISTS schedule_members;
DROP INDEX CONCURRENTLY IF EXISTS schedule_takers;
CREATE OR REPLACE VIEW job_list AS
  SELECT p.namespace, p.process_id AS job_id, j.name,
         CASE WHEN p.status = 'COMPLETED' THEN 'SUCCEEDED' WHEN p.status = 'ERROR' THEN 'FAILED' WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
              WHEN r.task_id IS NOT NULL AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED' WHEN r.task_id IS NOT NULL THEN 'RUNNING'
              WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'RETRYABLE' WHEN s.waits_for = 'time' THEN 'SCHEDULED' ELSE 'AVAILABLE' END AS state,
         s.waits_for, coalesce(s.scheduled_time, r.scheduled_time) AS run_time, coalesce(r.attempt, s.attempt, t.attempt) AS attempt,
         coalesce((j.options->>'maxRetry')::int, 0) AS max_retry, j.takeovers, coalesce(l.worker_id, j.worker_id) AS worker_id,
         l.expires_time AS lease_expires_time, r.node_id, r.running_time, r.deadline, p.detail, p.cancel_reason, j.failures->-1->'failure' AS last_failure, j.progress
    FROM processes p
    JOIN jobs j ON j.namespace = p.namespace AND j.process_id = p.process_id
    LEFT JOIN schedule s ON s.namespace = p.namespace AND s.process_id = p.process_id
    LEFT JOIN running r ON r.namespace = p.namespace AND r.process_id = p.process_id
    LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
    LEFT JOIN LATERAL (SELECT k.attempt FROM tasks k WHERE s.task_id IS NULL AND r.task_id IS NULL AND k.namespace = p.namespace AND k.process_id = p.process_id
                        ORDER BY k.task_id DESC LIMIT 1) t ON true
   WHERE p.kind = 'job' AND p.removed_time IS NULL;
DROP TABLE IF EXISTS job_places, job_groups;
UPDATE schedule SET waits_for = 'place' WHERE waits_for = 'members';
ALTER TABLE schedule DROP COLUMN IF EXISTS taker;
