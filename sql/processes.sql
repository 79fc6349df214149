-- name: GetProcess :one
SELECT namespace, process_id, status, previous_status, status_changed_time, attention,
       attention_time, detail, corrupted_by, last_event_id, kind, created_time, removed_time,
       aux_state, metadata, cancel_requested_time, cancel_reason, first_event_id,
       history_restarted_time
  FROM processes
 WHERE namespace = @namespace
   AND process_id = @process_id
   AND removed_time IS NULL;

-- GetTimers uses the index schedule_timers, because a process may have many other waiting tasks.
-- name: GetTimers :many
SELECT s.timer_name, s.scheduled_time, s.task_type,
       ((
         SELECT r.task_id FROM running r
          WHERE r.namespace = s.namespace
            AND r.process_id = s.process_id
          LIMIT 1) IS NOT NULL
        OR (
          SELECT c.task_id FROM schedule c
           WHERE c.namespace = s.namespace
             AND c.process_id = s.process_id
             AND c.waits_for IN ('process', 'place')
           LIMIT 1) IS NOT NULL)::bool AS blocked
  FROM schedule s
 WHERE s.namespace = @namespace
   AND s.process_id = @process_id
   AND (s.timer_name IS NOT NULL)::int = 1
 ORDER BY s.scheduled_time, s.task_id;

-- PutProcess imports a process with its history and timers, without calling the processor. It
-- returns no row if the process exists. Timers of a process in ERROR are imported as cancelled by
-- its error, so that a repair sets them. corrupted_by is 0, because the failed task is not
-- imported.
-- name: PutProcess :one
WITH inserted_processes AS (
  INSERT INTO processes (namespace, process_id, status, attention, attention_time, detail,
                         corrupted_by, last_event_id, aux_state, metadata)
  VALUES (@namespace, @process_id, @status::process_status,
          NULLIF(@status::process_status, 'RUNNING'),
          CASE WHEN @status::process_status <> 'RUNNING' THEN statement_timestamp() END,
          CASE WHEN @status::process_status = 'ERROR' THEN NULLIF(@detail::text, '') END,
          CASE WHEN @status::process_status = 'ERROR' THEN 0 END,
          cardinality(@event_payloads::bytea[]), @aux_state, NULLIF(@metadata::text, '')::jsonb)
  ON CONFLICT DO NOTHING
  RETURNING *),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT inserted_processes.namespace, coalesce(inserted_processes.attention, 'RUNNING'), 1
    FROM inserted_processes
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
inserted_events AS (
  INSERT INTO events (namespace, process_id, event_id, task_id, "timestamp", metadata, payload)
  SELECT inserted_processes.namespace, inserted_processes.process_id, event.n, 0,
         coalesce(NULLIF(event.ts, '0001-01-01Z'), statement_timestamp()),
         NULLIF(event.metadata, '')::jsonb, event.payload
    FROM inserted_processes,
         ROWS FROM (unnest(@event_timestamps::timestamptz[]), unnest(@event_metadatas::text[]),
                    unnest(@event_payloads::bytea[]))
           WITH ORDINALITY AS event(ts, metadata, payload, n)),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time,
                        timer_name, context)
  SELECT inserted_processes.namespace, inserted_processes.process_id, nextval('task_ids'),
         timer.timer_type::task_type, 'time', timer.at, timer.name, @context
    FROM inserted_processes,
         ROWS FROM (unnest(@timer_names::text[]), unnest(@timer_types::text[]),
                    unnest(@timer_ats::timestamptz[])) AS timer(name, timer_type, at)
   WHERE inserted_processes.status <> 'ERROR'),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, cancelled_by,
                     scheduled_time, finished_time, timer_name, context)
  SELECT inserted_processes.namespace, inserted_processes.process_id, nextval('task_ids'),
         timer.timer_type::task_type, 'CANCELLED', 0, 0, timer.at, statement_timestamp(),
         timer.name, @context
    FROM inserted_processes,
         ROWS FROM (unnest(@timer_names::text[]), unnest(@timer_types::text[]),
                    unnest(@timer_ats::timestamptz[])) AS timer(name, timer_type, at)
   WHERE inserted_processes.status = 'ERROR')
SELECT namespace, process_id, status, previous_status, status_changed_time, attention,
       attention_time, detail, corrupted_by, last_event_id, kind, created_time, removed_time,
       aux_state, metadata, cancel_requested_time, cancel_reason, first_event_id,
       history_restarted_time
  FROM inserted_processes;
