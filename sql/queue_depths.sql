-- QueueDepths returns, for each namespace, the number of tasks that could run now and how long the
-- oldest of them has waited (µs). It counts up to lim, which bounds its cost.
-- name: QueueDepths :many
SELECT item.namespace::text AS namespace, (ready.waiting + timers.waiting)::bigint AS waiting,
       coalesce((extract(epoch FROM statement_timestamp()
                            - least(ready.oldest, timers.oldest)) * 1000000),
                0)::bigint AS oldest_us
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT count(*) AS waiting, min(waiting.scheduled_time) AS oldest
     FROM (
       SELECT s.scheduled_time FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = item.namespace
          AND s.waits_for = 'place'
        ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int) waiting) ready
 CROSS JOIN LATERAL (
   SELECT count(*) AS waiting, min(waiting.scheduled_time) AS oldest
     FROM (
       SELECT s.scheduled_time FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = item.namespace
          AND s.waits_for = 'time'
          AND s.scheduled_time <= statement_timestamp()
        ORDER BY s.scheduled_time LIMIT @lim::int) waiting) timers;

-- CountBacklog counts the tasks of a namespace that wait for a slot, up to lim.
-- name: CountBacklog :one
SELECT count(*)::int AS waiting
  FROM (
    SELECT 1 FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = @namespace::text
       AND s.waits_for = 'place'
     LIMIT @lim::int) waiting;
