-- WriteJobEvents writes the events that results take along. It follows SaveResult and RemoveProcesses and finds its items by the row that this very
-- transaction has written of their task, as WriteJobs does: a fenced item writes nothing.
-- name: WriteJobEvents :exec
INSERT INTO job_events (namespace, job_id, step_id, index, type, from_status, to_status, attempt, worker_id, actor, message, metadata)
SELECT x.namespace, coalesce(NULLIF(x.job_id, ''), x.process_id), NULLIF(x.step_id, ''), NULLIF(x.index, -1), x.type, NULLIF(x.from_status, ''), NULLIF(x.to_status, ''),
       x.attempt, NULLIF(x.worker_id, ''), NULLIF(x.actor, ''), NULLIF(x.message, ''), NULLIF(x.metadata, '')::jsonb
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                  unnest(@job_ids::text[]), unnest(@step_ids::text[]), unnest(@indexes::int[]), unnest(@types::text[]), unnest(@from_statuses::text[]),
                  unnest(@to_statuses::text[]), unnest(@attempts::int[]), unnest(@worker_ids::text[]), unnest(@actors::text[]), unnest(@messages::text[]),
                  unnest(@metadatas::text[])) WITH ORDINALITY
       AS x(namespace, process_id, task_id, fencing_token, job_id, step_id, index, type, from_status, to_status, attempt, worker_id, actor, message, metadata, n)
 CROSS JOIN LATERAL (
   SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
      AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
   UNION ALL
   SELECT 1 FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
      AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid
   UNION ALL
   SELECT 1 FROM answers a WHERE a.namespace = x.namespace AND a.process_id = x.process_id AND a.task_id = x.task_id
      AND a.fencing_token = x.fencing_token AND a.xmin = pg_current_xact_id()::xid
   LIMIT 1) e
 ORDER BY x.n;
