-- LockProcesses is the first statement of every transaction that moves tasks: all its processes, in key
-- order (the arrays are sorted by it). What follows
-- sees, in snapshots of its own, everything that earlier holders of the locks have stored. That order is what makes lost
-- wake-ups and deadlocks impossible.
--
-- A process that was inserted after this statement began is not locked, but what follows would see it. So whatever reads a process
-- on which it acts asks for the lock: xmax is this transaction (FOR UPDATE lets nobody share it, so it is no multixact), or xmin is,
-- where the flush has inserted or changed the row itself. A process without it is not there yet.
--
-- Here and in all statements of the hot path a table is joined by "namespace = ANY (ARRAY[x])", never by "namespace = x". The two
-- mean the same, but the first is no key of a merge join, so the planner has no use for a full index scan and reaches the table by
-- its primary key whatever its statistics say. With "= x" a plan made while running was empty read all of running in every flush:
-- 254 us a result instead of 50. The third table of a join is a lateral read with LIMIT 1: joined plainly, the planner may join it
-- by process_id alone, from the second table, and leave its namespace for later. With that, a flush of 12 results read the whole
-- index of processes 12 times, and calls to 10,000 processes took half as much time again.
-- name: LockProcesses :exec
SELECT 1 FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) WITH ORDINALITY AS k(namespace, process_id, n)
  JOIN processes p ON p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id
 ORDER BY k.n FOR UPDATE OF p;
