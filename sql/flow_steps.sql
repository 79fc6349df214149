-- WriteSteps stores changes of the steps of runs. It runs after SaveResult and selects its items
-- like InsertRuns. It searches each attempt once, because a run has several steps. A result
-- contains at most one row per step or item. If begins is true, the step starts, possibly again. A
-- step with a job has no running_time before its end, because no worker has taken the job when the
-- step begins. untaken is true if the job ended without a worker. A compensated step keeps the
-- status with which it ended. A step that succeeds in the round in which its compensation starts is
-- not yet stored as ended.
-- name: WriteSteps :exec
WITH accepted AS MATERIALIZED (
  SELECT attempt.ord FROM (
    SELECT unnest(@checks::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
           unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
           unnest(@fencing_tokens::bigint[]) AS fencing_token) AS attempt
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = attempt.namespace
        AND t.process_id = attempt.process_id
        AND t.task_id = attempt.task_id
        AND t.fencing_token = attempt.fencing_token
        AND is_saved(attempt.fencing_token)
      LIMIT 1) ended)
INSERT INTO flow_steps AS f (namespace, run_id, step_id, index, ord, status, compensation_status,
                             attempt, running_time, finished_time, due_time, process_id,
                             process_namespace, token, worker_id, reason, input, result, failure,
                             wait, item_hash)
SELECT item.namespace, item.run_id, item.step_id, item.index, item.ord, item.status::step_status,
       NULLIF(item.compensation_status, '')::step_status,
       item.begins::int - item.untaken::int,
       coalesce(NULLIF(item.started_time, '0001-01-01Z'),
                CASE
                  WHEN item.begins AND NOT starts_with(item.does, '~job/')
                    THEN statement_timestamp()
                END),
       CASE WHEN item.status NOT IN ('pending', 'running') THEN statement_timestamp() END,
       NULLIF(item.due_time, '0001-01-01Z'), NULLIF(item.does, ''), NULLIF(item.does_in, ''),
       NULLIF(item.token, ''), NULLIF(item.worker_id, ''), NULLIF(item.reason, ''),
       NULLIF(item.input, '')::jsonb, NULLIF(item.result, '')::jsonb,
       NULLIF(item.failure, '')::jsonb, NULLIF(item.wait, '')::jsonb,
       CASE WHEN item.index >= 0 THEN item.item_hash END
  FROM (
    SELECT unnest(@attempt_ords::int[]) AS attempt_ord,
           unnest(@run_namespaces::text[]) AS namespace, unnest(@run_ids::text[]) AS run_id,
           unnest(@step_ids::text[]) AS step_id, unnest(@indexes::int[]) AS index,
           unnest(@ords::int[]) AS ord, unnest(@statuses::text[]) AS status,
           unnest(@compensation_statuses::text[]) AS compensation_status,
           unnest(@started_times::timestamptz[]) AS started_time,
           unnest(@begins::bool[]) AS begins, unnest(@untakens::bool[]) AS untaken,
           unnest(@due_times::timestamptz[]) AS due_time,
           unnest(@does::text[]) AS does, unnest(@does_in::text[]) AS does_in,
           unnest(@tokens::text[]) AS token, unnest(@worker_ids::text[]) AS worker_id,
           unnest(@reasons::text[]) AS reason, unnest(@inputs::text[]) AS input,
           unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure,
           unnest(@waits::text[]) AS wait, unnest(@item_hashes::bigint[]) AS item_hash) AS item
 WHERE (item.attempt_ord IN (SELECT accepted.ord FROM accepted)) IS TRUE
ON CONFLICT (namespace, run_id, step_id, index) DO UPDATE SET
       status = CASE
                  WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running')
                    THEN excluded.status
                  ELSE f.status
                END,
       compensation_status = excluded.compensation_status, attempt = f.attempt + excluded.attempt,
       running_time = CASE
                        WHEN excluded.attempt > 0
                             OR excluded.status = 'pending'
                                AND excluded.compensation_status IS NULL
                          THEN excluded.running_time
                        ELSE coalesce(excluded.running_time, f.running_time)
                      END,
       finished_time = CASE
                         WHEN excluded.compensation_status IS NULL
                              OR f.status IN ('pending', 'running')
                           THEN excluded.finished_time
                         ELSE f.finished_time
                       END,
       due_time = CASE WHEN excluded.attempt > 0 THEN excluded.due_time ELSE f.due_time END,
       process_id = CASE WHEN excluded.attempt > 0 THEN excluded.process_id ELSE f.process_id END,
       process_namespace = CASE
                             WHEN excluded.attempt > 0 THEN excluded.process_namespace
                             ELSE f.process_namespace
                           END,
       token = excluded.token,
       worker_id = CASE
                     WHEN excluded.attempt > 0
                          OR excluded.status = 'pending'
                             AND excluded.compensation_status IS NULL
                       THEN excluded.worker_id
                     ELSE coalesce(excluded.worker_id, f.worker_id)
                   END,
       reason = CASE
                  WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running')
                    THEN excluded.reason
                  ELSE f.reason
                END,
       input = CASE WHEN excluded.attempt > 0 THEN excluded.input ELSE f.input END,
       result = CASE
                  WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running')
                    THEN excluded.result
                  ELSE f.result
                END,
       failure = CASE
                   WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running')
                     THEN excluded.failure
                   ELSE f.failure
                 END,
       wait = CASE WHEN excluded.attempt > 0 THEN excluded.wait ELSE f.wait END,
       progress = CASE WHEN excluded.attempt > 0 THEN NULL ELSE f.progress END,
       item_hash = CASE WHEN excluded.attempt > 0 THEN excluded.item_hash ELSE f.item_hash END;

-- ReportSteps stores what was reported about open waits: the progress, the due time and, if claims
-- is true, who works on them. It runs after SaveResult and selects its items like InsertRuns.
-- name: ReportSteps :exec
UPDATE flow_steps f
   SET progress = coalesce(NULLIF(item.progress, '')::jsonb, f.progress),
       due_time = coalesce(NULLIF(item.due_time, '0001-01-01Z'), f.due_time),
       worker_id = CASE WHEN item.claims THEN NULLIF(item.worker_id, '') ELSE f.worker_id END
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@run_ids::text[]), unnest(@step_ids::text[]), unnest(@indexes::int[]),
                  unnest(@progresses::text[]), unnest(@due_times::timestamptz[]),
                  unnest(@claims::bool[]), unnest(@worker_ids::text[]))
       AS item(namespace, process_id, task_id, fencing_token, run_id, step_id, index, progress,
               due_time, claims, worker_id)
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t
    WHERE t.namespace = item.namespace
      AND t.process_id = item.process_id
      AND t.task_id = item.task_id
      AND t.fencing_token = item.fencing_token
      AND is_saved(item.fencing_token)
    LIMIT 1) ended
 WHERE f.namespace = ANY (ARRAY[item.namespace])
   AND f.run_id = item.run_id
   AND f.step_id = item.step_id
   AND f.index = item.index
   AND (f.token IS NOT NULL)::int = 1;

-- ListSteps returns steps of a run in order, with their jobs. held is true if the job runs, since
-- held_time. tried is true if an attempt of the job has ended. If step_id is empty, ListSteps
-- returns all steps. If only_steps is true, it returns no items. It stops when the values (input,
-- result, failure, progress) of the returned steps exceed max_bytes. If all_steps is true, it also
-- returns the following steps, without input and result, with a short failure and only the percent
-- of the progress.
-- name: ListSteps :many
SELECT step.step_id, step.index, step.ord, step.status,
       coalesce(step.compensation_status::text, '')::text AS compensation_status,
       step.attempt, step.running_time, step.finished_time, step.due_time,
       coalesce(step.process_namespace, step.namespace)::text AS process_namespace,
       coalesce(step.process_id, '')::text AS process_id, coalesce(step.token, '')::text AS token,
       coalesce(lease.worker_id, step.worker_id, step.job_worker_id, '')::text AS worker_id,
       coalesce(step.reason, '')::text AS reason,
       (CASE WHEN step.bytes_before < @max_bytes::bigint THEN step.input END)::jsonb AS input,
       (CASE WHEN step.bytes_before < @max_bytes THEN step.result END)::jsonb AS result,
       (CASE
          WHEN step.bytes_before < @max_bytes OR step.failure IS NULL THEN step.failure
          ELSE jsonb_build_object('reason', left(coalesce(step.failure->>'reason', ''), 256),
                                  'message', left(coalesce(step.failure->>'message', ''), 1000))
        END)::jsonb AS failure,
       (CASE
          WHEN step.bytes_before < @max_bytes OR step.newest_progress IS NULL
            THEN step.newest_progress
          ELSE jsonb_build_object('percent', coalesce(step.newest_progress->'percent', '0'))
        END)::jsonb AS progress,
       (step.bytes_before >= @max_bytes)::bool AS values_omitted, step.bytes::bigint AS bytes,
       coalesce(lease.expires_time, 'epoch')::timestamptz AS lease_expires_time,
       (attempt.running_time IS NOT NULL)::bool AS held,
       coalesce(CASE
                  WHEN starts_with(step.process_id, '~job/') THEN attempt.running_time
                END,
                'epoch')::timestamptz AS held_time,
       (step.job_worker_id IS NOT NULL OR step.job_failures IS NOT NULL)::bool AS tried
  FROM (
    SELECT step_with_job.*,
           sum(step_with_job.bytes)
             OVER (ORDER BY step_with_job.ord, step_with_job.index ROWS UNBOUNDED PRECEDING)
             - step_with_job.bytes AS bytes_before
      FROM (
        SELECT measured.*, job.worker_id AS job_worker_id, job.failures AS job_failures,
               coalesce(CASE WHEN measured.status = 'running' THEN job.progress END,
                        measured.progress) AS newest_progress,
               coalesce(octet_length(measured.input::text), 0)
                 + coalesce(octet_length(measured.result::text), 0)
                 + coalesce(octet_length(measured.failure::text), 0) + coalesce(
                   octet_length(coalesce(CASE
                                           WHEN measured.status = 'running' THEN job.progress
                                         END,
                                         measured.progress)::text),
                   0) AS bytes
          FROM (
            SELECT s.* FROM flow_steps s
             WHERE s.namespace = @namespace
               AND s.run_id = @run_id
               AND (@step_id::text = '' OR s.step_id = @step_id)
               AND (NOT @only_steps::bool OR s.index = -1)
               AND (s.ord, s.index) > (@after_ord::int, @after_index::int)
             ORDER BY s.ord, s.index LIMIT @lim::int) measured
          LEFT JOIN LATERAL (
            SELECT k.worker_id, k.failures, k.progress
              FROM jobs k
             WHERE measured.status <> 'pending'
               AND k.namespace = coalesce(measured.process_namespace, measured.namespace)
               AND k.process_id = measured.process_id
             LIMIT 1) job ON true) step_with_job) step
  LEFT JOIN LATERAL (
    SELECT k.fencing_token, k.running_time
      FROM running_jobs k
     WHERE step.status = 'running'
       AND k.namespace = coalesce(step.process_namespace, step.namespace)
       AND k.process_id = step.process_id
     LIMIT 1) attempt ON true
  LEFT JOIN LATERAL (
    SELECT k.worker_id, k.expires_time
      FROM leases k
     WHERE k.namespace = coalesce(step.process_namespace, step.namespace)
       AND k.process_id = step.process_id
       AND k.fencing_token = attempt.fencing_token
     LIMIT 1) lease ON true
 WHERE step.bytes_before < @max_bytes
    OR @all_steps::bool
 ORDER BY step.ord, step.index;

-- CountItems counts the items of each step of a run by status.
-- name: CountItems :many
SELECT f.step_id, f.status, count(*) AS n
  FROM flow_steps f
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.index >= 0
 GROUP BY f.step_id, f.status ORDER BY 1, 2;

-- ReadSteps returns the values of steps for expressions.
-- name: ReadSteps :many
SELECT f.step_id, f.status, f.result, f.failure
  FROM flow_steps f
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = ANY (@step_ids::text[])
   AND f.index = -1;

-- ReadItems returns the items of a step. The results are included if results is true.
-- name: ReadItems :many
SELECT f.index, f.status, f.item_hash,
       coalesce(CASE WHEN @results::bool THEN f.result END, 'null')::jsonb AS result
  FROM flow_steps f
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = @step_id
   AND f.index >= 0
 ORDER BY f.namespace, f.run_id, f.step_id, f.index;

-- ReadFirstFailed returns the failure of the first failed item of a step.
-- name: ReadFirstFailed :one
SELECT f.index, f.failure
  FROM flow_steps f
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = @step_id
   AND f.index >= 0
   AND f.status = 'failed'
   AND f.failure IS NOT NULL
 ORDER BY f.namespace, f.run_id, f.step_id, f.index LIMIT 1;

-- ReadFailedJobs returns the jobs of failed steps and items of a run that are in ERROR.
-- name: ReadFailedJobs :many
SELECT f.step_id,
       coalesce(f.process_namespace, f.namespace)::text AS process_namespace,
       f.process_id::text AS process_id
  FROM flow_steps f
 CROSS JOIN LATERAL (
   SELECT p.status FROM processes p
    WHERE p.namespace = coalesce(f.process_namespace, f.namespace)
      AND p.process_id = f.process_id
      AND p.removed_time IS NULL
    LIMIT 1) process
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.status = 'failed'
   AND starts_with(f.process_id, '~job/')
   AND process.status = 'ERROR'
 ORDER BY f.ord, f.index;

-- ReadCancelOutcome returns how the cancel of a process ended: the event of a job, or the failure
-- of the CANCEL task of another process.
-- name: ReadCancelOutcome :one
SELECT outcome.type::text AS type, coalesce(outcome.worker_id, '')::text AS worker_id
  FROM (
    (SELECT e.type, e.worker_id
       FROM job_events e
      WHERE e.namespace = @namespace
        AND e.job_id = @process_id
        AND e.step_id IS NULL
        AND e.type IN ('cancel_acknowledged', 'cancel_grace_expired')
      ORDER BY e.event_id DESC LIMIT 1)
    UNION ALL
    (SELECT 'cancel_grace_expired', NULL
       FROM tasks t
      WHERE t.namespace = @namespace
        AND t.process_id = @process_id
        AND t.task_type = 'CANCEL'
        AND t.failure->>'reason' = 'cancel_grace_expired'
      LIMIT 1)) outcome
 LIMIT 1;

-- ReadFirstStart returns when the first step of a run began, at or after since. A step with a job
-- begins when a worker takes the job. A job that waits after a failed attempt has also begun.
-- name: ReadFirstStart :one
SELECT coalesce(min(step.start_time), 'epoch')::timestamptz AS first
  FROM (
    SELECT (CASE
              WHEN f.status <> 'running' OR starts_with(f.process_id, '~job/') IS NOT TRUE
                THEN f.running_time
              WHEN job.worker_id IS NOT NULL OR job.failures IS NOT NULL
                THEN greatest(f.running_time, @since)
              ELSE attempt.running_time
            END)::timestamptz AS start_time
      FROM flow_steps f
      LEFT JOIN LATERAL (
        SELECT r.running_time FROM running_jobs r
         WHERE r.namespace = coalesce(f.process_namespace, f.namespace)
           AND r.process_id = f.process_id
         LIMIT 1) attempt ON true
      LEFT JOIN LATERAL (
        SELECT j.worker_id, j.failures FROM jobs j
         WHERE j.namespace = coalesce(f.process_namespace, f.namespace)
           AND j.process_id = f.process_id
         LIMIT 1) job ON true
     WHERE f.namespace = @namespace
       AND f.run_id = @run_id) step
 WHERE step.start_time >= @since::timestamptz;

-- ReadDueItems returns at most lim open items of a step with the times at which they are due,
-- earliest first. Waits and delays are due at due_time; processes and runs are due timeout_us after
-- they began. If timeout_us is 0, processes and runs have no timeout.
-- name: ReadDueItems :many
SELECT item.index, item.due::timestamptz AS due
  FROM (
    SELECT f.index,
           coalesce(f.due_time,
                    CASE WHEN f.process_id IS NOT NULL THEN f.running_time END
                      + NULLIF(@timeout_us::bigint, 0) * interval '1 microsecond') AS due
      FROM flow_steps f
     WHERE f.namespace = @namespace
       AND f.run_id = @run_id
       AND f.step_id = @step_id
       AND f.index >= 0
       AND f.status = 'running') item
 WHERE item.due IS NOT NULL
 ORDER BY item.due, item.index LIMIT @lim::int;

-- ReadRunJobs returns the jobs of a run: at most lim jobs in the namespace of the run, whose IDs
-- contain the ID of the run, and at most lim jobs of its steps in other namespaces.
-- name: ReadRunJobs :many
(
  SELECT p.namespace, p.process_id
    FROM processes p
   WHERE p.namespace = @namespace::text
     AND p.process_id > '~job/' || @run_id::text || '/'
     AND p.process_id < '~job/' || @run_id::text || '0'
     AND strpos(substr(p.process_id, length(@run_id::text) + 7), '/') = 0
     AND p.removed_time IS NULL
   LIMIT @lim::int)
UNION ALL (
  SELECT f.process_namespace::text, f.process_id::text
    FROM flow_steps f
   WHERE f.namespace = @namespace::text
     AND f.run_id = @run_id::text
     AND f.process_namespace IS NOT NULL
     AND starts_with(f.process_id, '~job/')
     AND EXISTS (
       SELECT 1 FROM processes p
        WHERE p.namespace = f.process_namespace
          AND p.process_id = f.process_id
          AND p.removed_time IS NULL)
   LIMIT @lim::int);

-- ReadSuspended returns at most lim SUSPENDED processes of open steps and their items.
-- name: ReadSuspended :many
SELECT coalesce(f.process_namespace, f.namespace)::text AS namespace,
       f.process_id::text AS process_id
  FROM flow_steps f
 CROSS JOIN LATERAL (
   SELECT p.status FROM processes p
    WHERE p.namespace = coalesce(f.process_namespace, f.namespace)
      AND p.process_id = f.process_id
      AND p.removed_time IS NULL
    LIMIT 1) process
 WHERE f.namespace = @namespace
   AND f.run_id = @run_id
   AND f.step_id = ANY (@step_ids::text[])
   AND f.status = 'running'
   AND process.status = 'SUSPENDED'
 ORDER BY f.ord, f.index LIMIT @lim::int;
