-- How many processes there are in each status. Whatever makes, removes or moves processes counts it in the same transaction: the
-- statements that do have a part named cn for it. INIT and RUNNING are one status here, RUNNING, so that a flush of starts counts
-- once and a flush of calls not at all; each lane has rows of its own (see TakeLane), so that no flush waits for another.

-- TakeLane gives the session a number that no other session of the database has, for as long as it lives: the default of
-- status_counts.lane. Where all are taken it is 0, which sessions share: then they wait for each other, and count as well.
-- name: TakeLane :exec
SELECT set_config('progressor.lane', coalesce((
  SELECT n FROM generate_series(1, 1000) n WHERE pg_try_advisory_lock(@class::int, n) LIMIT 1), 0)::text, false)::int AS lane;

-- CountResults counts the changes of status that SaveResult is about to make, for results that may make one: it has the same CASE. It
-- runs before it, after LockProcesses, under the same tokens.
-- name: CountResults :exec
INSERT INTO status_counts (namespace, status, n)
SELECT i.namespace, x.status, sum(x.n) FROM (
  SELECT t.namespace, (CASE p.status WHEN 'INIT' THEN 'RUNNING' ELSE p.status::text END)::process_status AS old_status,
         (CASE t.outcome WHEN 'finish' THEN CASE p.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END
                         WHEN 'fail' THEN CASE WHEN p.cancelling THEN 'CANCELLED' ELSE 'ERROR' END
                         WHEN 'complete' THEN 'COMPLETED' WHEN 'cancel' THEN 'CANCELLED' END)::process_status AS new_status
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@outcomes::text[])) AS t(namespace, process_id, task_id, fencing_token, outcome)
    JOIN running r ON r.namespace = ANY (ARRAY[t.namespace]) AND r.process_id = t.process_id AND r.task_id = t.task_id AND r.fencing_token = t.fencing_token
   CROSS JOIN LATERAL (SELECT p.status, p.cancel_deadline IS NOT NULL AS cancelling FROM processes p
                        WHERE p.namespace = t.namespace AND p.process_id = t.process_id LIMIT 1) p) i
 CROSS JOIN LATERAL (VALUES (i.old_status, -1), (i.new_status, 1)) AS x(status, n)
 GROUP BY i.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY i.namespace, x.status
ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n;

-- CountProcesses tells how many processes a namespace ('': the database) has in each status.
-- name: CountProcesses :many
SELECT c.status, sum(c.n)::bigint AS n FROM status_counts c WHERE @namespace::text IN (c.namespace, '') GROUP BY c.status ORDER BY c.status;

-- CountNamespaces tells how many processes each namespace has in each status.
-- name: CountNamespaces :many
SELECT c.namespace, c.status, sum(c.n)::bigint AS n FROM status_counts c WHERE c.namespace = ANY (@namespaces::text[])
 GROUP BY c.namespace, c.status ORDER BY c.namespace, c.status;
