-- CancelMembers sends a cancel message to members, and records this in their places.
-- name: CancelMembers :exec
WITH updated_job_places AS (
  UPDATE job_places l
     SET asked = true
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
         AS item(namespace, process_id)
   WHERE l.namespace = ANY (ARRAY[item.namespace])
     AND l.process_id = item.process_id)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                      sender_task_id, created_time, reason)
SELECT item.namespace, item.process_id, 'cancel', item.namespace, item.job_id, 0,
       statement_timestamp(), NULLIF(item.reason, '')
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@job_ids::text[]), unnest(@reasons::text[]))
       AS item(namespace, process_id, job_id, reason);

-- ReassignMembers sets which workers may make the next attempt of members: the worker with the
-- place or, if it gives up the place, any worker that the group allows. It runs after SaveResult
-- and selects its items like WriteJobs. The engine checks the group next, because it is possible
-- that no other member runs. Rows are locked in the order of CheckGroups: tasks of groups, groups,
-- places, each by key. || '' prevents the planner from reading all rows of a table in index order.
-- The conditions on the counts of earlier CTEs enforce this order. The task of a group changes in
-- any case, because CheckGroups may be about to make it wait.
-- name: ReassignMembers :exec
WITH input AS MATERIALIZED (
  SELECT place.namespace, place.process_id, place.job_id, place.worker_id, waiting.task_id,
         item.leaves AND NOT place.pinned AS leaves
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@leaves::bool[]))
         AS item(namespace, process_id, task_id, fencing_token, leaves)
   CROSS JOIN LATERAL (
     SELECT s.task_id FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id
        AND s.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) waiting
   CROSS JOIN LATERAL (
     SELECT l.* FROM job_places l
      WHERE l.namespace = item.namespace
        AND l.process_id = item.process_id
      LIMIT 1) place),
woken_groups AS (
  UPDATE schedule s
     SET waits_for = CASE WHEN s.waits_for = 'members' THEN 'place' ELSE s.waits_for END
    FROM (
      SELECT k.namespace, k.process_id, k.task_id
        FROM (SELECT DISTINCT input.namespace, input.job_id FROM input) member_group
        JOIN schedule k
          ON k.namespace = ANY (ARRAY[member_group.namespace])
         AND k.process_id = member_group.job_id
       WHERE k.taker = '~'
       ORDER BY k.namespace || '', k.process_id || '' FOR NO KEY UPDATE OF k) locked
   WHERE s.namespace = ANY (ARRAY[locked.namespace])
     AND s.process_id = locked.process_id
     AND s.task_id = locked.task_id
  RETURNING s.task_id),
updated_job_groups AS (
  UPDATE job_groups g
     SET takers = ARRAY(
       SELECT t FROM unnest(g.takers) AS t
        WHERE t <> ALL (ARRAY(
          SELECT input.worker_id FROM input
           WHERE input.leaves
             AND input.namespace = g.namespace
             AND input.job_id = g.process_id
             AND input.worker_id IS NOT NULL)))
    FROM (
      SELECT k.namespace, k.process_id
        FROM (
          SELECT DISTINCT input.namespace, input.job_id FROM input WHERE input.leaves) left_group
        JOIN job_groups k
          ON k.namespace = ANY (ARRAY[left_group.namespace])
         AND k.process_id = left_group.job_id
       WHERE (SELECT count(*) FROM woken_groups) >= 0
       ORDER BY k.namespace || '', k.process_id || '' FOR UPDATE OF k) job_group
   WHERE g.namespace = ANY (ARRAY[job_group.namespace])
     AND g.process_id = job_group.process_id
  RETURNING g.process_id),
updated_job_places AS (
  UPDATE job_places l
     SET worker_id = NULL
    FROM input
   WHERE input.leaves
     AND (SELECT count(*) FROM updated_job_groups) >= 0
     AND l.namespace = ANY (ARRAY[input.namespace])
     AND l.process_id = input.process_id)
UPDATE schedule s
   SET taker = CASE WHEN input.leaves THEN '' ELSE '=' || input.worker_id END
  FROM input
 WHERE s.namespace = ANY (ARRAY[input.namespace])
   AND s.process_id = input.process_id
   AND s.task_id = input.task_id;
