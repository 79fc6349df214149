-- SaveFinished replaces SaveResult for the most frequent result: the attempt has finished and sets
-- no timer, and no task of its process waits for a slot, waits for the process, or is due. Its
-- result omits all other items, and items whose token has changed. SaveResult handles them.
-- SaveResult, SaveEnded and SaveCompleted repeat most of this statement: SQL text cannot be shared,
-- and a common statement would be as large as SaveResult.
-- name: SaveFinished :many
WITH results AS MATERIALIZED (
  SELECT item.*, attempt.task_type, attempt.attempt, attempt.priority, attempt.scheduled_time,
         attempt.running_time, attempt.retry_interval, attempt.timer_name, attempt.idempotency_key,
         attempt.args, attempt.context, attempt.ctid AS running_ctid, process.ctid AS process_ctid
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token,
             unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
             unnest(@event_counts::int[]) AS event_count,
             unnest(@responses::bytea[]) AS response) AS item
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
         AND (s.waits_for IN ('process', 'place')
              OR s.waits_for::text = 'time' AND s.scheduled_time <= statement_timestamp())
       LIMIT 1) waiting ON true
   WHERE waiting.found IS NULL),
updated_processes AS (
  UPDATE processes p
     SET aux_state = coalesce(result.aux_state, p.aux_state),
         metadata = coalesce(NULLIF(result.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + result.event_count, status = 'RUNNING',
         previous_status = CASE p.status WHEN 'INIT' THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE p.status
                                 WHEN 'INIT' THEN statement_timestamp()
                                 ELSE p.status_changed_time
                               END
    FROM (
      SELECT results.process_ctid, results.aux_state, results.metadata, results.event_count
        FROM results OFFSET 0) result
   WHERE p.ctid = result.process_ctid),
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
                     timer_name, idempotency_key, args, context, response)
  SELECT namespace, process_id, task_id, task_type, 'FINISHED', attempt, priority, fencing_token,
         scheduled_time, running_time, statement_timestamp(), retry_interval, timer_name,
         idempotency_key, args, context, response
    FROM results),
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
