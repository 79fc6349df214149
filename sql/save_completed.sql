-- SaveCompleted is SaveResult for a process that ends with its only task, like most jobs and runs:
-- no other task waits, and no parent is notified. awaited: TellParents follows. See SaveFinished
-- for the parts that it omits. For a job (job_name) it stores the counts and events that EndJobs
-- stores for others, and frees its keys (frees).
-- name: SaveCompleted :many
WITH f AS MATERIALIZED (
  SELECT t.*, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name, r.idempotency_key,
         r.args, r.context, r.ctid AS running_ctid, p.ctid AS process_ctid
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
                 unnest(@task_ids::bigint[]) AS task_id, unnest(@fencing_tokens::bigint[]) AS fencing_token,
                 unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
                 unnest(@event_counts::int[]) AS event_count, unnest(@responses::bytea[]) AS response,
                 unnest(@job_names::text[]) AS job_name, unnest(@worker_ids::text[]) AS worker_id, unnest(@modes::int[]) AS mode, unnest(@awaiteds::bool[]) AS awaited,
                 unnest(@frees::bool[]) AS frees) AS t
   CROSS JOIN LATERAL (SELECT r.ctid, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name,
                              r.idempotency_key, r.args, r.context
                         FROM running r WHERE r.namespace = t.namespace AND r.process_id = t.process_id AND r.task_id = t.task_id
                          AND r.fencing_token = t.fencing_token LIMIT 1) r
   CROSS JOIN LATERAL (SELECT p.ctid FROM processes p WHERE p.namespace = t.namespace AND p.process_id = t.process_id
                          AND p.status IN ('INIT', 'RUNNING') AND p.cancel_deadline IS NULL LIMIT 1) p
    LEFT JOIN LATERAL (SELECT true AS found FROM schedule s WHERE s.namespace = t.namespace AND s.process_id = t.process_id
                          AND s.task_type IS NOT NULL LIMIT 1) w ON true
    LEFT JOIN LATERAL (SELECT o.args IS NOT NULL AS found FROM parents o WHERE NOT t.awaited AND o.namespace = t.namespace AND o.process_id = t.process_id LIMIT 1) o ON true
   WHERE w.found IS NULL AND o.found IS NULL),
up AS (
  UPDATE processes p SET
         aux_state = coalesce(f.aux_state, p.aux_state), metadata = coalesce(NULLIF(f.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + f.event_count, status = 'COMPLETED', previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = 'COMPLETED', attention_time = statement_timestamp(), detail = NULL, corrupted_by = NULL
    FROM (SELECT f.process_ctid, f.aux_state, f.metadata, f.event_count FROM f OFFSET 0) f
   WHERE p.ctid = f.process_ctid),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT c.namespace, x.status, c.n * x.sign FROM (SELECT f.namespace, count(*) AS n FROM f GROUP BY f.namespace) c
   CROSS JOIN (VALUES ('RUNNING'::process_status, -1), ('COMPLETED', 1)) AS x(status, sign) ORDER BY c.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT c.namespace, c.job_name, x.state, c.n * x.sign FROM (SELECT f.namespace, f.job_name, count(*) AS n FROM f WHERE f.job_name <> '' GROUP BY f.namespace, f.job_name) c
   CROSS JOIN (VALUES ('available', -1), ('succeeded', 1)) AS x(state, sign) ORDER BY c.namespace, c.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, xid, job_id, type, from_status, to_status, attempt, worker_id)
  SELECT f.namespace, (SELECT job_event_xid()), f.process_id, 'succeeded', 'running', 'succeeded', f.attempt, NULLIF(f.worker_id, '') FROM f WHERE f.job_name <> '' AND f.mode > 0),
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
                     finished_time, retry_interval, timer_name, idempotency_key, args, context, response, worker_id)
  SELECT namespace, process_id, task_id, task_type, 'FINISHED', attempt, priority, fencing_token, scheduled_time, running_time,
         statement_timestamp(), retry_interval, timer_name, idempotency_key, args, context, response, NULLIF(worker_id, '')
    FROM f),
fr AS (
  DELETE FROM constraint_holds h USING (SELECT f.namespace, f.process_id FROM f WHERE f.frees) f WHERE h.namespace = ANY (ARRAY[f.namespace]) AND h.process_id = f.process_id),
dl AS (
  DELETE FROM running r WHERE r.ctid = ANY (ARRAY(SELECT f.running_ctid FROM f)))
SELECT f.ord::int AS ord, statement_timestamp()::timestamptz AS now FROM f;
