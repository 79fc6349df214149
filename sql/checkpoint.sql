-- Checkpoint stores events, state and metadata of attempts that continue, each under its fencing
-- token. If the token has changed, the item is not stored, and the result omits it. If the process
-- does not have the events that the attempt expects, the item is also not stored. The caller
-- detects this by comparing stored_event_id with last_event_id. An item that is sent again is
-- therefore a no-op, because only the attempt itself adds events. Checkpoint runs after
-- TryLockProcesses, so it reads the current rows. yield reports that the process is not RUNNING or
-- is being cancelled, or that another task of the process is due, waits for a slot, or waits for
-- the process.
-- name: Checkpoint :many
WITH input AS MATERIALIZED (
  SELECT item.*, attempt.attempt, process.last_event_id AS stored_event_id,
         process.status <> 'RUNNING'
           OR process.cancelling
           OR waiting.found IS NOT NULL AS yield
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token,
             unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
             unnest(@last_event_ids::bigint[]) AS last_event_id,
             unnest(@event_counts::int[]) AS event_count) AS item
   CROSS JOIN LATERAL (
     SELECT r.attempt FROM running r
      WHERE r.namespace = item.namespace
        AND r.process_id = item.process_id
        AND r.task_id = item.task_id
        AND r.fencing_token = item.fencing_token
      LIMIT 1) attempt
   CROSS JOIN LATERAL (
     SELECT p.status, p.last_event_id, p.cancel_deadline IS NOT NULL AS cancelling
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT true AS found FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.process_id
         AND (s.waits_for IN ('process', 'place')
              OR s.waits_for::text = 'time' AND s.scheduled_time <= statement_timestamp())
       LIMIT 1) waiting ON true),
updated_processes AS (
  UPDATE processes p
     SET aux_state = coalesce(input.aux_state, p.aux_state),
         metadata = coalesce(NULLIF(input.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + input.event_count
    FROM input
   WHERE p.namespace = ANY (ARRAY[input.namespace])
     AND p.process_id = input.process_id
     AND input.stored_event_id = input.last_event_id),
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
   WHERE (event.ord IN (
            SELECT input.ord FROM input
             WHERE input.stored_event_id = input.last_event_id)) IS TRUE)
SELECT input.ord::int AS ord, input.stored_event_id::bigint AS stored_event_id,
       input.yield::bool AS yield, statement_timestamp()::timestamptz AS now
  FROM input;
