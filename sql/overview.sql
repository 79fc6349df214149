-- WaitingByWhat counts the waiting tasks of namespaces by what they wait for. It counts tasks that
-- wait for a time or a slot with their indexes, each up to lim, and others among the first lim rows
-- of each namespace. So its cost is bounded, even with a backlog of millions of tasks.
-- name: WaitingByWhat :one
SELECT coalesce(sum(timers.n), 0)::bigint AS time, coalesce(sum(ready.n), 0)::bigint AS place,
       coalesce(sum(others.process), 0)::bigint AS process,
       coalesce(sum(others.operator), 0)::bigint AS operator,
       coalesce(sum(others.bound), 0)::bigint AS bound
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT count(*) AS n
     FROM (
       SELECT 1 FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = item.namespace
          AND s.waits_for = 'time'
        ORDER BY s.scheduled_time LIMIT @lim::int) waiting) timers
 CROSS JOIN LATERAL (
   SELECT count(*) AS n
     FROM (
       SELECT 1 FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = item.namespace
          AND s.waits_for = 'place'
        ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int) waiting) ready
 CROSS JOIN LATERAL (
   SELECT count(*) FILTER (WHERE waiting.waits_for = 'process') AS process,
          count(*) FILTER (WHERE waiting.waits_for = 'operator') AS operator,
          count(*) FILTER (WHERE waiting.waits_for = 'constraint') AS bound
     FROM (
       SELECT s.waits_for FROM schedule s WHERE s.namespace = item.namespace
        ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) waiting) others;

-- CountRuns counts the runs of namespaces by status: those that have not ended, and those that
-- ended without success. It counts each of the two groups up to lim in each namespace.
-- name: CountRuns :many
SELECT item.namespace::text AS namespace, counted.status::text AS status, counted.n::bigint AS n
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT runs.status, count(*) AS n
     FROM (
       (SELECT r.status FROM flow_runs r
         WHERE r.namespace COLLATE "POSIX" = item.namespace
           AND r.finished_time IS NULL
         ORDER BY r.created_time LIMIT @lim::int)
       UNION ALL
       (SELECT r.status FROM flow_runs r
         WHERE r.namespace COLLATE "POSIX" = item.namespace
           AND r.status IN ('failed', 'cancelled', 'expired')
         ORDER BY r.created_time DESC LIMIT @lim)) runs
    GROUP BY runs.status) counted;

-- CountOpenWaits counts the open waits of namespaces, each up to lim.
-- name: CountOpenWaits :many
SELECT item.namespace::text AS namespace, waits.n::bigint AS n
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT count(*) AS n
     FROM (
       SELECT 1 FROM flow_steps f
        WHERE f.namespace = item.namespace
          AND f.token IS NOT NULL
        LIMIT @lim::int) waiting) waits;

-- NodesLoad returns the tasks per second of all live nodes together, and the largest of their timer
-- latenesses, both for the last minute.
-- name: NodesLoad :one
SELECT coalesce(sum(n.tasks_per_second), 0)::double precision AS tasks_per_second,
       coalesce(max(n.timer_lateness_p99), interval '0')::interval AS timer_lateness_p99
  FROM nodes n
 WHERE n.beat_time >= statement_timestamp() - (@zombie_after_us::bigint) * interval '1 microsecond';
