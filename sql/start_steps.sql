-- StartSteps enqueues the jobs of steps together with the result of their run. For other jobs,
-- DeliverStarts does this from a message. StartSteps takes only jobs in the namespace of the run
-- that need nothing but their own rows. It runs after SaveResult and selects its items like
-- SendMessages. A job for which this node has a slot (capture) runs at once, unless the run itself
-- continues. If a process with the ID exists or is being removed, or if the namespace has
-- constraints, a message replaces the start, and its delivery reports the outcome. If another
-- session creates the same process at the same time, there is a unique violation, and the flush is
-- repeated. The outcome is captured, place or message. For a captured job, StartSteps reserves the
-- task ID and the token of the task that reports the end of the job, see AdvanceRuns.
-- name: StartSteps :many
WITH input AS MATERIALIZED (
  SELECT item.*, item.kind_row::jsonb AS job,
         process.status IS NULL AND constraint_set.version IS NULL AS direct,
         item.capture
           AND attempt.task_type IS NULL
           AND process.status IS NULL
           AND constraint_set.version IS NULL AS captured
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token,
             unnest(@target_ids::text[]) AS target_id, unnest(@args::bytea[]) AS args,
             unnest(@contexts::bytea[]) AS context,
             unnest(@metadatas::text[]) AS metadata,
             unnest(@notify_parent_args::bytea[]) AS notify_parent_args,
             unnest(@kind_rows::text[]) AS kind_row, unnest(@captures::bool[]) AS capture,
             unnest(@step_timeouts_us::bigint[]) AS step_timeout_us,
             unnest(@modes::int[]) AS mode) AS item
   CROSS JOIN LATERAL (
     SELECT t.status FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) task
    LEFT JOIN LATERAL (
      SELECT p.status FROM processes p
       WHERE p.namespace = item.namespace
         AND p.process_id = item.target_id
       LIMIT 1) process ON true
    LEFT JOIN LATERAL (
      SELECT v.version FROM constraint_sets v WHERE v.namespace = item.namespace
       LIMIT 1) constraint_set ON true
    LEFT JOIN LATERAL (
      SELECT r.task_type FROM running r
       WHERE item.capture
         AND r.namespace = item.namespace
         AND r.process_id = item.process_id
       LIMIT 1) attempt ON true),
started_steps AS MATERIALIZED (
  SELECT input.*, nextval('task_ids') AS new_task_id,
         CASE WHEN input.captured THEN nextval('fencing_tokens') END AS new_token,
         CASE WHEN input.captured THEN nextval('task_ids') END AS reserved_task_id,
         CASE WHEN input.captured THEN nextval('fencing_tokens') END AS reserved_token,
         input.job->>'name' AS name,
         (input.job->>'timeoutUs')::bigint * interval '1 microsecond' AS timeout,
         coalesce((input.job->>'priority')::int, 0) AS priority
    FROM input ORDER BY input.namespace, input.target_id),
inserted_processes AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time,
                         status_changed_time)
  SELECT namespace, target_id, 'INIT', 'job', NULLIF(metadata, '')::jsonb, statement_timestamp(),
         statement_timestamp()
    FROM started_steps WHERE direct),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT started_steps.namespace, 'RUNNING', count(*)
    FROM started_steps WHERE started_steps.direct
   GROUP BY started_steps.namespace ORDER BY started_steps.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT started_steps.namespace, started_steps.name, 'available', count(*)
    FROM started_steps WHERE started_steps.direct
   GROUP BY started_steps.namespace, started_steps.name
   ORDER BY started_steps.namespace, started_steps.name
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, message)
  SELECT started_steps.namespace,
         (SELECT job_event_xid()),
         started_steps.target_id, change.type, change.from_status, change.to_status, change.attempt,
         CASE
           WHEN change.attempt = 0
             THEN 'by process ' || started_steps.namespace || '/' || started_steps.process_id
         END
    FROM started_steps
   CROSS JOIN LATERAL (
     VALUES ('enqueued', NULL, 'available', 0), ('started', 'available', 'running', 1))
                        AS change(type, from_status, to_status, attempt)
   WHERE started_steps.mode = 2
     AND (started_steps.captured OR started_steps.direct AND change.attempt = 0)
   ORDER BY started_steps.ord, change.attempt),
inserted_jobs AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options)
  SELECT namespace, target_id, name, timeout, job->'tags', job->'options'
    FROM started_steps WHERE direct),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, args, context)
  SELECT namespace, target_id, new_task_id, 'INIT', 1, priority, new_token, @node_id::bigint,
         statement_timestamp() + coalesce(timeout, step_timeout_us * interval '1 microsecond'),
         statement_timestamp(), statement_timestamp(), args, context
    FROM started_steps WHERE captured),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, args, context, job_name, start_deadline)
  SELECT namespace, target_id, new_task_id, 'INIT', 'place', priority, statement_timestamp(), args,
         context, name,
         statement_timestamp() + (job->'options'->>'startDeadline')::interval
    FROM started_steps
   WHERE direct
     AND NOT captured),
inserted_parents AS (
  INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
  SELECT namespace, target_id, namespace, process_id, notify_parent_args
    FROM started_steps WHERE direct),
inserted_messages AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, args, context, metadata, notify_parent_args,
                        job)
  SELECT namespace, target_id, 'start', namespace, process_id, task_id, statement_timestamp(), args,
         context, NULLIF(metadata, '')::jsonb, notify_parent_args, job
    FROM started_steps WHERE NOT direct
   ORDER BY ord)
SELECT started_steps.ord::int AS ord,
       (CASE
          WHEN started_steps.captured THEN 'captured'
          WHEN started_steps.direct THEN 'place'
          ELSE 'message'
        END)::text AS outcome,
       started_steps.new_task_id::bigint AS task_id,
       coalesce(started_steps.new_token, 0)::bigint AS fencing_token,
       coalesce(started_steps.reserved_task_id, 0)::bigint AS reserved_task_id,
       coalesce(started_steps.reserved_token, 0)::bigint AS reserved_token,
       statement_timestamp()::timestamptz AS now, started_steps.priority::int AS priority,
       started_steps.name::text AS kind_name,
       (started_steps.job->'options')::jsonb AS kind_options,
       (started_steps.job->>'timeoutUs')::bigint AS kind_timeout_us,
       (started_steps.job->'tags')::jsonb AS kind_tags
  FROM started_steps;
