-- CountConstraints returns, for each constraint in the order of ReadConstraints, the number of
-- running jobs with a key, of jobs with a key that are not claimed yet, and of jobs that wait for a
-- key. next_free_time is when the rate of a key of the constraint allows the next start, and the
-- epoch if no key waits for its rate.
-- name: CountConstraints :many
SELECT counts.running::bigint AS running, counts.held::bigint AS held,
       (
         SELECT count(*) FROM schedule s
          WHERE s.namespace COLLATE "POSIX" = c.namespace
            AND s.waits_for = 'constraint'
            AND s.line >= c.name || '='
            AND s.line < c.name || '>')::bigint AS waiting,
       coalesce((
         SELECT min(b.next_time) FROM constraint_buckets b
          WHERE b.namespace = c.namespace
            AND b.line >= c.name || '='
            AND b.line < c.name || '>'
            AND b.next_time IS NOT NULL),
                'epoch')::timestamptz AS next_free_time
  FROM constraints c
 CROSS JOIN LATERAL (
   SELECT count(attempt.claimed) AS running, count(*) - count(attempt.claimed) AS held
     FROM constraint_holds h
     LEFT JOIN LATERAL (
       SELECT true AS claimed FROM running r
        WHERE r.namespace = h.namespace
          AND r.process_id = h.process_id
        LIMIT 1) attempt ON true
    WHERE h.namespace COLLATE "POSIX" = c.namespace
      AND h.line >= c.name || '='
      AND h.line < c.name || '>') counts
 WHERE c.namespace = @namespace
 ORDER BY c.name;

-- PositionInKeyQueue returns the number of jobs ahead of a job in its key queue, counted up to lim.
-- It also returns the number of jobs that have the key, the first three of them, how many of them
-- are not claimed yet, when the rate of the key allows the next start, and the job that has
-- reserved the key.
-- name: PositionInKeyQueue :one
SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = @namespace::text
       AND s.waits_for = 'constraint'
       AND s.line = @line::text
       AND (s.priority, s.round, s.task_id) < (@priority::int, @round::bigint, @task_id::bigint)
     ORDER BY s.priority, s.round, s.task_id LIMIT @lim::int) ahead)::int AS before,
       (
         SELECT count(*) FROM constraint_holds h
          WHERE h.namespace COLLATE "POSIX" = @namespace::text
            AND h.line = @line::text)::int AS held,
       ARRAY(
         SELECT h.process_id FROM constraint_holds h
          WHERE h.namespace COLLATE "POSIX" = @namespace::text
            AND h.line = @line::text
          ORDER BY h.held_time, h.process_id LIMIT 3)::text[] AS holders,
       (
         SELECT count(*) FROM constraint_holds h
          CROSS JOIN LATERAL (
            SELECT 1 FROM schedule s
             WHERE s.namespace = h.namespace
               AND s.process_id = h.process_id
               AND s.waits_for::text = 'place'
             LIMIT 1) waiting
          WHERE h.namespace COLLATE "POSIX" = @namespace::text
            AND h.line = @line::text)::int AS unstarted,
       coalesce((
         SELECT b.next_time FROM constraint_buckets b
          WHERE b.namespace = @namespace::text
            AND b.line = @line::text),
                'epoch')::timestamptz AS next_time,
       coalesce((
         SELECT r.process_id FROM constraint_reservations r
          WHERE r.namespace = @namespace::text
            AND r.line = @line::text
            AND EXISTS (
              SELECT 1 FROM schedule s
               WHERE s.namespace = r.namespace
                 AND s.process_id = r.process_id
                 AND s.waits_for::text = 'constraint')),
                '')::text AS reserved_by;
