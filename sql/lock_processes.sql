-- LockProcesses is the first statement of every transaction that moves tasks: all its processes, in key
-- order (the arrays are sorted by it). What follows
-- sees, in snapshots of its own, everything that earlier holders of the locks have stored. That order is what makes lost
-- wake-ups and deadlocks impossible.
--
-- A process that was inserted after this statement began is not locked, but what follows would see it. So whatever reads a process
-- on which it acts asks for the lock: xmax is this transaction (FOR UPDATE lets nobody share it, so it is no multixact), or xmin is,
-- where the flush has inserted or changed the row itself. A process without it is not there yet.
--
-- In the statements of starts, results and quick calls a table is reached by a lateral read with LIMIT 1, one for each item: the planner
-- makes a search by the primary key of it, whatever its statistics say, and it keeps the order of the items. (But where it reads
-- nothing that is not in an index, it may read all of that index: it does not look dearer in a table that is empty.)
-- (Joined by "namespace = x", a plan made while running was empty read all of running in every flush: 254 us a result instead of 50.
-- Of three tables that were joined plainly the third was joined by process_id alone: the whole index of processes, 12 times a flush.)
-- Elsewhere it says "namespace = ANY (ARRAY[x])", which is no key of a merge join; that search is dearer.
-- Items come by unnest in a SELECT list: each unnest in FROM would write a tuplestore, and read it back.
-- name: LockProcesses :exec
SELECT count(*) FROM (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id) k
 CROSS JOIN LATERAL (SELECT 1 FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id LIMIT 1 FOR UPDATE) p;

-- TryLockProcesses is LockProcesses for flushes: it fails at once (55P03) if another session has locked one of the processes.
-- name: TryLockProcesses :exec
SELECT count(*) FROM (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id) k
 CROSS JOIN LATERAL (SELECT 1 FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id LIMIT 1 FOR UPDATE NOWAIT) p;

-- LockFreeProcesses locks the processes that no other session has locked and returns the ords of the others. A process that
-- another session has removed meanwhile may be among these. (last_event_id is in no index: the planner reads the primary key.)
-- name: LockFreeProcesses :many
WITH input AS MATERIALIZED (
  SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id),
locked AS MATERIALIZED (
  SELECT input.ord FROM input
   CROSS JOIN LATERAL (SELECT 1 FROM processes p
                        WHERE p.namespace = input.namespace
                          AND p.process_id = input.process_id
                        LIMIT 1 FOR UPDATE SKIP LOCKED) process)
SELECT input.ord::int AS ord FROM input
 CROSS JOIN LATERAL (SELECT p.last_event_id FROM processes p
                      WHERE p.namespace = input.namespace
                        AND p.process_id = input.process_id LIMIT 1) process
 WHERE process.last_event_id >= 0
   AND input.ord <> ALL (ARRAY(SELECT locked.ord FROM locked));

-- SetLockTimeout bounds the waits for locks of this transaction.
-- name: SetLockTimeout :exec
SELECT set_config('lock_timeout', @milliseconds::text, true);
