-- LockProcesses is the first statement of every transaction that moves tasks, except claims, which
-- skip locked rows. It locks all its processes in key order (the arrays are sorted by it). In a
-- flush, TryLockProcesses does the same. The following statements, with their own snapshots, see
-- everything that earlier holders of the locks have stored. This order prevents lost wake-ups and
-- deadlocks.
--
-- A process that was inserted after this statement began is not locked, but visible to the
-- following statements. LockProcesses therefore stores the keys that it does not find in the
-- setting progressor.missing of this transaction, which is nearly always empty. The statements that
-- act on a process of the arrays check is_locked, and treat those keys as missing. (CaptureCall
-- checks the row itself.) Keys with created are not stored, because only statements that insert
-- them follow. If again is true, an earlier lock did not find these processes. Those that exist now
-- are no longer missing.
--
-- The statements of starts, of results and of the fast path read a table by a lateral subquery with
-- LIMIT 1 for each item. The planner then always searches by the primary key, regardless of its
-- statistics, and the order of the items is kept. (If a subquery reads only columns of an index,
-- the planner may scan that index completely, which looks no more expensive in an empty table.)
-- With a join by "namespace = x", a plan that was made when running was empty read all of running
-- in every flush: 254 µs per result instead of 50. In a plain join of three tables, the third was
-- joined only by process_id, which read all of an index of processes 12 times per flush. Other
-- statements use "namespace = ANY (ARRAY[x])", which cannot be a key of a merge join, but makes the
-- search more expensive. Items are unnested in a SELECT list, because each unnest in FROM would
-- write and read a tuplestore.
-- name: LockProcesses :exec
SELECT set_config('progressor.missing',
                  CASE
                    WHEN @again::bool THEN still_missing(locks.found)
                    ELSE locks.missing::text
                  END,
                  true)
  FROM (
    SELECT array_agg(item.namespace || '/' || item.process_id)
             FILTER (WHERE @again::bool AND process.found) AS found,
           array_agg(item.namespace || '/' || item.process_id)
             FILTER (WHERE process.found IS NULL AND item.created IS NOT TRUE) AS missing
      FROM (
        SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
               unnest(@createds::bool[]) AS created) item
      LEFT JOIN LATERAL (
        SELECT true AS found FROM processes p
         WHERE p.namespace = item.namespace
           AND p.process_id = item.process_id
         LIMIT 1 FOR UPDATE) process ON true) locks
 WHERE @again::bool
    OR locks.missing IS NOT NULL;

-- TryLockProcesses is LockProcesses for flushes: it fails at once (55P03) if another session has
-- locked one of the processes.
-- name: TryLockProcesses :exec
SELECT set_config('progressor.missing',
                  CASE
                    WHEN @again::bool THEN still_missing(locks.found)
                    ELSE locks.missing::text
                  END,
                  true)
  FROM (
    SELECT array_agg(item.namespace || '/' || item.process_id)
             FILTER (WHERE @again::bool AND process.found) AS found,
           array_agg(item.namespace || '/' || item.process_id)
             FILTER (WHERE process.found IS NULL AND item.created IS NOT TRUE) AS missing
      FROM (
        SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
               unnest(@createds::bool[]) AS created) item
      LEFT JOIN LATERAL (
        SELECT true AS found FROM processes p
         WHERE p.namespace = item.namespace
           AND p.process_id = item.process_id
         LIMIT 1 FOR UPDATE NOWAIT) process ON true) locks
 WHERE @again::bool
    OR locks.missing IS NOT NULL;

-- LockUncontendedProcesses locks the processes that no other session has locked, and returns the
-- ords of the others, which may include processes that another session has removed in the meantime.
-- Like LockProcesses, it stores all keys that it has not locked in progressor.missing.
-- (last_event_id is in no index: the planner reads the primary key.)
-- name: LockUncontendedProcesses :one
WITH input AS MATERIALIZED (
  SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
         unnest(@process_ids::text[]) AS process_id, unnest(@createds::bool[]) AS created),
locked AS MATERIALIZED (
  SELECT input.ord FROM input
   CROSS JOIN LATERAL (
     SELECT 1 FROM processes p
      WHERE p.namespace = input.namespace
        AND p.process_id = input.process_id
      LIMIT 1 FOR UPDATE SKIP LOCKED) process),
looked_up AS MATERIALIZED (
  SELECT input.ord, input.namespace || '/' || input.process_id AS key, input.created,
         process.last_event_id IS NOT NULL AS found
    FROM input
    LEFT JOIN LATERAL (
      SELECT p.last_event_id FROM processes p
       WHERE p.namespace = input.namespace
         AND p.process_id = input.process_id
       LIMIT 1) process ON true)
SELECT coalesce(array_agg(item.ord) FILTER (WHERE item.found), '{}')::int[] AS contended,
       set_config('progressor.missing',
                  coalesce((array_agg(item.key) FILTER (WHERE item.created IS NOT TRUE))::text, ''),
                  true)::text AS missing
  FROM looked_up item
 WHERE item.ord <> ALL (ARRAY(SELECT locked.ord FROM locked));

-- SetLockTimeout limits the waits for locks of this transaction.
-- name: SetLockTimeout :exec
SELECT set_config('lock_timeout', @milliseconds::text, true);
