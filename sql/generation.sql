-- ConfirmGeneration compares the server of this session and the highest numbers that the engine has
-- seen with the stored values. After a failover or a restore it moves the sequences and begins a
-- new generation. It returns the current generation.
-- name: ConfirmGeneration :one
SELECT confirm_generation(@seen_task_id::bigint, @seen_fencing_token::bigint)::uuid AS generation;

-- ConfirmCommits writes a row, so that its commit waits for the synchronous standby. The standby
-- then has all earlier commits.
-- name: ConfirmCommits :execrows
UPDATE database_generation
   SET confirmed_time = statement_timestamp();

-- MissingTasks returns the ordinals of tasks that are in no table.
-- name: MissingTasks :many
SELECT item.ord::int AS ord
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@task_ids::bigint[]))
       AS item(ord, namespace, process_id, task_id)
 WHERE NOT EXISTS (
   SELECT 1 FROM tasks t
    WHERE t.namespace = item.namespace
      AND t.process_id = item.process_id
      AND t.task_id = item.task_id)
   AND NOT EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = item.namespace
        AND r.process_id = item.process_id
        AND r.task_id = item.task_id)
   AND NOT EXISTS (
     SELECT 1 FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id)
   AND NOT EXISTS (
     SELECT 1 FROM answers a
      WHERE a.namespace = item.namespace
        AND a.process_id = item.process_id
        AND a.task_id = item.task_id);

-- CancelledAttempts returns at most 1,000 attempts of this node that have no lease and whose job
-- has a cancel request. Usually few jobs have such a request, and an index finds them.
-- name: CancelledAttempts :many
SELECT r.namespace, r.process_id, r.fencing_token
  FROM processes p
  JOIN running r
    ON r.namespace = ANY (ARRAY[p.namespace])
   AND r.process_id = p.process_id
 WHERE p.cancel_deadline IS NOT NULL
   AND p.kind = 'job'
   AND p.removed_time IS NULL
   AND r.node_id = @node_id::bigint
   AND NOT EXISTS (
     SELECT 1 FROM leases l
      WHERE l.namespace = r.namespace
        AND l.process_id = r.process_id
        AND l.fencing_token = r.fencing_token)
 LIMIT 1000;

-- MissingAttempts returns the ordinals of attempts without a running row.
-- name: MissingAttempts :many
SELECT item.ord::int AS ord
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]))
       AS item(ord, namespace, process_id, fencing_token)
 WHERE NOT EXISTS (
   SELECT 1 FROM running r
    WHERE r.namespace = item.namespace
      AND r.process_id = item.process_id
      AND r.fencing_token = item.fencing_token);
