-- SaveFinished is SaveResult for the most frequent result: the attempt has finished and sets no
-- timer, and no task waits for its process. Other items are missing in the result, like those whose
-- token has changed; SaveResult handles them. (f, ev, tk and dl are also in SaveResult and
-- SaveCompleted: SQL text cannot be shared, and a common statement would be as large as SaveResult,
-- which these two avoid.)
-- name: SaveFinished :many
WITH f AS MATERIALIZED (
  SELECT t.*, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name, r.idempotency_key,
         r.args, r.context, r.ctid AS running_ctid, p.ctid AS process_ctid
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
                 unnest(@task_ids::bigint[]) AS task_id, unnest(@fencing_tokens::bigint[]) AS fencing_token,
                 unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
                 unnest(@event_counts::int[]) AS event_count, unnest(@responses::bytea[]) AS response) AS t
   CROSS JOIN LATERAL (SELECT r.ctid, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name,
                              r.idempotency_key, r.args, r.context
                         FROM running r WHERE r.namespace = t.namespace AND r.process_id = t.process_id AND r.task_id = t.task_id
                          AND r.fencing_token = t.fencing_token LIMIT 1) r
   CROSS JOIN LATERAL (SELECT p.ctid FROM processes p WHERE p.namespace = t.namespace AND p.process_id = t.process_id
                          AND p.status IN ('INIT', 'RUNNING') AND p.cancel_deadline IS NULL LIMIT 1) p
    LEFT JOIN LATERAL (SELECT true AS found FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id
                          AND (s.waits_for IN ('process', 'place') OR s.waits_for::text = 'time' AND s.scheduled_time <= statement_timestamp()) LIMIT 1) w ON true
   WHERE w.found IS NULL),
up AS (
  UPDATE processes p SET
         aux_state = coalesce(f.aux_state, p.aux_state), metadata = coalesce(NULLIF(f.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + f.event_count, status = 'RUNNING',
         previous_status = CASE p.status WHEN 'INIT' THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE p.status WHEN 'INIT' THEN statement_timestamp() ELSE p.status_changed_time END
    FROM (SELECT f.process_ctid, f.aux_state, f.metadata, f.event_count FROM f OFFSET 0) f
   WHERE p.ctid = f.process_ctid),
ev AS (
  INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", metadata, payload)
  SELECT e.namespace, e.process_id, e.event_id, e.task_id, e.attempt, coalesce(NULLIF(e.ts, '0001-01-01Z'), statement_timestamp()), NULLIF(e.metadata, '')::jsonb, e.payload
    FROM (SELECT unnest(@event_ords::int[]) AS ord, unnest(@event_namespaces::text[]) AS namespace,
                 unnest(@event_process_ids::text[]) AS process_id, unnest(@event_ids::bigint[]) AS event_id,
                 unnest(@event_task_ids::bigint[]) AS task_id, unnest(@event_attempts::int[]) AS attempt,
                 unnest(@event_timestamps::timestamptz[]) AS ts, unnest(@event_metadatas::text[]) AS metadata,
                 unnest(@event_payloads::bytea[]) AS payload) AS e
   WHERE (e.ord IN (SELECT f.ord FROM f)) IS TRUE),
tk AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, scheduled_time, running_time,
                     finished_time, retry_interval, timer_name, idempotency_key, args, context, response)
  SELECT namespace, process_id, task_id, task_type, 'FINISHED', attempt, priority, fencing_token, scheduled_time, running_time,
         statement_timestamp(), retry_interval, timer_name, idempotency_key, args, context, response
    FROM f),
dl AS (
  DELETE FROM running r WHERE r.ctid = ANY (ARRAY(SELECT f.running_ctid FROM f)))
SELECT f.ord::int AS ord, statement_timestamp()::timestamptz AS now FROM f;
