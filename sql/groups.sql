-- TakeGroups takes groups that need a decision: new ones, those with an ended member, and those
-- with a cancel request. They wait for a slot, but no worker can take them: only the engine does. A
-- group is a job that several workers run. Each worker runs a member of the group: a process that
-- has a place, which is its row in job_places.
-- name: TakeGroups :many
SELECT s.namespace, s.process_id, (p.cancel_deadline IS NOT NULL)::bool AS cancelling,
       coalesce(p.cancel_reason, '')::text AS cancel_reason, job.options
  FROM schedule s
  JOIN processes p
    ON p.namespace = ANY (ARRAY[s.namespace])
   AND p.process_id = s.process_id
 CROSS JOIN LATERAL (
   SELECT j.options FROM jobs j
    WHERE j.namespace = s.namespace
      AND j.process_id = s.process_id
    LIMIT 1) job
 WHERE s.taker = '~'
   AND (s.waits_for = 'place')::int = 1
   AND p.status = 'INIT'
 LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED;

-- WakeGroups makes groups that wait for their members available again, at most lim per namespace,
-- so that the engine checks them. Locked rows are left to the next call.
-- name: WakeGroups :execrows
UPDATE schedule s
   SET waits_for = 'place'
  FROM (
    SELECT waiting.namespace, waiting.process_id, waiting.task_id
      FROM unnest(@namespaces::text[]) AS item(namespace)
     CROSS JOIN LATERAL (
       SELECT s.namespace, s.process_id, s.task_id
         FROM schedule s
        WHERE s.waits_for = 'members'
          AND s.namespace COLLATE "POSIX" = item.namespace
        LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) waiting) woken
 WHERE s.namespace = ANY (ARRAY[woken.namespace])
   AND s.process_id = woken.process_id
   AND s.task_id = woken.task_id;

-- PutGroups creates or changes the rows of groups. This locks them, in order, so that no place is
-- taken in the meantime. It runs after TakeGroups.
-- name: PutGroups :exec
INSERT INTO job_groups (namespace, process_id, count, max_failures, worker_ids)
SELECT item.namespace, item.process_id, item.count, item.max_failures,
       CASE
         WHEN item.worker_ids <> ''
           THEN ARRAY(SELECT jsonb_array_elements_text(item.worker_ids::jsonb))
       END
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@counts::int[]),
                  unnest(@max_failures::int[]), unnest(@worker_ids::text[]))
       AS item(namespace, process_id, count, max_failures, worker_ids)
 ORDER BY item.namespace, item.process_id
ON CONFLICT (namespace, process_id) DO UPDATE SET
       count = excluded.count, max_failures = excluded.max_failures,
       worker_ids = excluded.worker_ids;

-- ReadPlaces returns the places of groups, in the order of their creation.
-- name: ReadPlaces :many
SELECT place.namespace, place.process_id, place.job_id,
       coalesce(place.worker_id, '')::text AS worker_id, coalesce(place.state, '')::text AS state,
       place.asked, place.failure
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_ids::text[])) AS item(namespace, job_id)
 CROSS JOIN LATERAL (
   SELECT l.* FROM job_places l
    WHERE l.namespace = item.namespace
      AND l.job_id = item.job_id
   OFFSET 0) place
 ORDER BY place.namespace, place.job_id, octet_length(place.process_id), place.process_id;

-- DropPlaces deletes the places of members whose outcome does not count.
-- name: DropPlaces :exec
DELETE FROM job_places l
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
 WHERE l.namespace = ANY (ARRAY[item.namespace])
   AND l.process_id = item.process_id;

-- SetTakers stores which workers get no further place of a group.
-- name: SetTakers :exec
UPDATE job_groups g
   SET takers = ARRAY(SELECT jsonb_array_elements_text(item.takers::jsonb))
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@takers::text[]))
       AS item(namespace, process_id, takers)
 WHERE g.namespace = ANY (ARRAY[item.namespace])
   AND g.process_id = item.process_id;

-- OpenPlaces creates places of a group and starts a member in each, with a message that has the
-- args and options of the job. If worker_id is empty, the place is for any worker that the group
-- allows. The numbers of members are not reused. The results of the members of a step belong to the
-- run of the step.
-- name: OpenPlaces :many
WITH input AS MATERIALIZED (
  SELECT item.namespace, item.job_id, item.worker_id,
         '~job/~/'
           || CASE WHEN octet_length(item.job_id) <= 220 THEN item.job_id ELSE md5(item.job_id) END
           || '/' || nextval('task_ids') AS process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_ids::text[]),
                    unnest(@worker_ids::text[]))
         AS item(namespace, job_id, worker_id)),
inserted_job_places AS (
  INSERT INTO job_places (namespace, process_id, job_id, worker_id, pinned)
  SELECT input.namespace, input.process_id, input.job_id, NULLIF(input.worker_id, ''),
         input.worker_id <> ''
    FROM input)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                      sender_task_id, created_time, args, metadata, notify_parent_args, job)
SELECT input.namespace, input.process_id, 'start', input.namespace, input.job_id, waiting.task_id,
       statement_timestamp(), waiting.args, process.metadata, '',
       jsonb_strip_nulls(jsonb_build_object('name', job.name, 'priority', waiting.priority,
                                            'timeoutUs', (extract(
                                              epoch FROM job.timeout) * 1000000)::bigint,
                                            'tags', job.tags,
                                            'taker', CASE
                                                       WHEN input.worker_id <> ''
                                                         THEN '=' || input.worker_id
                                                       ELSE ''
                                                     END)) || jsonb_build_object(
                                                       'options',
                                                       job.options - 'workers' - 'unique' ||
                                                         CASE
                                                           WHEN starts_with(input.job_id, '~job/')
                                                             THEN '{"keepResult": true}'
                                                           ELSE '{}'
                                                         END::jsonb)
  FROM input
 CROSS JOIN LATERAL (
   SELECT s.task_id, s.args, s.priority
     FROM schedule s
    WHERE s.namespace = input.namespace
      AND s.process_id = input.job_id
      AND s.task_type = 'INIT'
    LIMIT 1) waiting
 CROSS JOIN LATERAL (
   SELECT p.metadata FROM processes p
    WHERE p.namespace = input.namespace
      AND p.process_id = input.job_id
    LIMIT 1) process
 CROSS JOIN LATERAL (
   SELECT j.* FROM jobs j
    WHERE j.namespace = input.namespace
      AND j.process_id = input.job_id
    LIMIT 1) job
RETURNING namespace, process_id;

-- RestGroups makes groups wait for the end of a member, and stores whether they run. A group runs
-- if a worker has a member that has not ended, or if a member has succeeded. PollGroups also starts
-- groups. RestGroups runs after PutGroups, which has locked them. mode defines which events the
-- namespace keeps.
-- name: RestGroups :exec
WITH input AS MATERIALIZED (
  SELECT item.*, waiting.task_id, process.cancelling,
         job_group.running_time IS NOT NULL AS was_running, coalesce(member.runs, false) AS runs
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@modes::int[]))
         AS item(namespace, process_id, mode)
   CROSS JOIN LATERAL (
     SELECT s.task_id FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.taker = '~'
      LIMIT 1) waiting
   CROSS JOIN LATERAL (
     SELECT p.cancel_deadline IS NOT NULL AS cancelling
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process
   CROSS JOIN LATERAL (
     SELECT g.running_time FROM job_groups g
      WHERE g.namespace = item.namespace
        AND g.process_id = item.process_id
      LIMIT 1) job_group
    LEFT JOIN LATERAL (
      SELECT true AS runs FROM job_places l
       WHERE l.namespace = item.namespace
         AND l.job_id = item.process_id
         AND (l.state = 'succeeded' OR l.state IS NULL AND member_runs(l.namespace, l.process_id))
       LIMIT 1) member ON true),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
  SELECT input.namespace, input.process_id,
         CASE WHEN input.runs THEN 'started' ELSE 'waiting' END,
         CASE WHEN input.runs THEN 'available' ELSE 'running' END,
         CASE WHEN input.runs THEN 'running' ELSE 'available' END,
         1, CASE WHEN NOT input.runs THEN 'no worker runs it' END
    FROM input
   WHERE input.runs <> input.was_running
     AND NOT input.cancelling
     AND input.mode = 2),
updated_job_groups AS (
  UPDATE job_groups g
     SET running_time = CASE WHEN input.runs THEN statement_timestamp() END
    FROM input
   WHERE input.runs <> input.was_running
     AND g.namespace = ANY (ARRAY[input.namespace])
     AND g.process_id = input.process_id)
UPDATE schedule s
   SET waits_for = 'members', attempt = 1,
       fencing_token = coalesce(s.fencing_token, nextval('fencing_tokens'))
  FROM input
 WHERE s.namespace = ANY (ARRAY[input.namespace])
   AND s.process_id = input.process_id
   AND s.task_id = input.task_id;

-- EndGroups ends groups. outcome is succeeded, failed or cancelled. If kept is true, the job keeps
-- the results of its members for ttl_us, as an object with a field for each worker. Results beyond
-- 8 MiB (process.MaxGroupResultBytes) are omitted. The results of a step are also the response of
-- its task, which its run receives. The job keeps the newest 19 failures of workers. If failure is
-- not the failure of a worker, EndGroups adds failure to these. EndGroups runs after TakeGroups.
-- name: EndGroups :many
WITH input AS MATERIALIZED (
  SELECT item.*, waiting.task_id, waiting.priority, waiting.scheduled_time, waiting.idempotency_key,
         waiting.args, waiting.job_name, waiting.attempt, waiting.fencing_token,
         process.cancel_deadline, process.cancel_reason, job_group.running_time IS NOT NULL AS runs,
         results.running_time, results.failures, results.results, results.left_out,
         CASE item.outcome
           WHEN 'succeeded' THEN 'COMPLETED'
           WHEN 'failed' THEN 'ERROR'
           ELSE 'CANCELLED'
         END::process_status AS new_status
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@outcomes::text[]), unnest(@failures::text[]), unnest(@details::text[]),
                    unnest(@kepts::bool[]), unnest(@ttls_us::bigint[]), unnest(@modes::int[]))
         AS item(namespace, process_id, outcome, failure, detail, kept, ttl_us, mode)
   CROSS JOIN LATERAL (
     SELECT s.* FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_type = 'INIT'
      LIMIT 1) waiting
   CROSS JOIN LATERAL (
     SELECT p.cancel_deadline, p.cancel_reason
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process
   CROSS JOIN LATERAL (
     SELECT g.running_time FROM job_groups g
      WHERE g.namespace = item.namespace
        AND g.process_id = item.process_id
      LIMIT 1) job_group
   CROSS JOIN LATERAL (
     SELECT min(place.running_time) AS running_time,
            json_object_agg(place.worker_id, convert_from(place.result, 'UTF8')::json
                            ORDER BY place.finished_time) FILTER (WHERE place.result_bytes
                                                                    <= 8 * 1024 * 1024
                                                                  AND place.result
                                                                        IS NOT NULL) AS results,
            count(place.result) FILTER (WHERE place.result_bytes > 8 * 1024 * 1024) AS left_out,
            jsonb_agg(
              jsonb_build_object('attempt', place.attempts, 'workerId', place.worker_id,
                                 'time', place.finished_time, 'takeover', false,
                                 'failure', place.failure) || CASE
                WHEN place.newer = 18 AND place.in_state > 19
                  THEN jsonb_build_object('omitted', place.in_state - 19, 'omittedTakeovers', 0)
                ELSE '{}'
              END
              ORDER BY place.finished_time) FILTER (WHERE place.state = 'failed'
                                                      AND place.newer < 19) AS failures
       FROM (
         SELECT l.*,
                sum(octet_length(l.result))
                  OVER (ORDER BY l.finished_time, l.process_id) AS result_bytes,
                row_number()
                  OVER (PARTITION BY l.state
                            ORDER BY l.finished_time DESC, l.process_id DESC) - 1 AS newer,
                count(*) OVER (PARTITION BY l.state) AS in_state
           FROM job_places l
          WHERE l.namespace = item.namespace
            AND l.job_id = item.process_id) place) results),
updated_processes AS (
  UPDATE processes p
     SET status = input.new_status, previous_status = p.status,
         status_changed_time = statement_timestamp(), attention = input.new_status,
         attention_time = statement_timestamp(), cancel_deadline = NULL,
         detail = NULLIF(input.detail, ''),
         corrupted_by = CASE input.outcome WHEN 'failed' THEN input.task_id END
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
  RETURNING p.namespace, input.new_status),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, change.status, sum(change.n)
    FROM updated_processes
   CROSS JOIN LATERAL (
     VALUES ('RUNNING'::process_status, -1), (updated_processes.new_status, 1)) AS change(status, n)
   GROUP BY updated_processes.namespace, change.status HAVING sum(change.n) <> 0
   ORDER BY updated_processes.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT input.namespace, input.job_name, change.state, sum(change.n)
    FROM input
   CROSS JOIN LATERAL (
     VALUES ('available', -1), (input.outcome, 1)) AS change(state, n)
   GROUP BY input.namespace, input.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY input.namespace, input.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
  SELECT input.namespace, input.process_id, input.outcome,
         CASE
           WHEN input.attempt > 0 AND input.cancel_deadline IS NOT NULL THEN 'cancel_requested'
           WHEN input.runs THEN 'running'
           ELSE 'available'
         END,
         input.outcome, 1,
         NULLIF(CASE
                  WHEN input.outcome = 'cancelled' THEN coalesce(input.cancel_reason, '')
                  WHEN input.outcome = 'succeeded' AND input.kept AND input.left_out > 0
                    THEN 'the results of ' || input.left_out
                           || ' workers are omitted: the results of a job have at most 8 MiB'
                  ELSE input.detail
                END,
                '')
    FROM input WHERE input.mode > 0),
deleted_schedule AS (
  DELETE FROM schedule s USING input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id),
updated_job_groups AS (
  UPDATE job_groups g
     SET running_time = NULL
    FROM input
   WHERE input.runs
     AND g.namespace = ANY (ARRAY[input.namespace])
     AND g.process_id = input.process_id),
updated_jobs AS (
  UPDATE jobs j
     SET updated_time = statement_timestamp(),
         failures = CASE
                      WHEN input.failure = ''
                           OR input.failures @> jsonb_build_array(
                             jsonb_build_object('failure', input.failure::jsonb))
                        THEN input.failures
                      ELSE coalesce(input.failures, '[]') || jsonb_build_array(
                        jsonb_build_object('attempt', 1, 'workerId', '',
                                           'time', statement_timestamp(), 'takeover', false,
                                           'failure', input.failure::jsonb))
                    END,
         result = CASE
                    WHEN input.kept THEN convert_to(coalesce(input.results, '{}')::text, 'UTF8')
                  END,
         result_expires_time = CASE
                                 WHEN input.kept
                                   THEN statement_timestamp()
                                          + input.ttl_us * interval '1 microsecond'
                                 ELSE j.result_expires_time
                               END
    FROM input
   WHERE j.namespace = ANY (ARRAY[input.namespace])
     AND j.process_id = input.process_id),
updated_job_places AS (
  UPDATE job_places l
     SET result = NULL
    FROM input
   WHERE input.outcome = 'succeeded'
     AND l.namespace = ANY (ARRAY[input.namespace])
     AND l.job_id = input.process_id
     AND l.result IS NOT NULL),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, running_time, finished_time, idempotency_key,
                     args, failure, response)
  SELECT namespace, process_id, task_id, 'INIT',
         CASE outcome
           WHEN 'succeeded' THEN 'FINISHED'
           WHEN 'failed' THEN 'ERROR'
           ELSE 'CANCELLED'
         END::task_status,
         1, priority, coalesce(fencing_token, nextval('fencing_tokens')), scheduled_time,
         coalesce(running_time, statement_timestamp()), statement_timestamp(), idempotency_key,
         args, NULLIF(failure, '')::jsonb,
         CASE
           WHEN outcome = 'succeeded' AND starts_with(process_id, '~job/')
             THEN convert_to(coalesce(results, '{}')::text, 'UTF8')
         END
    FROM input)
SELECT input.namespace::text AS namespace, input.process_id::text AS process_id, input.task_id
  FROM input;

-- FindMemberWorkers returns which of the given workers (ord) could take a place of a group. The
-- workers wait for tasks.
-- name: FindMemberWorkers :many
SELECT target.ord::int AS ord
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@job_names::text[]),
                  unnest(@worker_ids::text[]), unnest(@pauses::bool[]))
       AS target(ord, namespace, job_name, worker_id, pauses)
 WHERE EXISTS (
   SELECT 1 FROM schedule s
    CROSS JOIN LATERAL (
      SELECT l.job_id FROM job_places l
       WHERE l.namespace = s.namespace
         AND l.process_id = s.process_id
       LIMIT 1) place
    CROSS JOIN LATERAL (
      SELECT g.* FROM job_groups g
       WHERE g.namespace = s.namespace
         AND g.process_id = place.job_id
       LIMIT 1) job_group
    CROSS JOIN LATERAL (
      SELECT 1 FROM processes o
       WHERE o.namespace = s.namespace
         AND o.process_id = place.job_id
         AND o.status = 'INIT'
         AND o.cancel_deadline IS NULL
       LIMIT 1) process
    WHERE s.taker = ANY (ARRAY['=' || target.worker_id, ''])
      AND s.namespace COLLATE "POSIX" = target.namespace
      AND (s.waits_for = 'place')::int = 1
      AND (target.job_name = '' OR s.job_name = target.job_name)
      AND (NOT target.pauses
           OR s.job_name IS NULL
           OR (s.namespace, s.job_name) NOT IN (
             SELECT x.namespace, x.name FROM job_pauses x))
      AND (s.taker <> ''
           OR NOT target.worker_id = ANY (job_group.takers)
              AND (job_group.worker_ids IS NULL OR target.worker_id = ANY (job_group.worker_ids))));
