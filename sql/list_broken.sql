-- ListBroken lists processes in ERROR, newest first, at most lim of each namespace and in total,
-- with the beginning of their detail and of the reason of their failure.
-- name: ListBroken :many
SELECT broken.namespace, broken.process_id, broken.attention_time::timestamptz AS error_time,
       broken.detail::text AS detail, broken.cut::bool AS cut,
       left(coalesce(task.reason, ''), 256)::text AS reason
  FROM (
    SELECT process.* FROM unnest(@namespaces::text[]) AS item(namespace)
     CROSS JOIN LATERAL (
       SELECT p.namespace, p.process_id, p.attention_time, p.corrupted_by,
              left(coalesce(p.detail, ''), @max_detail::int) AS detail,
              coalesce(char_length(p.detail) > @max_detail::int, false) AS cut
         FROM processes p
        WHERE p.namespace COLLATE "POSIX" = item.namespace
          AND p.attention = 'ERROR'
          AND p.removed_time IS NULL
        ORDER BY p.attention_time DESC, p.process_id COLLATE "POSIX" DESC LIMIT @lim::int) process
     ORDER BY process.attention_time DESC LIMIT @lim::int) broken
  LEFT JOIN LATERAL (
    SELECT t.failure->>'reason' AS reason FROM tasks t
     WHERE t.namespace = broken.namespace
       AND t.process_id = broken.process_id
       AND t.task_id = broken.corrupted_by
     LIMIT 1) task ON true
 ORDER BY broken.attention_time DESC;

-- ListFailedRuns lists FAILED and EXPIRED runs with the beginning of their failure. It omits runs
-- that are steps of other runs. It reads the newest lim unsuccessful runs of each namespace.
-- name: ListFailedRuns :many
SELECT run.namespace, run.run_id, run.template_type, run.status,
       run.finished_time::timestamptz AS finished_time,
       left(coalesce(run.failure->>'reason', ''), 256)::text AS reason,
       left(coalesce(run.failure->>'message', ''), @max_detail::int)::text AS detail
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

-- NewestErrors returns, for each namespace with processes in ERROR, how long ago the newest of them
-- failed (µs).
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
