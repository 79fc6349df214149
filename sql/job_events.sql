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

-- EndJobs tells and counts how attempts of jobs have ended, but for those that SaveCompleted has ended. It follows SaveResult at once, before anything
-- else moves the jobs, and finds its items as WriteJobs does. Of one that is to be made again although its cancel was requested it tells the
-- attempt alone: CancelRetried tells the end. name '': it is read from the row.
-- name: EndJobs :exec
WITH i AS MATERIALIZED (
  SELECT x.namespace, x.process_id, x.attempt, x.worker_id, x.type, x.message, x.mode, p.cancelling,
         coalesce(NULLIF(x.name, ''), (SELECT j.name FROM jobs j WHERE j.namespace = x.namespace AND j.process_id = x.process_id)) AS name,
         coalesce(e.state, CASE p.status WHEN 'COMPLETED' THEN 'succeeded' WHEN 'CANCELLED' THEN 'cancelled' ELSE 'failed' END) AS state, e.state IS NULL AS ended
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]), unnest(@names::text[]),
                    unnest(@attempts::int[]), unnest(@worker_ids::text[]), unnest(@types::text[]), unnest(@messages::text[]), unnest(@modes::int[]))
         AS x(namespace, process_id, task_id, fencing_token, name, attempt, worker_id, type, message, mode)
   CROSS JOIN LATERAL (
     SELECT NULL::text AS state FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT CASE WHEN s.waits_for <> 'time' THEN 'available' WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END
       FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
        AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid
     LIMIT 1) e
   CROSS JOIN LATERAL (SELECT p.status, p.cancel_requested_time IS NOT NULL AS cancelling FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id LIMIT 1) p),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, worker_id, message)
  SELECT i.namespace, i.process_id, i.type, CASE WHEN NOT i.cancelling THEN 'running' WHEN i.ended THEN 'cancel_requested' END,
         CASE WHEN NOT i.cancelling OR i.ended THEN i.state END, i.attempt, NULLIF(i.worker_id, ''), NULLIF(i.message, '')
    FROM i WHERE i.mode = 2 OR i.mode = 1 AND i.ended)
INSERT INTO job_counts (namespace, name, state, n)
SELECT i.namespace, i.name, x.state, sum(x.n) FROM i CROSS JOIN LATERAL (VALUES ('available', -1), (i.state, 1)) AS x(state, n)
 GROUP BY i.namespace, i.name, x.state HAVING sum(x.n) <> 0 ORDER BY i.namespace, i.name, x.state
ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n;
