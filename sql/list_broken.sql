-- ListBroken lists the processes in ERROR, the newest lim of each namespace and in total, with the
-- beginning of their detail and the reason of the failure.
-- name: ListBroken :many
SELECT p.namespace, p.process_id, p.attention_time::timestamptz AS error_time, p.detail::text AS detail, p.cut::bool AS cut,
       coalesce(t.reason, '')::text AS reason
  FROM (
    SELECT x.* FROM unnest(@namespaces::text[]) AS n(namespace)
     CROSS JOIN LATERAL (
       SELECT p.namespace, p.process_id, p.attention_time, p.corrupted_by, left(coalesce(p.detail, ''), @max_detail::int) AS detail,
              coalesce(char_length(p.detail) > @max_detail::int, false) AS cut
         FROM processes p WHERE p.namespace COLLATE "POSIX" = n.namespace AND p.attention = 'ERROR' AND p.removed_time IS NULL
        ORDER BY p.attention_time DESC, p.process_id COLLATE "POSIX" DESC LIMIT @lim::int) x
     ORDER BY x.attention_time DESC LIMIT @lim::int) p
  LEFT JOIN LATERAL (
    SELECT t.failure->>'reason' AS reason FROM tasks t
     WHERE t.namespace = p.namespace AND t.process_id = p.process_id AND t.task_id = p.corrupted_by LIMIT 1) t ON true
 ORDER BY p.attention_time DESC;

-- ListFailedRuns lists FAILED and EXPIRED runs that are not steps of others, among the newest lim
-- unsuccessful runs of each namespace, with the beginning of their failure.
-- name: ListFailedRuns :many
SELECT r.namespace, r.run_id, r.template_type, r.status, r.finished_time::timestamptz AS finished_time, coalesce(r.failure->>'reason', '')::text AS reason,
       left(coalesce(r.failure->>'message', ''), @max_detail::int)::text AS detail
  FROM unnest(@namespaces::text[]) AS n(namespace)
 CROSS JOIN LATERAL (
   SELECT r.namespace, r.run_id, r.template_type, r.status, r.finished_time, r.failure, r.parent_run_id
     FROM flow_runs r WHERE r.namespace COLLATE "POSIX" = n.namespace AND r.status IN ('failed', 'cancelled', 'expired')
    ORDER BY r.created_time DESC, r.run_id COLLATE "POSIX" DESC LIMIT @lim::int) r
 WHERE r.status <> 'cancelled' AND r.parent_run_id IS NULL ORDER BY r.finished_time DESC LIMIT @lim::int;
