-- EndSteps notifies runs of the ends of the jobs of their steps. Unlike NotifyParents, it needs no
-- message, because the flush that ends the jobs has locked the run. It adds a NOTIFY task with all
-- ends to the run. This node runs the task at once (captured) if the run is idle and the node has a
-- slot (capture). With a message instead, the delivery of the message and the claim of the task
-- would be more than half of the cost of a step.
--
-- It runs after SaveResult and ignores an item if this transaction has not written the end of its
-- task. Each end is delivered once, because EndSteps deletes the row of parents.
--
-- While a run is busy, ends are added to its last waiting task if that task contains ends. The run
-- then handles many ends with one result. A run is notified by a message if it is not locked (it is
-- not the run_id of an item, or was missing), not RUNNING, in another namespace, or has a cancel
-- request or messages. ord is the ord of the first job of the run. The outcome is captured, place
-- (the task waits to be claimed), process (it waits behind others) or message.
-- name: EndSteps :many
WITH ended_steps AS MATERIALIZED (
  SELECT item.*, parent.parent_namespace, parent.parent_process_id,
         translate(encode(task.response, 'base64'), E'\n', '') AS response,
         task.worker_id, task.running_time, parent.args
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id,
             unnest(@captures::bool[]) AS capture,
             unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS item
   CROSS JOIN LATERAL (
     SELECT t.response, t.worker_id, t.running_time FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) task
   CROSS JOIN LATERAL (
     SELECT r.parent_namespace, r.parent_process_id, r.args
       FROM parents r
      WHERE r.namespace = item.namespace
        AND r.process_id = item.process_id
      LIMIT 1) parent),
deleted_parents AS (
  DELETE FROM parents r
   USING (SELECT ended_steps.namespace, ended_steps.process_id FROM ended_steps OFFSET 0) ended
   WHERE r.namespace = ANY (ARRAY[ended.namespace])
     AND r.process_id = ended.process_id),
runs AS MATERIALIZED (
  SELECT ended_steps.parent_namespace, ended_steps.parent_process_id, min(ended_steps.ord) AS ord,
         bool_or(ended_steps.run_id = ended_steps.parent_process_id) AS locked,
         bool_and(ended_steps.capture) AS capture,
         max(ended_steps.step_timeout_us) AS step_timeout_us,
         jsonb_agg(
           jsonb_build_object('namespace', ended_steps.namespace,
                              'processId', ended_steps.process_id,
                              'status', 'PROCESS_STATUS_COMPLETED',
                              'response', ended_steps.response,
                              'workerId', ended_steps.worker_id,
                              'runningTime', ended_steps.running_time,
                              'args', translate(encode(ended_steps.args, 'base64'), E'\n', ''))
           ORDER BY ended_steps.ord) AS ends
    FROM ended_steps WHERE ended_steps.parent_namespace = ended_steps.namespace
   GROUP BY ended_steps.parent_namespace, ended_steps.parent_process_id),
notified AS MATERIALIZED (
  SELECT runs.*, process.*,
         attempt.found IS NULL AND waiting.task_id IS NULL AS free,
         attempt.found IS NULL AND waiting.task_id IS NULL AND runs.capture AS captured,
         coalesce(waiting.adds, false) AS adds, waiting.task_id AS wait_task_id,
         nextval('task_ids') AS task_id,
         CASE
           WHEN attempt.found IS NULL AND waiting.task_id IS NULL AND runs.capture
             THEN nextval('fencing_tokens')
         END AS fencing_token
    FROM runs
   CROSS JOIN LATERAL (
     SELECT p.status, p.previous_status, p.status_changed_time, p.detail, p.corrupted_by,
            p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
       FROM processes p
      WHERE p.namespace = runs.parent_namespace
        AND p.process_id = runs.parent_process_id
        AND p.kind = 'flow'
        AND p.status = 'RUNNING'
        AND p.cancel_deadline IS NULL
        AND p.removed_time IS NULL
        AND runs.locked
        AND is_locked(p.namespace, p.process_id)
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT r.task_type IS NOT NULL AS found FROM running r
       WHERE r.namespace = runs.parent_namespace
         AND r.process_id = runs.parent_process_id
       LIMIT 1) attempt ON true
    LEFT JOIN LATERAL (
      SELECT s.task_id,
             s.attempt = 0 AND s.child ? 'ends' AND pg_column_size(s.child) < 100000 AS adds
        FROM schedule s
       WHERE s.namespace = runs.parent_namespace
         AND s.process_id = runs.parent_process_id
         AND s.waits_for::text IN ('process', 'place')
       ORDER BY s.namespace DESC, s.process_id DESC, s.task_id DESC LIMIT 1) waiting ON true
    LEFT JOIN LATERAL (
      SELECT m.kind IS NOT NULL AS found FROM messages m
       WHERE m.namespace = runs.parent_namespace
         AND m.process_id = runs.parent_process_id
         AND NOT m.held
       LIMIT 1) message ON true
   WHERE message.found IS NULL),
inserted_running AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id,
                       deadline, scheduled_time, running_time, child)
  SELECT parent_namespace, parent_process_id, task_id, 'NOTIFY', 1, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         statement_timestamp(), statement_timestamp(), jsonb_build_object('ends', ends)
    FROM notified WHERE captured),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, child)
  SELECT parent_namespace, parent_process_id, task_id, 'NOTIFY',
         CASE WHEN free THEN 'place' ELSE 'process' END::waits_for,
         statement_timestamp(), jsonb_build_object('ends', ends)
    FROM notified
   WHERE NOT captured
     AND NOT adds),
extended_tasks AS (
  UPDATE schedule s
     SET child = jsonb_build_object('ends', (s.child->'ends') || notified.ends)
    FROM notified
   WHERE notified.adds
     AND s.namespace = ANY (ARRAY[notified.parent_namespace])
     AND s.process_id = notified.parent_process_id
     AND s.task_id = notified.wait_task_id),
inserted_messages AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, args, child)
  SELECT ended_steps.parent_namespace, ended_steps.parent_process_id, 'child_end',
         ended_steps.namespace, ended_steps.process_id, ended_steps.task_id, statement_timestamp(),
         ended_steps.args,
         jsonb_strip_nulls(jsonb_build_object('namespace', ended_steps.namespace,
                                              'processId', ended_steps.process_id,
                                              'status', 'PROCESS_STATUS_COMPLETED',
                                              'response', ended_steps.response))
    FROM ended_steps
   WHERE ((ended_steps.parent_namespace, ended_steps.parent_process_id) IN (
     SELECT notified.parent_namespace, notified.parent_process_id FROM notified)) IS NOT TRUE
      OR ended_steps.parent_namespace <> ended_steps.namespace
   ORDER BY ended_steps.ord
  RETURNING namespace, process_id)
SELECT notified.ord::int AS ord, notified.parent_namespace AS namespace,
       notified.parent_process_id AS process_id,
       (CASE
          WHEN notified.captured THEN 'captured'
          WHEN notified.free THEN 'place'
          ELSE 'process'
        END)::text AS outcome,
       notified.task_id::bigint AS task_id,
       coalesce(notified.fencing_token, 0)::bigint AS fencing_token,
       statement_timestamp()::timestamptz AS now, notified.status::process_status AS status,
       coalesce(notified.previous_status::text, '')::text AS previous_status,
       notified.status_changed_time::timestamptz AS status_changed_time,
       coalesce(notified.detail, '')::text AS detail,
       coalesce(notified.corrupted_by, 0)::bigint AS corrupted_by,
       (CASE WHEN notified.captured THEN notified.aux_state END)::bytea AS aux_state,
       (CASE WHEN notified.captured THEN notified.metadata END)::jsonb AS metadata,
       notified.last_event_id::bigint AS last_event_id,
       notified.first_event_id::bigint AS first_event_id, notified.kind::text AS kind,
       notified.created_time::timestamptz AS created_time,
       (CASE
          WHEN notified.captured THEN jsonb_build_object('ends', notified.ends)
        END)::jsonb AS child
  FROM notified
UNION ALL
SELECT 0, inserted_messages.namespace, inserted_messages.process_id, 'message', 0, 0,
       statement_timestamp(), 'RUNNING', '', statement_timestamp(), '', 0, NULL, NULL, 0, 1, '',
       statement_timestamp(), NULL
  FROM inserted_messages;
