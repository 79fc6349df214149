-- ListBroken lists the processes that went to ERROR last, newest first, at most lim in total.
-- reason and message are the beginnings of the reason and the message of the task that caused the
-- error. A process that was imported in ERROR has no such task: its message is its detail.
-- name: ListBroken :many
SELECT broken.namespace, broken.process_id, broken.attention_time::timestamptz AS error_time,
       left(coalesce(broken.reason, ''), 256)::text AS reason,
       left(coalesce(broken.message, ''), @max_detail::int)::text AS message,
       error_fingerprint(broken.reason, broken.message)::text AS fingerprint, broken.kind
  FROM (
    SELECT process.namespace, process.process_id, process.attention_time, process.kind,
           task.failure->>'reason' AS reason,
           CASE process.corrupted_by
             WHEN 0 THEN process.detail
             ELSE task.failure->>'message'
           END AS message
      FROM (
        SELECT process.* FROM unnest(@namespaces::text[]) AS item(namespace)
         CROSS JOIN LATERAL (
           SELECT p.namespace, p.process_id, p.attention_time, p.corrupted_by, p.detail, p.kind
             FROM processes p
            WHERE p.namespace COLLATE "POSIX" = item.namespace
              AND p.attention = 'ERROR'
              AND p.removed_time IS NULL
            ORDER BY p.attention_time DESC, p.process_id COLLATE "POSIX" DESC
            LIMIT @lim::int) process
         ORDER BY process.attention_time DESC LIMIT @lim::int) process
      LEFT JOIN LATERAL (
        SELECT t.failure FROM tasks t
         WHERE t.namespace = process.namespace
           AND t.process_id = process.process_id
           AND t.task_id = process.corrupted_by
         LIMIT 1) task ON true) broken
 ORDER BY broken.attention_time DESC;

-- ListFailedRuns lists FAILED and EXPIRED runs with the beginning of their failure. It omits runs
-- that are steps of other runs. In each namespace, it reads only the newest lim runs that are
-- FAILED, CANCELLED or EXPIRED.
-- name: ListFailedRuns :many
SELECT run.namespace, run.run_id, run.template_type, run.status,
       run.finished_time::timestamptz AS finished_time,
       left(coalesce(run.failure->>'reason', ''), 256)::text AS reason,
       left(coalesce(run.failure->>'message', ''), @max_detail::int)::text AS message,
       error_fingerprint(run.failure->>'reason', run.failure->>'message')::text AS fingerprint
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT r.namespace, r.run_id, r.template_type, r.status, r.finished_time, r.failure,
          r.parent_run_id
     FROM flow_runs r
    WHERE r.namespace COLLATE "POSIX" = item.namespace
      AND r.status IN ('failed', 'cancelled', 'expired')
    ORDER BY r.created_time DESC, r.run_id COLLATE "POSIX" DESC LIMIT @lim::int) run
 WHERE run.status <> 'cancelled'
   AND run.parent_run_id IS NULL
 ORDER BY run.finished_time DESC LIMIT @lim::int;

-- NewestErrors returns, for each namespace with processes in ERROR, how long ago (in µs) the last
-- of them went to ERROR.
-- name: NewestErrors :many
SELECT item.namespace::text AS namespace,
       (extract(epoch FROM statement_timestamp() - newest.attention_time)
         * 1000000)::bigint AS age_us
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT p.attention_time FROM processes p
    WHERE p.namespace COLLATE "POSIX" = item.namespace
      AND p.attention = 'ERROR'
      AND p.removed_time IS NULL
    ORDER BY p.attention_time DESC, p.process_id COLLATE "POSIX" DESC LIMIT 1) newest;
