-- WriteJobs stores the ends of attempts in their jobs. It runs after SaveResult and ignores an item
-- if this transaction has not written its task row: in tasks if the task has ended, in schedule if
-- it will be retried. So a fenced item writes nothing. The result is stored for ttl_us if kept is
-- true. A job keeps its newest 20 failures (process.MaxJobFailures). The oldest of them contains
-- the number of earlier failures, and how many of those were takeovers.
-- name: WriteJobs :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@attempts::int[]), unnest(@worker_ids::text[]),
                    unnest(@takeovers::int[]), unnest(@failures::text[]), unnest(@results::bytea[]),
                    unnest(@kepts::bool[]), unnest(@ttls_us::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token, attempt, worker_id, takeovers,
                 failure, result, kept, ttl_us)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
     UNION ALL
     SELECT 1 FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id
        AND s.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended)
UPDATE jobs j
   SET updated_time = statement_timestamp(),
       worker_id = coalesce(NULLIF(input.worker_id, ''), j.worker_id),
       takeovers = j.takeovers + input.takeovers,
       failures = CASE
                    WHEN input.failure = '' THEN j.failures
                    ELSE CASE
                           WHEN jsonb_array_length(j.failures) >= 20
                             THEN (
                               SELECT jsonb_agg(
                                 CASE
                                   WHEN failure.n = jsonb_array_length(j.failures) - 18
                                     THEN failure.failure || jsonb_build_object(
                                       'omitted', jsonb_array_length(j.failures) - 19
                                         + coalesce((j.failures->0->>'omitted')::int, 0),
                                       'omittedTakeovers', coalesce(
                                         (j.failures->0->>'omittedTakeovers')::int, 0) + (
                                           SELECT count(*)
                                             FROM jsonb_array_elements(j.failures) WITH ORDINALITY
                                                  AS failure(failure, n)
                                            WHERE failure.n <= jsonb_array_length(j.failures) - 19
                                              AND (failure.failure->>'takeover')::bool))
                                   ELSE failure.failure
                                 END
                                 ORDER BY failure.n)
                                 FROM jsonb_array_elements(j.failures) WITH ORDINALITY
                                      AS failure(failure, n)
                                WHERE failure.n > jsonb_array_length(j.failures) - 19)
                           ELSE coalesce(j.failures, '[]')
                         END || jsonb_build_array(jsonb_build_object(
                           'attempt', input.attempt, 'workerId', input.worker_id,
                           'time', statement_timestamp(), 'takeover', input.takeovers > 0,
                           'failure', input.failure::jsonb))
                  END,
       result = CASE WHEN input.kept THEN input.result END,
       result_expires_time = CASE
                               WHEN input.kept
                                 THEN statement_timestamp()
                                        + input.ttl_us * interval '1 microsecond'
                               ELSE j.result_expires_time
                             END
  FROM input
 WHERE j.namespace = ANY (ARRAY[input.namespace])
   AND j.process_id = input.process_id;

-- GetJobs returns jobs with their states. The INIT task of a job is the newest one in schedule,
-- running and tasks. For the members of a job of several workers, results beyond 8 MiB in total are
-- omitted. Failures beyond 2 MiB in total, and large failures of waiting members, are reduced to
-- their reason and message.
-- name: GetJobs :many
SELECT item.ord::int AS ord, p.namespace, p.process_id, p.status, p.metadata, p.created_time,
       p.status_changed_time, p.cancel_requested_time,
       coalesce(p.cancel_reason, '')::text AS cancel_reason,
       (p.cancel_deadline IS NOT NULL)::bool AS cancelling, job.name, job.timeout, job.updated_time,
       coalesce(lease.worker_id, task.worker_id, job.worker_id, '')::text AS worker_id,
       job.tags, job.options, job.failures, job.progress, job.unreached,
       (CASE
          WHEN job.result_expires_time > statement_timestamp() THEN job.result
        END)::bytea AS result,
       coalesce(lease.expires_time, 'epoch')::timestamptz AS lease_expires_time,
       coalesce(task.task_id, 0)::bigint AS task_id,
       (CASE
          WHEN task.taker = '~' AND job_group.running_time IS NULL THEN 0
          ELSE coalesce(task.attempt, 0)
        END)::int AS attempt,
       coalesce(task.priority, 0)::int AS priority,
       coalesce(task.stored_in, '')::text AS stored_in,
       coalesce(task.waits_for::text, '')::text AS waits_for, coalesce(task.line, '')::text AS line,
       coalesce(task.round, 0)::bigint AS round, job.fairness_key,
       coalesce(task.taker = '~', false)::bool AS grouped,
       coalesce(task.taker = '~' AND task.attempt > 0, false)::bool AS begun,
       members.runs::jsonb AS runs,
       coalesce(task.scheduled_time, 'epoch')::timestamptz AS scheduled_time,
       job_group.running_time AS group_running_time, task.running_time, task.finished_time,
       task.args
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(ord, namespace, process_id)
  JOIN processes p
    ON p.namespace = ANY (ARRAY[item.namespace])
   AND p.process_id = item.process_id
   AND p.removed_time IS NULL
   AND p.kind = 'job'
 CROSS JOIN LATERAL (
   SELECT j.* FROM jobs j
    WHERE j.namespace = item.namespace
      AND j.process_id = item.process_id
    LIMIT 1) job
  LEFT JOIN LATERAL (
    SELECT any_task.* FROM (
      (
        SELECT s.task_id, s.attempt, s.priority, 'schedule' AS stored_in, s.waits_for, s.line,
               s.round, s.taker, s.scheduled_time, NULL::timestamptz AS running_time,
               NULL::timestamptz AS finished_time, s.args, NULL::bigint AS fencing_token,
               NULL AS worker_id
          FROM schedule s
         WHERE s.namespace = item.namespace
           AND s.process_id = item.process_id
           AND s.task_type = 'INIT'
         LIMIT 1)
      UNION ALL (
        SELECT r.task_id, r.attempt, r.priority, 'running', NULL, NULL, NULL, NULL,
               r.scheduled_time, r.running_time, NULL, r.args, r.fencing_token, NULL
          FROM running r
         WHERE r.namespace = item.namespace
           AND r.process_id = item.process_id
           AND r.task_type = 'INIT'
         LIMIT 1)
      UNION ALL (
        SELECT k.task_id, k.attempt, k.priority, 'tasks', NULL, NULL, NULL, NULL,
               k.scheduled_time, k.running_time, k.finished_time, k.args, NULL, k.worker_id
          FROM tasks k
         WHERE k.namespace = item.namespace
           AND k.process_id = item.process_id
           AND k.task_type = 'INIT'
         ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1)) any_task
     ORDER BY any_task.task_id DESC LIMIT 1) task ON true
  LEFT JOIN LATERAL (
    SELECT g.running_time FROM job_groups g
     WHERE task.taker = '~'
       AND g.namespace = item.namespace
       AND g.process_id = item.process_id
     LIMIT 1) job_group ON true
  LEFT JOIN LATERAL (
    SELECT l.worker_id, l.expires_time
      FROM leases l
     WHERE task.stored_in = 'running'
       AND l.namespace = item.namespace
       AND l.process_id = item.process_id
       AND l.fencing_token = task.fencing_token
     LIMIT 1) lease ON true
  LEFT JOIN LATERAL (
    SELECT jsonb_agg(
      jsonb_build_object('workerId', coalesce(member.worker_id, ''),
                         'attempts', coalesce(NULLIF(member.attempts, 0), waiting.attempt,
                                              attempt.attempt, 0),
                         'runningTime', member.running_time, 'finishedTime', member.finished_time,
                         'failure', CASE
                                      WHEN member.failure_bytes <= 2 * 1024 * 1024
                                       AND member.failure IS NOT NULL
                                        THEN member.failure
                                      WHEN octet_length(waiting.failure::text) <= 2048
                                        THEN waiting.failure
                                      WHEN member.failure IS NOT NULL
                                           OR waiting.failure IS NOT NULL
                                        THEN jsonb_build_object(
                                          'reason',
                                          left(coalesce(coalesce(member.failure, waiting.failure)
                                                          ->>'reason', ''), 256),
                                          'message',
                                          left(coalesce(coalesce(member.failure, waiting.failure)
                                                          ->>'message', ''), 1000))
                                    END,
                         'result', CASE
                                     WHEN member.result_bytes <= 8 * 1024 * 1024
                                       THEN convert_from(member.result, 'UTF8')
                                   END,
                         'state', coalesce(member.state,
                                           CASE
                                             WHEN attempt.attempt IS NOT NULL THEN 'running'
                                             WHEN waiting.attempt > 0
                                                  AND member.worker_id IS NOT NULL
                                               THEN 'retryable'
                                             ELSE 'available'
                                           END))
      ORDER BY octet_length(member.process_id), member.process_id) AS runs
      FROM (
        SELECT y.*,
               sum(octet_length(y.result))
                 OVER (ORDER BY y.finished_time, y.process_id) AS result_bytes,
               sum(octet_length(y.failure::text))
                 OVER (ORDER BY y.finished_time, y.process_id) AS failure_bytes
          FROM job_places y
         WHERE job.options ? 'workers'
           AND y.namespace = item.namespace
           AND y.job_id = item.process_id) member
      LEFT JOIN LATERAL (
        SELECT s.attempt, s.failure
          FROM schedule s
         WHERE member.state IS NULL
           AND s.namespace = member.namespace
           AND s.process_id = member.process_id
         LIMIT 1) waiting ON true
      LEFT JOIN LATERAL (
        SELECT r.attempt FROM running r
         WHERE member.state IS NULL
           AND r.namespace = member.namespace
           AND r.process_id = member.process_id
         LIMIT 1) attempt ON true) members ON true;

-- ReadUnreached returns how many times the processor of a job could not be reached, and since when.
-- name: ReadUnreached :one
SELECT j.unreached, statement_timestamp()::timestamptz AS now
  FROM jobs j
 WHERE j.namespace = @namespace
   AND j.process_id = @process_id;

-- WriteUnreached stores how many times the processors of jobs could not be reached, and since when.
-- It runs after SaveResult and selects its items like WriteJobs.
-- name: WriteUnreached :exec
UPDATE jobs j
   SET unreached = input.unreached::jsonb, updated_time = statement_timestamp()
  FROM (
    SELECT item.*
      FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                      unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                      unnest(@unreacheds::text[]))
           AS item(namespace, process_id, task_id, fencing_token, unreached)
     CROSS JOIN LATERAL (
       SELECT 1 FROM schedule s
        WHERE s.namespace = item.namespace
          AND s.process_id = item.process_id
          AND s.task_id = item.task_id
          AND s.fencing_token = item.fencing_token
          AND is_saved(item.fencing_token)
        LIMIT 1) released) input
 WHERE j.namespace = ANY (ARRAY[input.namespace])
   AND j.process_id = input.process_id;

-- FetchResult returns a kept result and deletes it, so that a second call returns nothing.
-- name: FetchResult :one
UPDATE jobs j
   SET result = NULL, updated_time = statement_timestamp()
  FROM (
    SELECT k.namespace, k.process_id, k.result
      FROM jobs k
     WHERE k.namespace = @namespace
       AND k.process_id = @process_id
       AND k.result IS NOT NULL
       AND k.result_expires_time > statement_timestamp()
       FOR UPDATE) unread
 WHERE j.namespace = unread.namespace
   AND j.process_id = unread.process_id
RETURNING unread.result;

-- ForgetResults deletes results that were not fetched in time.
-- name: ForgetResults :execrows
UPDATE jobs j
   SET result = NULL
  FROM (
    SELECT k.namespace, k.process_id
      FROM jobs k
     WHERE k.result IS NOT NULL
       AND k.result_expires_time < statement_timestamp()
     ORDER BY k.result_expires_time LIMIT @lim::int FOR UPDATE SKIP LOCKED) expired
 WHERE j.namespace = expired.namespace
   AND j.process_id = expired.process_id;

-- ForgetJobKeys deletes unique keys that are no longer held and whose job was removed.
-- name: ForgetJobKeys :execrows
DELETE FROM job_keys k
 WHERE (k.namespace, k.unique_key) IN (
   SELECT x.namespace, x.unique_key
     FROM job_keys x
    WHERE NOT EXISTS (
      SELECT 1 FROM processes p
       WHERE p.namespace = x.namespace
         AND p.process_id = x.process_id
         AND p.removed_time IS NULL)
      AND (x.held_until > statement_timestamp()) IS NOT TRUE
    ORDER BY x.namespace, x.unique_key LIMIT @lim::int FOR UPDATE SKIP LOCKED);
