-- SaveCompleted replaces SaveResult for a process that ends with its only task, like most jobs and
-- runs. It omits a process that has waiting tasks, or a parent that must be notified. If awaited is
-- true, EndSteps notifies the parent later, so the process is not omitted. See SaveFinished for
-- what else SaveCompleted omits. For a job (job_name is set), it stores the counts and events that
-- EndJobs stores for other results. If frees is true, it also frees the keys of the job.
-- name: SaveCompleted :many
WITH results AS MATERIALIZED (
  SELECT item.*, attempt.task_type, attempt.attempt, attempt.priority, attempt.scheduled_time,
         attempt.running_time, attempt.retry_interval, attempt.timer_name, attempt.idempotency_key,
         attempt.args, attempt.context, attempt.ctid AS running_ctid, process.ctid AS process_ctid
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token,
             unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
             unnest(@event_counts::int[]) AS event_count, unnest(@responses::bytea[]) AS response,
             unnest(@names::text[]) AS job_name, unnest(@worker_ids::text[]) AS worker_id,
             unnest(@modes::int[]) AS mode, unnest(@awaiteds::bool[]) AS awaited,
             unnest(@frees::bool[]) AS frees) AS item
   CROSS JOIN LATERAL (
     SELECT r.ctid, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time,
            r.retry_interval, r.timer_name, r.idempotency_key, r.args, r.context
       FROM running r
      WHERE r.namespace = item.namespace
        AND r.process_id = item.process_id
        AND r.task_id = item.task_id
        AND r.fencing_token = item.fencing_token
      LIMIT 1) attempt
   CROSS JOIN LATERAL (
     SELECT p.ctid FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
        AND p.status IN ('INIT', 'RUNNING')
        AND p.cancel_deadline IS NULL
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT true AS found FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND s.task_type IS NOT NULL
       LIMIT 1) waiting ON true
    LEFT JOIN LATERAL (
      SELECT o.args IS NOT NULL AS found FROM parents o
       WHERE NOT item.awaited
         AND o.namespace = item.namespace
         AND o.process_id = item.process_id
       LIMIT 1) parent ON true
   WHERE waiting.found IS NULL
     AND parent.found IS NULL),
updated_processes AS (
  UPDATE processes p
     SET aux_state = coalesce(result.aux_state, p.aux_state),
         metadata = coalesce(NULLIF(result.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + result.event_count, status = 'COMPLETED',
         previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = 'COMPLETED', attention_time = statement_timestamp(), detail = NULL,
         corrupted_by = NULL
    FROM (
      SELECT results.process_ctid, results.aux_state, results.metadata, results.event_count
        FROM results OFFSET 0) result
   WHERE p.ctid = result.process_ctid),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT finished.namespace, change.status, finished.n * change.sign
    FROM (SELECT results.namespace, count(*) AS n FROM results GROUP BY results.namespace) finished
   CROSS JOIN (VALUES ('RUNNING'::process_status, -1), ('COMPLETED', 1)) AS change(status, sign)
   ORDER BY finished.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT finished.namespace, finished.job_name, change.state, finished.n * change.sign
    FROM (
      SELECT results.namespace, results.job_name, count(*) AS n
        FROM results
       WHERE results.job_name <> ''
         AND NOT starts_with(results.process_id, '~job/~/')
       GROUP BY results.namespace, results.job_name) finished
   CROSS JOIN (VALUES ('available', -1), ('succeeded', 1)) AS change(state, sign)
   ORDER BY finished.namespace, finished.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id)
  SELECT results.namespace,
         (SELECT job_event_xid()),
         results.process_id, 'succeeded', 'running', 'succeeded', results.attempt,
         NULLIF(results.worker_id, '')
    FROM results
   WHERE results.job_name <> ''
     AND results.mode > 0),
inserted_events AS (
  INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", metadata,
                      payload)
  SELECT event.namespace, event.process_id, event.event_id, event.task_id, event.attempt,
         coalesce(NULLIF(event.ts, '0001-01-01Z'), statement_timestamp()),
         NULLIF(event.metadata, '')::jsonb, event.payload
    FROM (
      SELECT unnest(@event_ords::int[]) AS ord, unnest(@event_namespaces::text[]) AS namespace,
             unnest(@event_process_ids::text[]) AS process_id,
             unnest(@event_ids::bigint[]) AS event_id, unnest(@event_task_ids::bigint[]) AS task_id,
             unnest(@event_attempts::int[]) AS attempt,
             unnest(@event_timestamps::timestamptz[]) AS ts,
             unnest(@event_metadatas::text[]) AS metadata,
             unnest(@event_payloads::bytea[]) AS payload) AS event
   WHERE (event.ord IN (SELECT results.ord FROM results)) IS TRUE),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, running_time, finished_time, retry_interval,
                     timer_name, idempotency_key, args, context, response, worker_id)
  SELECT namespace, process_id, task_id, task_type, 'FINISHED', attempt, priority, fencing_token,
         scheduled_time, running_time, statement_timestamp(), retry_interval, timer_name,
         idempotency_key, args, context, response, NULLIF(worker_id, '')
    FROM results),
deleted_constraint_holds AS (
  DELETE FROM constraint_holds h
   USING (SELECT results.namespace, results.process_id FROM results WHERE results.frees) ended
   WHERE h.namespace = ANY (ARRAY[ended.namespace])
     AND h.process_id = ended.process_id),
deleted_running AS (
  DELETE FROM running r
   WHERE r.ctid = ANY (ARRAY(SELECT results.running_ctid FROM results)))
SELECT results.ord::int AS ord, statement_timestamp()::timestamptz AS now
  FROM results
 WHERE (
   SELECT CASE
            WHEN count(*) = cardinality(@ords::int[]) THEN true
            ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))
          END
     FROM results saved);
