-- SearchCronTimers claims due timers of crons, like SearchTimers. It uses a separate index, so that
-- crons do not wait behind other timers when more timers are due than slots are free.
-- name: SearchCronTimers :many
WITH found AS MATERIALIZED (
  SELECT candidate.*,
         coalesce(octet_length(candidate.args), 0) + coalesce(octet_length(candidate.context), 0)
           + coalesce(octet_length(candidate.aux_state), 0) AS bytes,
         nextval('fencing_tokens') AS fencing_token, target.step_timeout_us
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@limits::int[]),
                    unnest(@step_timeouts_us::bigint[]))
         AS target(namespace, lim, step_timeout_us)
   CROSS JOIN LATERAL (
     SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.attempt,
            coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval,
            s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child, p.status,
            p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state,
            p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
       FROM schedule s
       JOIN processes p
         ON p.namespace = ANY (ARRAY[s.namespace])
        AND p.process_id = s.process_id
      WHERE s.namespace COLLATE "POSIX" = target.namespace
        AND s.waits_for = 'time'
        AND s.scheduled_time <= statement_timestamp()
        AND starts_with(s.process_id, '~cron/')
        AND NOT EXISTS (
          SELECT 1 FROM running r
           WHERE r.namespace = ANY (ARRAY[s.namespace])
             AND r.process_id = s.process_id)
        AND NOT EXISTS (
          SELECT 1 FROM schedule c
           WHERE c.namespace = ANY (ARRAY[s.namespace])
             AND c.process_id = s.process_id
             AND c.waits_for::text = 'place')
        AND p.status = required_status(s.task_type)
        AND (p.cancel_deadline IS NULL OR s.task_type IN ('INIT', 'CANCEL'))
      ORDER BY s.scheduled_time LIMIT target.lim FOR NO KEY UPDATE OF s, p SKIP LOCKED) candidate),
-- One statement claims at most 2 MiB (maxScanBytes) in all namespaces together, but always at least
-- one task.
ready AS MATERIALIZED (
  SELECT summed.* FROM (
    SELECT f.*,
           sum(f.bytes) OVER (ROWS UNBOUNDED PRECEDING) - f.bytes AS bytes_before
      FROM found f) summed
   WHERE summed.bytes_before < 2 * 1024 * 1024),
claimed AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, priority, fencing_token,
                       node_id, deadline, scheduled_time, running_time, retry_interval, timer_name,
                       history_range, idempotency_key, args, context, child)
  SELECT namespace, process_id, task_id, task_type, attempt + 1, priority, fencing_token,
         @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond',
         scheduled_time, statement_timestamp(), retry_interval, timer_name, history_range,
         idempotency_key, args, context, child
    FROM ready
  ON CONFLICT (namespace, process_id) DO NOTHING
  RETURNING namespace, process_id, task_id),
deleted_schedule AS (
  DELETE FROM schedule s USING claimed
   WHERE s.namespace = ANY (ARRAY[claimed.namespace])
     AND s.process_id = claimed.process_id
     AND s.task_id = claimed.task_id)
SELECT r.namespace, r.process_id, r.task_id, r.task_type, (r.attempt + 1)::int AS attempt,
       r.priority, r.fencing_token::bigint AS fencing_token, r.scheduled_time,
       statement_timestamp()::timestamptz AS running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range,
       coalesce(r.idempotency_key, '')::text AS idempotency_key, r.args, r.context, r.status,
       coalesce(r.previous_status::text, '')::text AS previous_status,
       r.status_changed_time, coalesce(r.detail, '')::text AS detail,
       coalesce(r.corrupted_by, 0)::bigint AS corrupted_by, r.aux_state, r.metadata,
       r.last_event_id, r.first_event_id, r.kind, r.created_time, r.child, ''::text AS kind_name,
       NULL::jsonb AS kind_options, 0::bigint AS kind_timeout_us, 0::int AS kind_takeovers,
       NULL::jsonb AS kind_tags, NULL::jsonb AS kind_failures, 0::bigint AS kind_keys_version,
       NULL::jsonb AS kind_keys, 0::bigint AS kind_keys_now
  FROM ready r WHERE (r.task_id IN (SELECT claimed.task_id FROM claimed)) IS TRUE;
