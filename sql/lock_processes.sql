-- LockProcesses is the first statement of every transaction that moves tasks: all its processes, in key order. What follows
-- sees, in snapshots of its own, everything that earlier holders of the locks have stored. That order is what makes lost
-- wake-ups and deadlocks impossible.
-- name: LockProcesses :one
SELECT count(*) FROM (
  SELECT 1 FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS k(namespace, process_id)
    JOIN processes p ON p.namespace = k.namespace AND p.process_id = k.process_id
   ORDER BY p.namespace, p.process_id FOR NO KEY UPDATE OF p) locked;
