-- NamespacesWaiting lists the namespaces with tasks that wait for a slot. own is true if some of
-- these tasks are run by the engine itself, even in a pull namespace: those of crons, runs and
-- bulks. A namespace with waiting tasks costs one index probe, and all others cost nothing.
-- name: NamespacesWaiting :many
WITH RECURSIVE waiting AS (
  SELECT (
    SELECT s.namespace FROM schedule s WHERE s.waits_for = 'place'
     ORDER BY s.namespace COLLATE "POSIX" LIMIT 1) AS namespace
  UNION ALL
  SELECT (
    SELECT s.namespace FROM schedule s
     WHERE s.waits_for = 'place'
       AND s.namespace COLLATE "POSIX" > w.namespace
     ORDER BY s.namespace COLLATE "POSIX" LIMIT 1)
    FROM waiting w WHERE w.namespace IS NOT NULL)
SELECT w.namespace::text AS namespace,
       EXISTS (
         SELECT 1 FROM schedule s
          WHERE s.namespace COLLATE "POSIX" = w.namespace
            AND s.waits_for = 'place'
            AND starts_with(s.process_id, '~')
            AND NOT starts_with(s.process_id, '~job/')
          LIMIT 1)::bool AS own
  FROM waiting w WHERE w.namespace IS NOT NULL;

-- DueTimers returns the namespaces with tasks that are due within a period. Each row contains the
-- time until the first task of the namespace is due (µs, 0 if one is due), and the number of its
-- tasks that were read. DueTimers reads at most lim tasks of all namespaces together, earliest
-- first. If more tasks are due, some namespaces may be missing. Namespaces with later tasks cost
-- nothing.
-- name: DueTimers :many
WITH due_timers AS MATERIALIZED (
  SELECT s.namespace, s.scheduled_time
    FROM schedule s
   WHERE (s.waits_for = 'time')::int = 1
     AND s.scheduled_time < statement_timestamp() + (@within_us::bigint) * interval '1 microsecond'
   ORDER BY s.scheduled_time LIMIT @lim::int)
SELECT d.namespace::text AS namespace,
       greatest(extract(epoch FROM min(d.scheduled_time) - statement_timestamp()) * 1000000,
                0)::bigint AS delay_us,
       count(*)::int AS tasks
  FROM due_timers d GROUP BY d.namespace;

-- NextTimers returns, for each namespace with tasks that wait for a time, the time until the first
-- one is due (µs, 0 if one is due). A namespace with such tasks costs one index probe, and all
-- others cost nothing.
-- name: NextTimers :many
WITH RECURSIVE next_timer AS (
  SELECT waiting.namespace, waiting.scheduled_time
    FROM (
      SELECT s.namespace, s.scheduled_time
        FROM schedule s WHERE s.waits_for = 'time'
       ORDER BY s.namespace COLLATE "POSIX", s.scheduled_time LIMIT 1) waiting
  UNION ALL
  SELECT waiting.namespace, waiting.scheduled_time
    FROM next_timer n
   CROSS JOIN LATERAL (
     SELECT s.namespace, s.scheduled_time
       FROM schedule s
      WHERE s.waits_for = 'time'
        AND s.namespace COLLATE "POSIX" > n.namespace
      ORDER BY s.namespace COLLATE "POSIX", s.scheduled_time LIMIT 1) waiting)
SELECT n.namespace::text AS namespace,
       greatest(extract(epoch FROM n.scheduled_time - statement_timestamp()) * 1000000,
                0)::bigint AS delay_us
  FROM next_timer n;
