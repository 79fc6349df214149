-- LockProcesses is the first statement of every transaction that moves tasks: it locks all its
-- processes in key order (the arrays are sorted by it). The following statements, with their own
-- snapshots, see everything that earlier holders of the locks have stored. This order prevents lost
-- wake-ups and deadlocks.
--
-- A process that was inserted after this statement began is not locked, but visible to the
-- following statements. A statement that acts on a process therefore checks the lock: xmax is this
-- transaction (FOR UPDATE is never shared, so it is not a multixact), or xmin is, if the flush has
-- inserted or changed the row itself. A process without it is treated as missing.
--
-- The statements of starts, results and fast calls read a table by a lateral subquery with LIMIT 1
-- for each item. The planner then always searches by the primary key, independent of its
-- statistics, and the order of the items is kept. (If it reads only columns of an index, it may
-- read that whole index, which looks no more expensive in an empty table.) With a join by
-- "namespace = x", a plan from when running was empty read all of running in every flush: 254 µs
-- per result instead of 50. In a plain join of three tables, the third was joined by process_id
-- only: the whole index of processes, 12 times per flush. Other statements use "namespace = ANY
-- (ARRAY[x])", which cannot be a key of a merge join, but is a more expensive search. Items are
-- unnested in a SELECT list, because each unnest in FROM would write and read a tuplestore.
-- name: LockProcesses :exec
SELECT count(*) FROM (
  SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id) item
 CROSS JOIN LATERAL (
   SELECT 1 FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1 FOR UPDATE) process;

-- TryLockProcesses is LockProcesses for flushes: it fails at once (55P03) if another session has
-- locked one of the processes.
-- name: TryLockProcesses :exec
SELECT count(*) FROM (
  SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id) item
 CROSS JOIN LATERAL (
   SELECT 1 FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1 FOR UPDATE NOWAIT) process;

-- LockUncontendedProcesses locks the processes that no other session has locked, and returns the
-- ords of the others, which may include processes that another session has removed in the meantime.
-- (last_event_id is in no index: the planner reads the primary key.)
-- name: LockUncontendedProcesses :many
WITH input AS MATERIALIZED (
  SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
         unnest(@process_ids::text[]) AS process_id),
locked AS MATERIALIZED (
  SELECT input.ord FROM input
   CROSS JOIN LATERAL (
     SELECT 1 FROM processes p
      WHERE p.namespace = input.namespace
        AND p.process_id = input.process_id
      LIMIT 1 FOR UPDATE SKIP LOCKED) process)
SELECT input.ord::int AS ord FROM input
 CROSS JOIN LATERAL (
   SELECT p.last_event_id FROM processes p
    WHERE p.namespace = input.namespace
      AND p.process_id = input.process_id
    LIMIT 1) process
 WHERE process.last_event_id >= 0
   AND input.ord <> ALL (ARRAY(SELECT locked.ord FROM locked));

-- SetLockTimeout limits the waits for locks of this transaction.
-- name: SetLockTimeout :exec
SELECT set_config('lock_timeout', @milliseconds::text, true);
