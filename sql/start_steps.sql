-- StartSteps enqueues the jobs of steps with the result of their run, like DeliverStarts from a
-- message: plain jobs in the namespace of the run that are started in no other way. It runs after
-- SaveResult and selects its items like SendMessages. A job for which this node has a slot
-- (capture) runs at once, unless the run itself continues. If a process with the id exists or is
-- being removed, or if the namespace has constraints, a message replaces the start, and its
-- delivery reports the outcome. If another session creates the same process at the same time, there
-- is a unique violation, and the flush is repeated. outcome: captured, place, message.
-- name: StartSteps :many
WITH i AS MATERIALIZED (
  SELECT x.*, x.job_text::jsonb AS job, p.status IS NULL AND v.version IS NULL AS direct, x.capture AND r.task_type IS NULL AND p.status IS NULL AND v.version IS NULL AS captured
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
                 unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@job_ids::text[]) AS job_id, unnest(@args::bytea[]) AS args, unnest(@contexts::bytea[]) AS context, unnest(@metadatas::text[]) AS metadata,
                 unnest(@notify_parent_args::bytea[]) AS notify_parent_args, unnest(@jobs::text[]) AS job_text, unnest(@captures::bool[]) AS capture,
                 unnest(@step_timeouts_us::bigint[]) AS step_timeout_us, unnest(@modes::int[]) AS mode) AS x
   CROSS JOIN LATERAL (SELECT t.status FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
                          AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) t
    LEFT JOIN LATERAL (SELECT p.status FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.job_id LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT v.version FROM constraint_sets v WHERE v.namespace = x.namespace LIMIT 1) v ON true
    LEFT JOIN LATERAL (SELECT r.task_type FROM running r WHERE x.capture AND r.namespace = x.namespace AND r.process_id = x.process_id LIMIT 1) r ON true),
s AS MATERIALIZED (
  SELECT i.*, nextval('task_ids') AS new_task_id, CASE WHEN i.captured THEN nextval('fencing_tokens') END AS new_token, i.job->>'name' AS name,
         (i.job->>'timeoutUs')::bigint * interval '1 microsecond' AS timeout, coalesce((i.job->>'priority')::int, 0) AS priority
    FROM i ORDER BY i.namespace, i.job_id),
p AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time, status_changed_time)
  SELECT namespace, job_id, 'INIT', 'job', NULLIF(metadata, '')::jsonb, statement_timestamp(), statement_timestamp() FROM s WHERE direct),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT s.namespace, 'RUNNING', count(*) FROM s WHERE s.direct GROUP BY s.namespace ORDER BY s.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT s.namespace, s.name, 'available', count(*) FROM s WHERE s.direct GROUP BY s.namespace, s.name ORDER BY s.namespace, s.name
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, message)
  SELECT s.namespace, (SELECT job_event_xid()), s.job_id, x.type, x.from_status, x.to_status, x.attempt, CASE WHEN x.attempt = 0 THEN 'by process ' || s.namespace || '/' || s.process_id END
    FROM s CROSS JOIN LATERAL (VALUES ('enqueued', NULL, 'available', 0), ('started', 'available', 'running', 1)) AS x(type, from_status, to_status, attempt)
   WHERE s.mode = 2 AND (s.captured OR s.direct AND x.attempt = 0) ORDER BY s.ord, x.attempt),
jb AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options)
  SELECT namespace, job_id, name, timeout, job->'tags', job->'options' FROM s WHERE direct),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token, node_id, deadline, scheduled_time, running_time, args, context)
  SELECT namespace, job_id, new_task_id, 'INIT', 1, priority, new_token, @node_id::bigint, statement_timestamp() + coalesce(timeout, step_timeout_us * interval '1 microsecond'),
         statement_timestamp(), statement_timestamp(), args, context FROM s WHERE captured),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, args, context, job_name)
  SELECT namespace, job_id, new_task_id, 'INIT', 'place', priority, statement_timestamp(), args, context, name FROM s WHERE direct AND NOT captured),
pa AS (
  INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
  SELECT namespace, job_id, namespace, process_id, notify_parent_args FROM s WHERE direct),
m AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, context, metadata, notify_parent_args, job)
  SELECT namespace, job_id, 'start', namespace, process_id, task_id, statement_timestamp(), args, context, NULLIF(metadata, '')::jsonb, notify_parent_args, job FROM s WHERE NOT direct ORDER BY ord)
SELECT s.ord::int AS ord, (CASE WHEN s.captured THEN 'captured' WHEN s.direct THEN 'place' ELSE 'message' END)::text AS outcome, s.new_task_id::bigint AS task_id,
       coalesce(s.new_token, 0)::bigint AS fencing_token, statement_timestamp()::timestamptz AS now, s.priority::int AS priority,
       (CASE WHEN s.captured THEN jsonb_build_object('name', s.name, 'takeovers', 0, 'tags', s.job->'tags', 'options', s.job->'options', 'timeout_us', (s.job->>'timeoutUs')::bigint) END)::jsonb AS job
  FROM s;
