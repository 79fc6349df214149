-- ExpireProcesses marks processes as removed when their retention has passed, oldest end first, at
-- most lim per namespace and status. PurgeHistory deletes their data. ExpireProcesses needs no
-- lane, because no task runs or waits in an ended process, and the status of such a process never
-- changes. Locked rows are left to the next call.
--
-- A FAILED job has ended (a retry locks its row). Any other process in ERROR has not ended. The
-- jobs of a run are removed with the run. A job whose unique key has a TTL keeps the key. Each
-- namespace has one item for each status. failed_us, if longer, is the retention of runs that
-- failed or expired. The processes of such runs are COMPLETED.
-- name: ExpireProcesses :many
WITH expired AS MATERIALIZED (
  SELECT process.namespace, process.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@statuses::text[]),
                    unnest(@retentions_us::bigint[]), unnest(@faileds_us::bigint[]))
         AS item(namespace, status, retention_us, failed_us)
   CROSS JOIN LATERAL (
     SELECT p.namespace, p.process_id
       FROM processes p
      WHERE item.status <> 'ERROR'
        AND p.namespace COLLATE "POSIX" = item.namespace
        AND p.attention = item.status::process_status
        AND p.removed_time IS NULL
        AND p.attention_time < statement_timestamp() - item.retention_us * interval '1 microsecond'
        AND NOT (p.attention_time
                   > statement_timestamp() - item.failed_us * interval '1 microsecond'
                 AND starts_with(p.process_id, '~flow/')
                 AND EXISTS (
                   SELECT 1 FROM flow_runs r
                    WHERE r.namespace = p.namespace
                      AND r.run_id = substr(p.process_id, 7)
                      AND r.status IN ('failed', 'expired')))
        AND NOT (starts_with(p.process_id, '~job/')
                 AND (EXISTS (
                   SELECT 1 FROM flow_runs r
                    WHERE r.namespace = p.namespace
                      AND r.run_id = substring(p.process_id FROM '^~job/(.*)/[^/]*$'))
                      OR EXISTS (
                        SELECT 1 FROM flow_steps f
                         WHERE f.process_namespace = p.namespace
                           AND f.process_id = p.process_id)))
      ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) process
  UNION ALL
  SELECT process.namespace, process.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@statuses::text[]),
                    unnest(@retentions_us::bigint[]))
         AS item(namespace, status, retention_us)
   CROSS JOIN LATERAL (
     SELECT p.namespace, p.process_id
       FROM processes p
      WHERE item.status = 'ERROR'
        AND p.namespace COLLATE "POSIX" = item.namespace
        AND p.attention = 'ERROR'
        AND p.kind = 'job'
        AND p.removed_time IS NULL
        AND p.attention_time < statement_timestamp() - item.retention_us * interval '1 microsecond'
        AND NOT (starts_with(p.process_id, '~job/')
                 AND (EXISTS (
                   SELECT 1 FROM flow_runs r
                    WHERE r.namespace = p.namespace
                      AND r.run_id = substring(p.process_id FROM '^~job/(.*)/[^/]*$'))
                      OR EXISTS (
                        SELECT 1 FROM flow_steps f
                         WHERE f.process_namespace = p.namespace
                           AND f.process_id = p.process_id)))
      ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) process),
-- The jobs of a removed run, lim at a time. The run is removed after them.
run_jobs AS MATERIALIZED (
  SELECT run_job.namespace, run_job.process_id, expired.namespace AS run_namespace,
         expired.process_id AS run_process_id
    FROM expired
   CROSS JOIN LATERAL (
     (
       SELECT p.namespace, p.process_id
         FROM processes p
        WHERE starts_with(expired.process_id, '~flow/')
          AND p.namespace = expired.namespace
          AND p.process_id > '~job/' || substr(expired.process_id, 7) || '/'
          AND p.process_id < '~job/' || substr(expired.process_id, 7) || '0'
          AND strpos(substr(p.process_id, length(expired.process_id) + 1), '/') = 0
          AND p.removed_time IS NULL
          AND p.attention IS NOT NULL
        LIMIT @lim::int)
     UNION ALL (
       SELECT f.process_namespace, f.process_id
         FROM flow_steps f
        WHERE starts_with(expired.process_id, '~flow/')
          AND f.namespace = expired.namespace
          AND f.run_id = substr(expired.process_id, 7)
          AND f.process_namespace IS NOT NULL
          AND starts_with(f.process_id, '~job/')
          AND EXISTS (
            SELECT 1 FROM processes p
             WHERE p.namespace = f.process_namespace
               AND p.process_id = f.process_id
               AND p.removed_time IS NULL
               AND p.attention IS NOT NULL)
        LIMIT @lim::int)) run_job),
expired_with_jobs AS MATERIALIZED (
  SELECT run_jobs.namespace, run_jobs.process_id
    FROM run_jobs
  UNION ALL
  SELECT expired.namespace, expired.process_id
    FROM expired
   WHERE (
     SELECT count(*) FROM run_jobs
      WHERE run_jobs.run_namespace = expired.namespace
        AND run_jobs.run_process_id = expired.process_id) < @lim::int),
locked AS MATERIALIZED (
  SELECT process.namespace, process.process_id
    FROM expired_with_jobs
   CROSS JOIN LATERAL (
     SELECT o.namespace, o.process_id
       FROM processes o
      WHERE o.namespace = expired_with_jobs.namespace
        AND o.process_id = expired_with_jobs.process_id
        AND o.removed_time IS NULL
        AND o.attention IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED) process),
updated_processes AS (
  UPDATE processes p
     SET removed_time = statement_timestamp()
    FROM locked AS x
   WHERE p.namespace = ANY (ARRAY[x.namespace])
     AND p.process_id = x.process_id
  RETURNING p.namespace, p.process_id, p.attention AS status, p.kind, p.status_changed_time),
-- The unique keys that jobs keep after their end. They are locked in order, as in EnqueueJobs.
updated_job_keys AS (
  UPDATE job_keys k
     SET held_until = kept_key.status_changed_time + kept_key.ttl
    FROM (
      SELECT k.namespace, k.unique_key, k.ttl, updated_processes.status_changed_time
        FROM updated_processes
       CROSS JOIN LATERAL (
         SELECT j.unique_key FROM jobs j
          WHERE updated_processes.kind = 'job'
            AND NOT starts_with(updated_processes.process_id, '~job/~/')
            AND j.namespace = updated_processes.namespace
            AND j.process_id = updated_processes.process_id
            AND j.unique_key IS NOT NULL
          LIMIT 1) job
        JOIN job_keys k
          ON k.namespace = updated_processes.namespace
         AND k.unique_key = job.unique_key
         AND k.process_id = updated_processes.process_id
       WHERE updated_processes.status_changed_time + k.ttl > statement_timestamp()
       ORDER BY k.namespace, k.unique_key FOR NO KEY UPDATE OF k) kept_key
   WHERE k.namespace = kept_key.namespace
     AND k.unique_key = kept_key.unique_key),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT updated_processes.namespace, updated_processes.status, -count(*)
    FROM updated_processes GROUP BY updated_processes.namespace, updated_processes.status
   ORDER BY updated_processes.namespace, updated_processes.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT ended_job.namespace, ended_job.name, ended_job.state, -count(*)
    FROM (
      SELECT updated_processes.namespace, job.name,
             CASE updated_processes.status
               WHEN 'COMPLETED' THEN 'succeeded'
               WHEN 'ERROR' THEN 'failed'
               WHEN 'CANCELLED' THEN 'cancelled'
             END AS state
        FROM updated_processes
       CROSS JOIN LATERAL (
         SELECT j.name FROM jobs j
          WHERE updated_processes.kind = 'job'
            AND j.namespace = updated_processes.namespace
            AND j.process_id = updated_processes.process_id
          LIMIT 1) job) ended_job
   GROUP BY ended_job.namespace, ended_job.name, ended_job.state
   ORDER BY ended_job.namespace, ended_job.name, ended_job.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n)
SELECT updated_processes.namespace, updated_processes.process_id
  FROM updated_processes;
