-- InsertAudits stores the commands of a flush that have changed their process. It runs after the
-- statements that execute them, in the same transaction. A command has changed its process if a
-- time in the row of the process shows a matching change since the transaction began. (If two nodes
-- execute the same command within milliseconds, both commands are stored.)
-- name: InsertAudits :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
SELECT item.actor, item.source, item.method, item.namespace, item.process_id,
       NULLIF(item.details, '')::jsonb
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@methods::text[]), unnest(@actors::text[]), unnest(@sources::text[]),
                  unnest(@details::text[]))
       AS item(namespace, process_id, method, actor, source, details)
 CROSS JOIN LATERAL (
   SELECT p.status, p.previous_status, p.status_changed_time, p.created_time, p.removed_time,
          p.cancel_requested_time, p.history_restarted_time
     FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1) process
 WHERE CASE item.method
         WHEN 'RemoveProcess' THEN process.removed_time >= now()
         WHEN 'RemoveRun' THEN process.removed_time >= now()
         WHEN 'RemoveJob' THEN process.removed_time >= now()
         WHEN 'CancelProcess' THEN process.cancel_requested_time >= now()
         WHEN 'SuspendProcess'
           THEN process.status_changed_time >= now() AND process.status = 'SUSPENDED'
         WHEN 'ResumeProcess'
           THEN process.status_changed_time >= now() AND process.previous_status = 'SUSPENDED'
         WHEN 'RestartHistory' THEN process.history_restarted_time >= now()
         WHEN 'StartBulk' THEN process.created_time >= now()
         ELSE process.status_changed_time >= now() AND process.previous_status = 'ERROR'
       END;

-- InsertAudit stores a command that does not use a lane, in the transaction of the command.
-- name: InsertAudit :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
VALUES (@actor, @source, @method, @namespace, @subject, NULLIF(@details::text, '')::jsonb);

-- InsertTaskAudits stores the commands that a task executed, in the transaction of its result. It
-- stores a command only if this transaction has written the end of the task.
-- name: InsertTaskAudits :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
SELECT item.actor, item.source, item.method, item.namespace, item.process_id,
       NULLIF(item.details, '')::jsonb
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@methods::text[]), unnest(@actors::text[]), unnest(@sources::text[]),
                  unnest(@details::text[]))
       AS item(namespace, process_id, task_id, fencing_token, method, actor, source, details)
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t
    WHERE t.namespace = item.namespace
      AND t.process_id = item.process_id
      AND t.task_id = item.task_id
      AND t.fencing_token = item.fencing_token
      AND is_saved(item.fencing_token)
   UNION ALL
   SELECT 1 FROM answers a
    WHERE a.namespace = item.namespace
      AND a.process_id = item.process_id
      AND a.task_id = item.task_id
      AND a.fencing_token = item.fencing_token
      AND is_saved(item.fencing_token)
    LIMIT 1) ended;

-- SealAudit adds committed rows to the hash chain, lim at a time. The function runs with the rights
-- of the owner of the table, so that the role of the engine needs no UPDATE privilege.
-- name: SealAudit :one
SELECT seal_audit(@lim::int)::bigint AS sealed;

-- ForgetAudit deletes the oldest commands after their retention, lim at a time. The function
-- forget_audit, like seal_audit, runs with the rights of the owner of the table.
-- name: ForgetAudit :one
SELECT forget_audit(@lim::int)::bigint AS deleted;

-- ReadAuditChain returns the key, the start and the end of the hash chain.
-- name: ReadAuditChain :one
SELECT c.hash_key, c.last_position, c.last_hash, c.removed_position, c.removed_hash
  FROM audit_chain c;

-- ReadSealedAudit returns the rows of the hash chain after a given one, in order.
-- name: ReadSealedAudit :many
SELECT a.audit_id, a."time", a.actor, a.source, a.method, a.namespace, a.subject,
       coalesce(a.details::text, '')::text AS details,
       a.chain_position::bigint AS chain_position, a.subject_hash, a.details_hash, a.chain_hash,
       (a.erased_time IS NOT NULL)::bool AS erased
  FROM audit a
 WHERE (a.chain_position, a.audit_id) > (@after_position::bigint, @after_id::bigint)
 ORDER BY a.chain_position, a.audit_id LIMIT @lim::int;

-- CountUnsealedAudit counts the rows that are not yet in the hash chain, up to lim, and returns the
-- age of the oldest of these rows in seconds.
-- name: CountUnsealedAudit :one
SELECT count(*) AS rows,
       coalesce(extract(epoch FROM statement_timestamp() - min(oldest."time")), 0)::float8 AS age
  FROM (
    SELECT a."time" FROM audit a
     WHERE a.chain_position IS NULL
     ORDER BY a.audit_id LIMIT @lim::int) oldest;
