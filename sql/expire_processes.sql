-- ExpireProcesses marks as removed the processes whose end is longer ago than their namespace keeps them, the longest ended first, at
-- most lim of a namespace and status. Nothing runs or waits in a process at its end, and it never leaves its end, so that it goes
-- without the lanes: its row is marked, and PurgeHistory deletes what it has. A row that somebody holds is left to the next time. A job that
-- has FAILED is at its end as well, a plain process in ERROR never is; who lets the job run again holds its row.
-- name: ExpireProcesses :many
WITH x AS MATERIALIZED (
  SELECT d.namespace, d.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[])) AS n(namespace, retention_us)
   CROSS JOIN unnest(ARRAY['COMPLETED', 'CANCELLED']::process_status[]) AS a(status)
   CROSS JOIN LATERAL (
    SELECT p.namespace, p.process_id FROM processes p
     WHERE p.namespace COLLATE "POSIX" = n.namespace AND p.attention = a.status AND p.removed_time IS NULL
       AND p.attention_time < statement_timestamp() - n.retention_us * interval '1 microsecond'
     ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) d
  UNION ALL
  SELECT d.namespace, d.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[])) AS n(namespace, retention_us)
   CROSS JOIN LATERAL (
    SELECT p.namespace, p.process_id FROM processes p
     WHERE p.namespace COLLATE "POSIX" = n.namespace AND p.attention = 'ERROR' AND p.kind = 'job' AND p.removed_time IS NULL
       AND p.attention_time < statement_timestamp() - n.retention_us * interval '1 microsecond'
     ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) d),
up AS (
  UPDATE processes p SET removed_time = statement_timestamp()
    FROM x WHERE p.namespace = ANY (ARRAY[x.namespace]) AND p.process_id = x.process_id
  RETURNING p.namespace, p.process_id, p.attention AS status, p.kind),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, up.status, -count(*) FROM up GROUP BY up.namespace, up.status ORDER BY up.namespace, up.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT x.namespace, x.name, x.state, -count(*) FROM (
    SELECT up.namespace, j.name, CASE up.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'ERROR' THEN 'failed' WHEN 'CANCELLED' THEN 'cancelled' END AS state FROM up
     CROSS JOIN LATERAL (SELECT j.name FROM jobs j WHERE up.kind = 'job' AND j.namespace = up.namespace AND j.process_id = up.process_id LIMIT 1) j) x
   GROUP BY x.namespace, x.name, x.state ORDER BY x.namespace, x.name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n)
SELECT up.namespace, up.process_id FROM up;
