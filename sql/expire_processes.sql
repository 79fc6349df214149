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
  RETURNING p.namespace, p.process_id, p.attention AS status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, up.status, -count(*) FROM up GROUP BY up.namespace, up.status ORDER BY up.namespace, up.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n)
SELECT up.namespace, up.process_id FROM up;
