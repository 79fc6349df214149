-- RecordWorkers stores for each worker when a node last saw it, which client uses its ID, and the
-- address and User-Agent of its last request. The owner '' means that the client is not known. If
-- another client uses the ID, RecordWorkers skips the worker as long as the worker of that client
-- has leases, or was seen within owned_us and is not lost. RecordWorkers returns the workers that
-- it stored. A command to a worker ends when another client takes the ID of the worker. Rows are
-- written in the order of their keys, so that two nodes do not deadlock. RecordWorkers skips
-- namespaces that are deleted or being deleted.
-- name: RecordWorkers :many
INSERT INTO workers AS w (namespace, worker_id, last_seen_time, owner, address, user_agent)
SELECT item.namespace, item.worker_id, statement_timestamp(), NULLIF(item.owner, ''),
       NULLIF(item.address, ''), NULLIF(item.user_agent, '')
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@worker_ids::text[]),
                  unnest(@owners::text[]), unnest(@addresses::text[]),
                  unnest(@user_agents::text[]))
       AS item(namespace, worker_id, owner, address, user_agent)
  JOIN namespaces n
    ON n.namespace = item.namespace
   AND n.deletion_requested_time IS NULL
 ORDER BY item.namespace, item.worker_id
ON CONFLICT (namespace, worker_id) DO UPDATE
   SET last_seen_time = excluded.last_seen_time, owner = coalesce(excluded.owner, w.owner),
       address = excluded.address, user_agent = excluded.user_agent,
       directive = CASE WHEN (w.owner = excluded.owner) IS NOT FALSE THEN w.directive END,
       reason = CASE WHEN (w.owner = excluded.owner) IS NOT FALSE THEN w.reason END,
       lost_time = CASE WHEN (w.owner = excluded.owner) IS NOT FALSE THEN w.lost_time END
 WHERE (w.owner = excluded.owner) IS NOT FALSE
    OR ((w.last_seen_time < statement_timestamp() - (@owned_us::bigint) * interval '1 microsecond'
         OR w.lost_time < statement_timestamp())
        AND NOT EXISTS (
          SELECT 1 FROM leases l
            JOIN running r
              ON r.namespace = l.namespace
             AND r.process_id = l.process_id
             AND r.fencing_token = l.fencing_token
           WHERE l.namespace = w.namespace
             AND l.worker_id = w.worker_id))
RETURNING w.namespace, w.worker_id;

-- OwnedByOthers returns the given workers whose IDs another client uses.
-- name: OwnedByOthers :many
SELECT w.namespace, w.worker_id
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@worker_ids::text[]))
       AS item(namespace, worker_id)
  JOIN workers w
    ON w.namespace = ANY (ARRAY[item.namespace])
   AND w.worker_id = item.worker_id
   AND w.owner <> @owner
 ORDER BY w.namespace, w.worker_id;

-- CrowdedWorkers returns the given workers whose IDs a client does not use yet, in namespaces in
-- which the client already uses at least max_ids other IDs.
-- name: CrowdedWorkers :many
SELECT item.namespace::text AS namespace, item.worker_id::text AS worker_id
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@worker_ids::text[]))
       AS item(namespace, worker_id)
 WHERE NOT EXISTS (
   SELECT 1 FROM workers w
    WHERE w.namespace = item.namespace
      AND w.worker_id = item.worker_id
      AND w.owner = @owner)
   AND (SELECT count(*)
          FROM (
            SELECT 1 FROM workers w
             WHERE w.owner = @owner
               AND w.namespace = item.namespace
             LIMIT @max_ids::int) other) >= @max_ids::int
 ORDER BY item.namespace, item.worker_id;

-- ForgetWorkersOf deletes at most lim workers of a client in some namespaces: those that have no
-- leases and no command, and were not seen for the given period. It reads the leases once instead
-- of for each worker, because leases have no index by worker (10,000 workers and 5,000 leases: 23 s
-- → 0.03 s).
-- name: ForgetWorkersOf :exec
DELETE FROM workers w
 WHERE (w.namespace, w.worker_id) IN (
   SELECT x.namespace, x.worker_id
     FROM workers x
    WHERE x.owner = @owner
      AND x.namespace = ANY (@namespaces::text[])
      AND x.directive IS NULL
      AND x.last_seen_time
            < statement_timestamp() - (@owned_us::bigint) * interval '1 microsecond'
      AND ((x.namespace, x.worker_id) IN (
        SELECT l.namespace, l.worker_id
          FROM leases l
          JOIN running r
            ON r.namespace = l.namespace
           AND r.process_id = l.process_id
           AND r.fencing_token = l.fencing_token
         WHERE l.namespace = ANY (@namespaces::text[]))) IS NOT TRUE
    ORDER BY x.last_seen_time LIMIT @lim::int FOR UPDATE OF x SKIP LOCKED);

-- ListStoppingWorkers returns workers with a stop command and their remaining grace period. A
-- worker is a client with a worker ID. After lost_time, other workers get its tasks. lost_time is
-- 'epoch' if the worker keeps its tasks.
-- name: ListStoppingWorkers :many
SELECT w.worker_id, coalesce(w.owner, '')::text AS owner, max(w.directive)::text AS directive,
       coalesce(max(w.lost_time), 'epoch')::timestamptz AS lost_time,
       coalesce(extract(epoch FROM max(w.lost_time) - statement_timestamp()) * 1000000,
                0)::bigint AS left_us
  FROM workers w WHERE w.directive IS NOT NULL
 GROUP BY w.worker_id, w.owner;

-- SetWorkerCommand stores a command for a worker of a namespace, in all namespaces in which the
-- same client uses its ID. An empty directive means continue. It locks the rows in the order of
-- RecordWorkers.
-- name: SetWorkerCommand :execrows
UPDATE workers w
   SET directive = NULLIF(@directive::text, ''), reason = NULLIF(@reason::text, ''),
       lost_time = CASE @directive::text
                     WHEN 'stop'
                       THEN statement_timestamp() + (@grace_us::bigint) * interval '1 microsecond'
                   END
  FROM (
    SELECT x.namespace, x.worker_id
      FROM workers target
      JOIN workers x
        ON x.worker_id = target.worker_id
       AND x.owner IS NOT DISTINCT FROM target.owner
     WHERE target.namespace = @namespace
       AND target.worker_id = @worker_id
     ORDER BY x.namespace FOR UPDATE OF x) worker
 WHERE w.namespace = worker.namespace
   AND w.worker_id = worker.worker_id;

-- ListWorkers lists the workers of a namespace by ID, each with at most max_namespaces of the
-- namespaces in which the same client uses its ID. If exactly is set, it returns only the worker
-- with this ID. It stops when the namespaces of the returned workers exceed max_bytes. If a worker
-- was first seen in a namespace after a command, its row of that namespace has no command, and max
-- takes the command from its other rows. It reads only the attempts of the workers that it lists.
-- name: ListWorkers :many
WITH known AS MATERIALIZED (
  SELECT x.worker_id, coalesce(x.owner, '') AS owner FROM workers x
   WHERE x.namespace = @namespace
     AND x.worker_id > @after::text
     AND (@exactly::text = '' OR x.worker_id = @exactly::text)
   ORDER BY x.worker_id LIMIT @lim::int),
lease_counts AS MATERIALIZED (
  SELECT l.worker_id, coalesce(holder.owner, '') AS owner, count(*) AS n
    FROM leases l
    LEFT JOIN workers holder
      ON holder.namespace = l.namespace
     AND holder.worker_id = l.worker_id
   WHERE (l.worker_id IN (SELECT known.worker_id FROM known)) IS TRUE
     AND EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = l.namespace
          AND r.process_id = l.process_id
          AND r.fencing_token = l.fencing_token)
   GROUP BY l.worker_id, coalesce(holder.owner, ''))
SELECT listed.worker_id, listed.owner::text AS owner, listed.namespaces::text[] AS namespaces,
       listed.last_seen_time::timestamptz AS last_seen_time,
       coalesce(listed.directive, '')::text AS directive,
       coalesce(listed.address, '')::text AS address,
       coalesce(listed.user_agent, '')::text AS user_agent,
       coalesce(lease_counts.n, 0)::int AS leases
  FROM (
    SELECT known.worker_id, known.owner, worker.*, first.namespaces,
           sum(first.bytes) OVER (ORDER BY known.worker_id ROWS UNBOUNDED PRECEDING)
             - first.bytes AS bytes_before
      FROM known
     CROSS JOIN LATERAL (
       SELECT max(o.last_seen_time) AS last_seen_time, max(o.directive) AS directive,
              (array_agg(o.address ORDER BY o.last_seen_time DESC))[1] AS address,
              (array_agg(o.user_agent ORDER BY o.last_seen_time DESC))[1] AS user_agent
         FROM workers o
        WHERE o.worker_id = known.worker_id
          AND coalesce(o.owner, '') = known.owner) worker
     CROSS JOIN LATERAL (
       SELECT array_agg(seen.namespace ORDER BY seen.namespace) AS namespaces,
              sum(octet_length(seen.namespace)) AS bytes
         FROM (
           SELECT o.namespace FROM workers o
            WHERE o.worker_id = known.worker_id
              AND coalesce(o.owner, '') = known.owner
            ORDER BY o.namespace LIMIT @max_namespaces::int) seen) first) listed
  LEFT JOIN lease_counts
    ON lease_counts.worker_id = listed.worker_id
   AND lease_counts.owner = listed.owner
 WHERE listed.bytes_before <= @max_bytes::bigint
 ORDER BY listed.worker_id;

-- WorkerLeases returns at most lim leases of a worker in a namespace, oldest first. For a member of
-- a job for several workers, process_id is the ID of that job.
-- name: WorkerLeases :many
SELECT coalesce(place.job_id, l.process_id)::text AS process_id, attempt.task_id,
       attempt.task_type, attempt.attempt, l.leased_time, l.beat_time, l.expires_time,
       attempt.deadline, coalesce(job.name, '')::text AS job_name,
       (job.progress IS NOT NULL)::bool AS reported,
       coalesce((job.progress->>'percent')::float8, 0)::float8 AS percent,
       left(coalesce(job.progress->>'summary', ''), 1000)::text AS summary
  FROM leases l
 CROSS JOIN LATERAL (
   SELECT r.* FROM running r
    WHERE r.namespace = l.namespace
      AND r.process_id = l.process_id
      AND r.fencing_token = l.fencing_token
    LIMIT 1) attempt
  LEFT JOIN LATERAL (
    SELECT j.name, j.progress FROM jobs j
     WHERE j.namespace = l.namespace
       AND j.process_id = l.process_id
     LIMIT 1) job ON true
  LEFT JOIN LATERAL (
    SELECT x.job_id FROM job_places x
     WHERE x.namespace = l.namespace
       AND x.process_id = l.process_id
     LIMIT 1) place ON true
 WHERE l.namespace = @namespace
   AND l.worker_id = @worker_id
 ORDER BY l.leased_time, l.process_id LIMIT @lim::int;

-- LeasesOf returns at most lim leases of workers, except leases with a pending result.
-- name: LeasesOf :many
SELECT l.namespace, l.process_id, l.fencing_token, l.salt
  FROM ROWS FROM (unnest(@owners::text[]), unnest(@worker_ids::text[])) AS item(owner, worker_id)
  JOIN leases l ON l.worker_id = item.worker_id
  LEFT JOIN workers holder
    ON holder.namespace = l.namespace
   AND holder.worker_id = l.worker_id
 WHERE coalesce(holder.owner, '') = item.owner
   AND l.pending_result IS NULL
   AND EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = l.namespace
        AND r.process_id = l.process_id
        AND r.fencing_token = l.fencing_token)
 LIMIT @lim::int;

-- ForgetWorkers deletes workers that were not seen for a period, at most lim.
-- name: ForgetWorkers :execrows
DELETE FROM workers w
 WHERE (w.namespace, w.worker_id) IN (
   SELECT x.namespace, x.worker_id
     FROM workers x
    WHERE x.last_seen_time
            < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
    LIMIT @lim::int FOR UPDATE SKIP LOCKED);

-- CountWorkers returns the number of workers of each namespace that were seen within a period. The
-- table contains the workers of one day.
-- name: CountWorkers :many
SELECT w.namespace, count(*) AS n
  FROM workers w
 WHERE w.namespace = ANY (@namespaces::text[])
   AND w.last_seen_time >= statement_timestamp() - (@seen_us::bigint) * interval '1 microsecond'
 GROUP BY w.namespace ORDER BY w.namespace;
