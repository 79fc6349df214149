-- +goose NO TRANSACTION
-- +goose Up
-- Jobs that come by a message: from SQL, and from a cron. And what retention looks for among jobs that have FAILED.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS processes_failed_jobs;
CREATE INDEX CONCURRENTLY processes_failed_jobs ON processes (namespace COLLATE "POSIX", attention_time)
  WHERE attention = 'ERROR' AND kind = 'job' AND removed_time IS NULL;
RESET lock_timeout;
COMMENT ON INDEX processes_failed_jobs IS 'Jobs that have FAILED, the longest ago first: they are at their end, and their namespace keeps them no longer than others.';

ALTER TABLE messages ADD COLUMN IF NOT EXISTS job jsonb;
COMMENT ON COLUMN messages.job IS 'Of a start: the process is a job, with this name, timeout, priority and more, as JSON; else NULL.';

COMMENT ON COLUMN dead_letters.outcome IS 'not_found: there was no such process, or for a start no such namespace. ended: the process was COMPLETED or CANCELLED, or it is a job that has FAILED, or takes no such message.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION enqueue(
  namespace text, name text, args jsonb DEFAULT NULL, job_id text DEFAULT NULL, run_time timestamptz DEFAULT NULL, priority int DEFAULT 0,
  max_retry int DEFAULT 0, backoff interval[] DEFAULT NULL, timeout interval DEFAULT '30 seconds', keep_result boolean DEFAULT false,
  result_ttl interval DEFAULT NULL, max_takeovers int DEFAULT NULL, cancel_grace interval DEFAULT NULL, tags text[] DEFAULT NULL,
  metadata jsonb DEFAULT NULL, unique_key text DEFAULT NULL, unique_ttl interval DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  id text := enqueue.job_id;
  wrong text;
  options jsonb;
BEGIN
  IF id IS NULL THEN -- a UUID of version 7, which the engine takes, too: ids that are near in time are near in the index
    id := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
            substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid::text;
  END IF;
  wrong := CASE
    WHEN enqueue.namespace IS NULL OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = enqueue.namespace)
      THEN format('there is no namespace "%s"', enqueue.namespace)
    WHEN octet_length(id) NOT BETWEEN 1 AND 256 THEN format('job_id has %s bytes, 1 to 256 are allowed', octet_length(id))
    WHEN starts_with(id, '~') THEN format('job_id "%s" begins with ~: such ids are the engine''s own', id)
    WHEN name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 256 THEN format('name has %s bytes, 1 to 256 are allowed', coalesce(octet_length(name), 0))
    WHEN octet_length(args::text) > 1048576 THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args::text))
    WHEN jsonb_path_exists(args, '$.** ? (@.type() == "number" && (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'args has a number beyond 2^53, which would lose digits: write it as a string'
    WHEN run_time < '1970-01-01 00:00:00Z' OR run_time >= '10000-01-01 00:00:00Z' THEN format('run_time %s is not between 1970 and 9999', run_time)
    WHEN max_retry < 0 THEN 'max_retry is negative'
    WHEN max_takeovers < 0 THEN 'max_takeovers is negative'
    WHEN timeout IS NULL OR timeout < '0' OR timeout > '365 days' THEN 'timeout is not between 0 and 365 days'
    WHEN EXISTS (SELECT FROM unnest(ARRAY[result_ttl, cancel_grace, unique_ttl] || backoff) i WHERE i < '0' OR i > '100 years')
      OR array_position(backoff, NULL) IS NOT NULL THEN 'an interval of result_ttl, cancel_grace, unique_ttl or backoff is not between 0 and 100 years'
    WHEN cardinality(backoff) > 1000 THEN format('backoff has %s steps, at most 1000 are allowed', cardinality(backoff))
    WHEN cardinality(tags) > 100 THEN format('tags has %s, at most 100 are allowed', cardinality(tags))
    WHEN EXISTS (SELECT FROM unnest(tags) t WHERE t IS NULL OR octet_length(t) NOT BETWEEN 1 AND 256) THEN 'a tag has no 1 to 256 bytes'
    WHEN jsonb_typeof(metadata) <> 'object' THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536 THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN octet_length(unique_key) NOT BETWEEN 1 AND 256 THEN format('unique_key has %s bytes, 1 to 256 are allowed', octet_length(unique_key))
    WHEN unique_ttl IS NOT NULL AND unique_key IS NULL THEN 'unique_ttl needs a unique_key'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- What is stored of the options is the API's message JobOptions as JSON, without what is default.
  options := jsonb_strip_nulls(jsonb_build_object(
    'maxRetry', NULLIF(max_retry, 0), 'maxTakeovers', max_takeovers, 'keepResult', NULLIF(keep_result, false),
    'resultTtl', extract(epoch FROM result_ttl)::numeric(20, 6) || 's', 'cancelGrace', extract(epoch FROM cancel_grace)::numeric(20, 6) || 's',
    'backoff', CASE WHEN cardinality(backoff) > 0 THEN jsonb_build_object('steps',
      (SELECT jsonb_agg(extract(epoch FROM i)::numeric(20, 6) || 's' ORDER BY n) FROM unnest(backoff) WITH ORDINALITY AS x(i, n))) END,
    'unique', CASE WHEN unique_key IS NOT NULL THEN jsonb_build_object('key', unique_key, 'ttl', extract(epoch FROM unique_ttl)::numeric(20, 6) || 's') END));
  INSERT INTO messages (namespace, process_id, kind, args, metadata, start_time, job)
  VALUES (enqueue.namespace, id, 'start', convert_to(args::text, 'UTF8'), enqueue.metadata, enqueue.run_time, jsonb_strip_nulls(jsonb_build_object(
    'name', name, 'priority', coalesce(priority, 0), 'timeoutUs', (extract(epoch FROM timeout) * 1000000)::bigint,
    'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END, 'options', NULLIF(options, '{}'),
    'uniqueKey', unique_key, 'uniqueTtlUs', (extract(epoch FROM unique_ttl) * 1000000)::bigint)));
  PERFORM pg_notify('progressor_messages', '');
  RETURN id;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION enqueue(text, text, jsonb, text, timestamptz, int, int, interval[], interval, boolean, interval, int, interval, text[], jsonb, text, interval) FROM PUBLIC;
COMMENT ON FUNCTION enqueue(text, text, jsonb, text, timestamptz, int, int, interval[], interval, boolean, interval, int, interval, text[], jsonb, text, interval)
  IS 'Enqueues a job when the transaction commits; where its id exists, or another job holds its unique_key, nothing happens. Answers the id of the job.';

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
COMMENT ON VIEW job_list IS 'The jobs, each with where it stands: what it waits for, who holds it and until when, and why it failed last. Name a namespace, or use LIMIT.';
COMMENT ON COLUMN job_list.namespace IS 'Namespace of the job.';
COMMENT ON COLUMN job_list.job_id IS 'The job, and the process that it is.';
COMMENT ON COLUMN job_list.name IS 'What is to be done, by which workers choose.';
COMMENT ON COLUMN job_list.state IS 'SCHEDULED, AVAILABLE, RUNNING, RETRYABLE, CANCEL_REQUESTED, SUCCEEDED, FAILED or CANCELLED.';
COMMENT ON COLUMN job_list.waits_for IS 'See the type waits_for; NULL: it does not wait.';
COMMENT ON COLUMN job_list.run_time IS 'Not before then; NULL: it is at its end.';
COMMENT ON COLUMN job_list.attempt IS 'The attempt that runs, or how many were made.';
COMMENT ON COLUMN job_list.max_retry IS 'How many attempts may follow the first one.';
COMMENT ON COLUMN job_list.takeovers IS 'How often it went to another worker because one was lost, without using up a retry.';
COMMENT ON COLUMN job_list.worker_id IS 'The worker that holds it, or has answered last; NULL: none.';
COMMENT ON COLUMN job_list.lease_expires_time IS 'Silent until then, the worker has lost it; NULL: no worker holds it.';
COMMENT ON COLUMN job_list.node_id IS 'The node that runs it, or has handed it out.';
COMMENT ON COLUMN job_list.running_time IS 'Since when the attempt runs.';
COMMENT ON COLUMN job_list.deadline IS 'When the attempt has passed its timeout.';
COMMENT ON COLUMN job_list.detail IS 'Of FAILED: why; of one that is suspended: what the operator said.';
COMMENT ON COLUMN job_list.cancel_reason IS 'Why it is to end, or was cancelled.';
COMMENT ON COLUMN job_list.last_failure IS 'Of the last attempt that failed: reason and message, as JSON.';
COMMENT ON COLUMN job_list.progress IS 'What its worker told last.';

-- A task that a worker holds is the worker's: it counts by its lease, and not by the node that has handed it out.
CREATE OR REPLACE VIEW zombie_list AS
  SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id, statement_timestamp() - r.running_time AS runs_for,
         statement_timestamp() - n.beat_time AS beat_age, r.deadline, l.worker_id, l.expires_time AS lease_expires_time
    FROM running r
    LEFT JOIN nodes n ON n.node_id = r.node_id
    LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
   WHERE r.deadline < statement_timestamp()
      OR CASE WHEN l.worker_id IS NOT NULL THEN l.expires_time < statement_timestamp()
              ELSE n.node_id IS NULL OR n.beat_time < statement_timestamp() - interval '10 seconds' END;
COMMENT ON VIEW zombie_list IS 'Tasks that should not run any more: their node is gone, has not beaten for 10 seconds, or their worker has lost them; or they are past their deadline. A row that stays: no engine collects them.';
COMMENT ON COLUMN zombie_list.node_id IS 'The node that ran it, or handed it out.';
COMMENT ON COLUMN zombie_list.worker_id IS 'The worker that held it as a lease; NULL: the node ran it.';
COMMENT ON COLUMN zombie_list.lease_expires_time IS 'Until when the worker held it.';

-- +goose Down
DROP VIEW zombie_list;
CREATE VIEW zombie_list AS
  SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id, statement_timestamp() - r.running_time AS runs_for,
         statement_timestamp() - n.beat_time AS beat_age, r.deadline
    FROM running r LEFT JOIN nodes n ON n.node_id = r.node_id
   WHERE n.node_id IS NULL OR n.beat_time < statement_timestamp() - interval '10 seconds' OR r.deadline < statement_timestamp();
COMMENT ON VIEW zombie_list IS 'Tasks that should not run any more: their node is gone, has not beaten for 10 seconds, or has held them past their deadline. A row that stays: no engine collects them.';
COMMENT ON COLUMN zombie_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN zombie_list.process_id IS 'The process that it holds up.';
COMMENT ON COLUMN zombie_list.task_id IS 'The task.';
COMMENT ON COLUMN zombie_list.task_type IS 'Its type.';
COMMENT ON COLUMN zombie_list.attempt IS 'Number of the attempt that runs.';
COMMENT ON COLUMN zombie_list.node_id IS 'The node that ran it.';
COMMENT ON COLUMN zombie_list.runs_for IS 'How long ago the attempt began.';
COMMENT ON COLUMN zombie_list.beat_age IS 'How long ago the node has beaten last; NULL: it is not there any more.';
COMMENT ON COLUMN zombie_list.deadline IS 'When the attempt should have ended.';
DROP VIEW job_list;
DROP FUNCTION enqueue(text, text, jsonb, text, timestamptz, int, int, interval[], interval, boolean, interval, int, interval, text[], jsonb, text, interval);
ALTER TABLE messages DROP COLUMN job;
DROP INDEX CONCURRENTLY IF EXISTS processes_failed_jobs;
