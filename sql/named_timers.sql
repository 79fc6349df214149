-- DropTimers removes named timers, and SetTimers sets them, for attempts that still hold their
-- process. Both run before SaveResult, which then sees the new timers. The input of DropTimers has
-- one row for each name to remove, or a row with drop_all.
-- name: DropTimers :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@fencing_tokens::bigint[]), unnest(@timer_names::text[]),
                    unnest(@drop_alls::bool[]))
         AS item(namespace, process_id, fencing_token, timer_name, drop_all)
    JOIN running r
      ON r.namespace = ANY (ARRAY[item.namespace])
     AND r.process_id = item.process_id
     AND r.fencing_token = item.fencing_token),
deleted_schedule AS (
  DELETE FROM schedule s USING input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.timer_name IS NOT NULL
     AND (input.drop_all OR s.timer_name = input.timer_name)
  RETURNING s.*)
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                   fencing_token, scheduled_time, finished_time, retry_interval, timer_name,
                   idempotency_key, args, context)
SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt,
       coalesce(own_priority, priority), fencing_token, scheduled_time, statement_timestamp(),
       retry_interval, timer_name, idempotency_key, args, context
  FROM deleted_schedule;

-- name: SetTimers :exec
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                      scheduled_time, timer_name, context)
SELECT r.namespace, r.process_id, nextval('task_ids'), item.timer_type::task_type,
       CASE process.status WHEN 'SUSPENDED' THEN 'operator' ELSE 'time' END::waits_for,
       r.priority,
       CASE
         WHEN item.after_us >= 0
           THEN statement_timestamp() + item.after_us * interval '1 microsecond'
         ELSE item.at
       END,
       item.timer_name, r.context
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]), unnest(@timer_names::text[]),
                  unnest(@timer_types::text[]), unnest(@ats::timestamptz[]),
                  unnest(@afters_us::bigint[]))
       AS item(namespace, process_id, fencing_token, timer_name, timer_type, at, after_us)
  JOIN running r
    ON r.namespace = ANY (ARRAY[item.namespace])
   AND r.process_id = item.process_id
   AND r.fencing_token = item.fencing_token
 CROSS JOIN LATERAL (
   SELECT p.status FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1) process;

-- CheckTimers aborts the transaction if a process has more than max_timers pending timers after
-- SetTimers. extra is 1 if SaveResult adds the default timer. CheckTimers casts an error message to
-- a number, because plain SQL has no RAISE.
-- name: CheckTimers :exec
SELECT CASE
         WHEN counts.pending + item.extra > @max_timers::int
           THEN 'at most ' || @max_timers::int || ' timers may be pending (got '
                  || (counts.pending + item.extra) || ')'
         ELSE '0'
       END::int
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@fencing_tokens::bigint[]), unnest(@extras::int[]))
       AS item(namespace, process_id, fencing_token, extra)
  JOIN running r
    ON r.namespace = ANY (ARRAY[item.namespace])
   AND r.process_id = item.process_id
   AND r.fencing_token = item.fencing_token
 CROSS JOIN LATERAL (
   SELECT count(*) AS pending FROM schedule s
    WHERE s.namespace = r.namespace
      AND s.process_id = r.process_id
      AND s.timer_name IS NOT NULL) counts;
