-- The number of processes in each status. Each transaction that creates, removes or changes
-- processes also counts them, in a CTE named updated_status_counts. INIT and RUNNING count as one
-- status, RUNNING, so that a flush of starts counts once and a flush of calls does not count at
-- all. Each lane has its own rows (see TakeLane), so that flushes do not wait for each other.

-- TakeLane assigns the session a number that no other live session of the database has. It is the
-- default of status_counts.lane. If all numbers are used, the session gets 0, which sessions share.
-- They wait for each other, but count correctly. In a portable database the number is random,
-- because there are no advisory locks.
-- name: TakeLane :exec
SELECT set_config('progressor.lane',
                  CASE
                    WHEN is_portable() THEN 1 + floor(random() * 256)::int
                    ELSE coalesce((
                      SELECT n FROM generate_series(1, 1000) n
                       WHERE pg_try_advisory_lock(@class::int, n) LIMIT 1),
                                  0)
                  END::text,
                  false)::int AS lane;

-- CountResults counts the changes of status that SaveResult is about to make. It has the same CASE.
-- It runs after LockProcesses and before SaveResult, with the same tokens.
-- name: CountResults :exec
INSERT INTO status_counts (namespace, status, n)
SELECT ended.namespace, change.status, sum(change.n)
  FROM (
    SELECT item.namespace,
           (CASE process.status
              WHEN 'INIT' THEN 'RUNNING'
              ELSE process.status::text
            END)::process_status AS old_status,
           (CASE item.outcome
              WHEN 'finish'
                THEN CASE process.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END
              WHEN 'fail' THEN CASE WHEN process.cancelling THEN 'CANCELLED' ELSE 'ERROR' END
              WHEN 'complete' THEN 'COMPLETED'
              WHEN 'cancel' THEN 'CANCELLED'
            END)::process_status AS new_status
      FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                      unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                      unnest(@outcomes::text[]))
           AS item(namespace, process_id, task_id, fencing_token, outcome)
      JOIN running r
        ON r.namespace = ANY (ARRAY[item.namespace])
       AND r.process_id = item.process_id
       AND r.task_id = item.task_id
       AND r.fencing_token = item.fencing_token
     CROSS JOIN LATERAL (
       SELECT p.status, p.cancel_deadline IS NOT NULL AS cancelling
         FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id = item.process_id
        LIMIT 1) process) ended
 CROSS JOIN LATERAL (VALUES (ended.old_status, -1), (ended.new_status, 1)) AS change(status, n)
 GROUP BY ended.namespace, change.status HAVING sum(change.n) <> 0
 ORDER BY ended.namespace, change.status
ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n;

-- CountProcesses returns the number of processes in each status, in a namespace or, if namespace is
-- '', in the database.
-- name: CountProcesses :many
SELECT c.status, sum(c.n)::bigint AS n
  FROM status_counts c WHERE @namespace::text IN (c.namespace, '')
 GROUP BY c.status ORDER BY c.status;

-- CountNamespaces returns the number of processes of each namespace in each status.
-- name: CountNamespaces :many
SELECT c.namespace, c.status, sum(c.n)::bigint AS n
  FROM status_counts c WHERE c.namespace = ANY (@namespaces::text[])
 GROUP BY c.namespace, c.status ORDER BY c.namespace, c.status;
