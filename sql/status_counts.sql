-- The table status_counts has the number of processes in each status. Each transaction that
-- creates, removes or changes processes also counts them, in a CTE named updated_status_counts.
-- INIT and RUNNING count as one status, RUNNING, so that a flush of starts counts once and a flush
-- of calls does not count at all. Each lane has its own rows (see TakeLane), so that flushes do not
-- wait for each other.

-- TakeLane assigns the session a number that no other live session of the database has. The number
-- is the default of status_counts.lane in this session. If all numbers are taken, the session gets
-- 0, which several sessions can share. Sessions that share a number wait for each other, but count
-- correctly. In a portable database, the number is random, because there are no advisory locks.
-- name: TakeLane :exec
SELECT set_config('progressor.lane',
                  CASE
                    WHEN is_portable() THEN 1 + floor(random() * 256)::int
                    ELSE coalesce((
                      SELECT n FROM generate_series(1, 1000) n
                       WHERE pg_try_advisory_lock(@class::int, n) LIMIT 1),
                                  0)
                  END::text,
                  false)::int AS lane;

-- CountResults counts the changes of status that SaveResult is about to make. It computes the new
-- status with the same CASE expression as SaveResult. It runs after LockProcesses and directly
-- before SaveResult, with the same items.
-- name: CountResults :exec
INSERT INTO status_counts (namespace, status, n)
SELECT ended.namespace, change.status, sum(change.n)
  FROM (
    SELECT item.namespace,
           (CASE process.status
              WHEN 'INIT' THEN 'RUNNING'
              ELSE process.status::text
            END)::process_status AS old_status,
           (CASE item.outcome
              WHEN 'finish'
                THEN CASE process.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END
              WHEN 'fail' THEN CASE WHEN process.cancelling THEN 'CANCELLED' ELSE 'ERROR' END
              WHEN 'complete' THEN 'COMPLETED'
              WHEN 'cancel' THEN 'CANCELLED'
            END)::process_status AS new_status
      FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                      unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                      unnest(@outcomes::text[]))
           AS item(namespace, process_id, task_id, fencing_token, outcome)
      JOIN running r
        ON r.namespace = ANY (ARRAY[item.namespace])
       AND r.process_id = item.process_id
       AND r.task_id = item.task_id
       AND r.fencing_token = item.fencing_token
     CROSS JOIN LATERAL (
       SELECT p.status, p.cancel_deadline IS NOT NULL AS cancelling
         FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id = item.process_id
        LIMIT 1) process) ended
 CROSS JOIN LATERAL (VALUES (ended.old_status, -1), (ended.new_status, 1)) AS change(status, n)
 GROUP BY ended.namespace, change.status HAVING sum(change.n) <> 0
 ORDER BY ended.namespace, change.status
ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n;

-- CountProcesses returns the number of processes in each status, in a namespace or, if namespace is
-- '', in the database.
-- name: CountProcesses :many
SELECT c.status, sum(c.n)::bigint AS n
  FROM status_counts c WHERE @namespace::text IN (c.namespace, '')
 GROUP BY c.status ORDER BY c.status;

-- CountByOwner returns the number of processes of each namespace in each status, and how many of
-- them are internal: jobs, and processes whose ID begins with ~. job_counts has all jobs except the
-- members of jobs for several workers, and counts suspended jobs as open ones. Members, suspended
-- jobs and the other internal processes are read from the table: at most lim rows of each range of
-- IDs of each namespace. more reports that there may be more of them.
-- name: CountByOwner :many
WITH internal AS MATERIALIZED (
  SELECT item.namespace::text AS namespace, found.attention
    FROM unnest(@namespaces::text[]) AS item(namespace)
   CROSS JOIN LATERAL (
     (
       SELECT p.attention FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id >= '~'
          AND p.process_id < '~job/'
          AND p.removed_time IS NULL
        LIMIT @lim::int)
     UNION ALL
     (
       SELECT p.attention FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id >= '~job/~/'
          AND p.process_id < '~job/~0'
          AND p.removed_time IS NULL
        LIMIT @lim::int)
     UNION ALL
     (
       SELECT p.attention FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id >= '~job0'
          AND p.process_id < chr(127)
          AND p.removed_time IS NULL
        LIMIT @lim::int)) found),
suspended_jobs AS MATERIALIZED (
  SELECT item.namespace::text AS namespace, found.n
    FROM unnest(@namespaces::text[]) AS item(namespace)
   CROSS JOIN LATERAL (
     SELECT count(*) AS n FROM (
       SELECT 1 FROM processes p
        WHERE p.namespace COLLATE "POSIX" = item.namespace
          AND p.attention = 'SUSPENDED'
          AND p.kind = 'job'
          AND NOT starts_with(p.process_id, '~job/~/')
          AND p.removed_time IS NULL
        LIMIT @lim::int) job) found
   WHERE found.n > 0),
counted AS (
  SELECT c.namespace, c.status::text AS status, c.n, 0 AS internal
    FROM status_counts c WHERE c.namespace = ANY (@namespaces::text[])
  UNION ALL
  SELECT c.namespace,
         CASE c.state
           WHEN 'succeeded' THEN 'COMPLETED'
           WHEN 'failed' THEN 'ERROR'
           WHEN 'cancelled' THEN 'CANCELLED'
           ELSE 'RUNNING'
         END,
         0, c.n
    FROM job_counts c WHERE c.namespace = ANY (@namespaces::text[])
  UNION ALL
  SELECT suspended_jobs.namespace, job.status, 0, job.sign * suspended_jobs.n
    FROM suspended_jobs
   CROSS JOIN (VALUES ('RUNNING', -1), ('SUSPENDED', 1)) AS job(status, sign)
  UNION ALL
  SELECT internal.namespace, coalesce(internal.attention::text, 'RUNNING'), 0, count(*)
    FROM internal GROUP BY internal.namespace, internal.attention),
full_namespaces AS (
  SELECT internal.namespace FROM internal
   GROUP BY internal.namespace HAVING count(*) >= @lim::int)
SELECT counted.namespace, counted.status::process_status AS status, sum(counted.n)::bigint AS n,
       sum(counted.internal)::bigint AS internal,
       (counted.namespace IN (SELECT f.namespace FROM full_namespaces f))::bool AS more
  FROM counted GROUP BY counted.namespace, counted.status
 ORDER BY counted.namespace, counted.status;

-- CountNamespaces returns the number of processes of each namespace in each status.
-- name: CountNamespaces :many
SELECT c.namespace, c.status, sum(c.n)::bigint AS n
  FROM status_counts c WHERE c.namespace = ANY (@namespaces::text[])
 GROUP BY c.namespace, c.status ORDER BY c.namespace, c.status;
