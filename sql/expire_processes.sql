-- ExpireProcesses marks processes as removed whose retention has passed, those that ended first, at
-- most lim per namespace and status. No task runs or waits in an ended process, and its status
-- never changes, so this does not need a lane: the row is marked, and PurgeHistory deletes its
-- data. Locked rows are left to the next call. A FAILED job has ended, too (a retry locks its row);
-- a plain process in ERROR has not. The jobs of a run are removed with the run. A job whose unique key
-- has a TTL keeps the key.
-- name: ExpireProcesses :many
WITH x AS MATERIALIZED (
  SELECT d.namespace, d.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[])) AS n(namespace, retention_us)
   CROSS JOIN unnest(ARRAY['COMPLETED', 'CANCELLED']::process_status[]) AS a(status)
   CROSS JOIN LATERAL (
    SELECT p.namespace, p.process_id FROM processes p
     WHERE p.namespace COLLATE "POSIX" = n.namespace AND p.attention = a.status AND p.removed_time IS NULL
       AND p.attention_time < statement_timestamp() - n.retention_us * interval '1 microsecond'
       AND NOT (starts_with(p.process_id, '~job/') AND (
         EXISTS (SELECT 1 FROM flow_runs r WHERE r.namespace = p.namespace AND r.run_id = substring(p.process_id FROM '^~job/(.*)/[^/]*$')) OR
         EXISTS (SELECT 1 FROM flow_steps f WHERE f.process_namespace = p.namespace AND f.process_id = p.process_id)))
     ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) d
  UNION ALL
  SELECT d.namespace, d.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@retentions_us::bigint[])) AS n(namespace, retention_us)
   CROSS JOIN LATERAL (
    SELECT p.namespace, p.process_id FROM processes p
     WHERE p.namespace COLLATE "POSIX" = n.namespace AND p.attention = 'ERROR' AND p.kind = 'job' AND p.removed_time IS NULL
       AND p.attention_time < statement_timestamp() - n.retention_us * interval '1 microsecond'
       AND NOT (starts_with(p.process_id, '~job/') AND (
         EXISTS (SELECT 1 FROM flow_runs r WHERE r.namespace = p.namespace AND r.run_id = substring(p.process_id FROM '^~job/(.*)/[^/]*$')) OR
         EXISTS (SELECT 1 FROM flow_steps f WHERE f.process_namespace = p.namespace AND f.process_id = p.process_id)))
     ORDER BY p.attention_time LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) d),
-- The jobs of a removed run, lim at a time: the run is removed after them.
j AS MATERIALIZED (
  SELECT d.namespace, d.process_id, x.namespace AS run_namespace, x.process_id AS run_process_id
    FROM x CROSS JOIN LATERAL (
      (SELECT p.namespace, p.process_id FROM processes p
        WHERE starts_with(x.process_id, '~flow/') AND p.namespace = x.namespace
          AND p.process_id > '~job/' || substr(x.process_id, 7) || '/' AND p.process_id < '~job/' || substr(x.process_id, 7) || '0'
          AND strpos(substr(p.process_id, length(x.process_id) + 1), '/') = 0 AND p.removed_time IS NULL AND p.attention IS NOT NULL LIMIT @lim::int)
      UNION ALL
      (SELECT f.process_namespace, f.process_id FROM flow_steps f
        WHERE starts_with(x.process_id, '~flow/') AND f.namespace = x.namespace AND f.run_id = substr(x.process_id, 7) AND f.process_namespace IS NOT NULL
          AND starts_with(f.process_id, '~job/') AND EXISTS (SELECT 1 FROM processes p WHERE p.namespace = f.process_namespace AND p.process_id = f.process_id
                                                               AND p.removed_time IS NULL AND p.attention IS NOT NULL) LIMIT @lim::int)) d),
g AS MATERIALIZED (
  SELECT j.namespace, j.process_id FROM j
  UNION ALL
  SELECT x.namespace, x.process_id FROM x
   WHERE (SELECT count(*) FROM j WHERE j.run_namespace = x.namespace AND j.run_process_id = x.process_id) < @lim::int),
l AS MATERIALIZED (
  SELECT p.namespace, p.process_id FROM g CROSS JOIN LATERAL (
    SELECT o.namespace, o.process_id FROM processes o WHERE o.namespace = g.namespace AND o.process_id = g.process_id AND o.removed_time IS NULL
       AND o.attention IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED) p),
up AS (
  UPDATE processes p SET removed_time = statement_timestamp()
    FROM l AS x WHERE p.namespace = ANY (ARRAY[x.namespace]) AND p.process_id = x.process_id
  RETURNING p.namespace, p.process_id, p.attention AS status, p.kind, p.status_changed_time),
-- Unique keys that their jobs keep after their end. They are locked in order, as in EnqueueJobs.
held AS (
  UPDATE job_keys k SET held_until = o.status_changed_time + o.ttl
    FROM (SELECT k.namespace, k.unique_key, k.ttl, up.status_changed_time FROM up
           CROSS JOIN LATERAL (SELECT j.unique_key FROM jobs j WHERE up.kind = 'job' AND j.namespace = up.namespace AND j.process_id = up.process_id AND j.unique_key IS NOT NULL LIMIT 1) j
            JOIN job_keys k ON k.namespace = up.namespace AND k.unique_key = j.unique_key AND k.process_id = up.process_id
           WHERE up.status_changed_time + k.ttl > statement_timestamp()
           ORDER BY k.namespace, k.unique_key FOR NO KEY UPDATE OF k) o
   WHERE k.namespace = o.namespace AND k.unique_key = o.unique_key),
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
