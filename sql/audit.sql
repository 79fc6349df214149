-- InsertAudits stores the commands of a flush that have changed their process. It runs after the
-- statements that execute them, in the same transaction. The row shows whether the command had an
-- effect: its status was changed, or it was removed, since the transaction began. (A command of the
-- same kind that another node executed in the same milliseconds looks the same; then both are
-- stored.)
-- name: InsertAudits :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
SELECT k.actor, k.source, k.method, k.namespace, k.process_id, NULLIF(k.details, '')::jsonb
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@methods::text[]), unnest(@actors::text[]),
                  unnest(@sources::text[]), unnest(@details::text[]))
       AS k(namespace, process_id, method, actor, source, details)
 CROSS JOIN LATERAL (
   SELECT p.status, p.previous_status, p.status_changed_time, p.created_time, p.removed_time, p.cancel_requested_time,
          p.history_restarted_time FROM processes p
    WHERE p.namespace = k.namespace AND p.process_id = k.process_id LIMIT 1) p
 WHERE CASE k.method WHEN 'RemoveProcess' THEN p.removed_time >= now()
                     WHEN 'RemoveRun' THEN p.removed_time >= now()
                     WHEN 'CancelProcess' THEN p.cancel_requested_time >= now()
                     WHEN 'SuspendProcess' THEN p.status_changed_time >= now() AND p.status = 'SUSPENDED'
                     WHEN 'ResumeProcess' THEN p.status_changed_time >= now() AND p.previous_status = 'SUSPENDED'
                     WHEN 'RestartHistory' THEN p.history_restarted_time >= now()
                     WHEN 'StartBulk' THEN p.created_time >= now()
                     ELSE p.status_changed_time >= now() AND p.previous_status = 'ERROR' END;

-- InsertAudit stores a command that does not use a lane, in its transaction.
-- name: InsertAudit :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
VALUES (@actor, @source, @method, @namespace, @subject, NULLIF(@details::text, '')::jsonb);

-- InsertNotes stores commands that a task has executed, with its result. It stores a command only
-- if this transaction has written the end of the task.
-- name: InsertNotes :exec
INSERT INTO audit (actor, source, method, namespace, subject, details)
SELECT x.actor, x.source, x.method, x.namespace, x.process_id, NULLIF(x.details, '')::jsonb
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@methods::text[]), unnest(@actors::text[]), unnest(@sources::text[]), unnest(@details::text[]))
       AS x(namespace, process_id, task_id, fencing_token, method, actor, source, details)
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
      AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
   UNION ALL
   SELECT 1 FROM answers a WHERE a.namespace = x.namespace AND a.process_id = x.process_id AND a.task_id = x.task_id
      AND a.fencing_token = x.fencing_token AND a.xmin = pg_current_xact_id()::xid
   LIMIT 1) e;

-- ForgetAudit deletes the oldest commands after their retention, lim at a time.
-- name: ForgetAudit :exec
DELETE FROM audit a USING (SELECT x.audit_id, x.time FROM audit x ORDER BY x.audit_id LIMIT @lim::int) d
 WHERE a.audit_id = d.audit_id AND d.time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond';
