-- +goose Up
-- A job of several workers must be counted once, but its members were counted as well. This
-- statement recounts the jobs of all names that have members. Engines of the previous version still
-- count the members that they create and end. If such jobs ran during an upgrade, run this
-- statement again after the upgrade.
WITH names AS (
  SELECT DISTINCT j.namespace, j.name
    FROM jobs j WHERE starts_with(j.process_id, '~job/~/')),
changes AS (
  SELECT j.namespace, j.name,
         CASE p.status
           WHEN 'COMPLETED' THEN 'succeeded'
           WHEN 'ERROR' THEN 'failed'
           WHEN 'CANCELLED' THEN 'cancelled'
           ELSE CASE
                  WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable'
                  WHEN s.waits_for = 'time' THEN 'scheduled'
                  ELSE 'available'
                END
         END AS state,
         1 AS n
    FROM names
    JOIN jobs j
      ON j.namespace = names.namespace
     AND j.name = names.name
    JOIN processes p
      ON p.namespace = j.namespace
     AND p.process_id = j.process_id
     AND p.removed_time IS NULL
     AND p.kind = 'job'
    LEFT JOIN schedule s
      ON s.namespace = j.namespace
     AND s.process_id = j.process_id
   WHERE NOT starts_with(j.process_id, '~job/~/')
  UNION ALL
  SELECT s.namespace, s.job_name,
         CASE WHEN p.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, 1
    FROM names
    JOIN schedule s
      ON s.namespace = names.namespace
     AND s.job_name = names.name
     AND s.taker = '~'
     AND s.attempt > 0
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
  UNION ALL
  SELECT c.namespace, c.name, c.state, -c.n
    FROM names
    JOIN job_counts c
      ON c.namespace = names.namespace
     AND c.name = names.name)
INSERT INTO job_counts (namespace, name, state, n)
SELECT changes.namespace, changes.name, changes.state, sum(changes.n)
  FROM changes
 GROUP BY changes.namespace, changes.name, changes.state HAVING sum(changes.n) <> 0
 ORDER BY changes.namespace, changes.name, changes.state
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;

COMMENT ON COLUMN job_counts.state IS
  'State of the jobs, in lower case. available includes running jobs. Running jobs of several '
  'workers are also counted as running or cancel_requested. Their members are not counted.';

-- +goose Down
COMMENT ON COLUMN job_counts.state IS
  'State of the jobs, in lower case. available includes running jobs. Running jobs of several '
  'workers are also counted as running or cancel_requested.';
INSERT INTO job_counts (namespace, name, state, n)
SELECT member.namespace, member.name, member.state, count(*)
  FROM (
    SELECT j.namespace, j.name,
           CASE p.status
             WHEN 'COMPLETED' THEN 'succeeded'
             WHEN 'ERROR' THEN 'failed'
             WHEN 'CANCELLED' THEN 'cancelled'
             ELSE CASE
                    WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable'
                    WHEN s.waits_for = 'time' THEN 'scheduled'
                    ELSE 'available'
                  END
           END AS state
      FROM jobs j
      JOIN processes p
        ON p.namespace = j.namespace
       AND p.process_id = j.process_id
       AND p.removed_time IS NULL
       AND p.kind = 'job'
      LEFT JOIN schedule s
        ON s.namespace = j.namespace
       AND s.process_id = j.process_id
     WHERE starts_with(j.process_id, '~job/~/')) member
 GROUP BY member.namespace, member.name, member.state
 ORDER BY member.namespace, member.name, member.state
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;
