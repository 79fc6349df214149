-- SaveResult stores the results of attempts, each under its fencing token. If the token has
-- changed, the item is not stored, and the result omits it. SaveResult runs after TryLockProcesses,
-- so it reads the current rows. The outcome is finish, reject, complete, cancel, fail or retry (the
-- row is already in schedule, see RetryTasks). The new status is derived from the locked row, not
-- from the caller, because an operator may have changed it.
--
-- The values of timer_action are:
--   ''     keeps the timers
--   set    replaces the default timer
--   add    sets the default timer in addition to the timers of NamedTimers
--   unset  drops all timers
--
-- The next task of the process is, in this order: the oldest task that waits for the process, the
-- timer that has been due longest, the new timer if it is due. It moves to running if the item may
-- continue (promote). Otherwise it waits for a slot. It also waits for a slot if it is larger than
-- its share of 8 MiB, which the items of the statement divide equally. In a process with a cancel
-- request, only its CANCEL task is next, and an attempt that fails permanently ends the process.
-- (waits_for::text prevents the use of the partial index of due tasks, in which the planner would
-- read every due timer.)
--
-- The fencing tokens of the items that are not stored are added to the setting progressor.unsaved
-- of the transaction, which is nearly always empty. The statements that store the effects of
-- results check is_saved and ignore those items.
--
-- The rows that input and next_tasks have found are changed by ctid, which saves three searches by
-- key: their process was locked before this statement began, so they cannot have moved.
-- updated_processes reads only the columns of results that it needs (OFFSET 0 enforces that),
-- because PostgreSQL copies every joined row.
-- name: SaveResult :many
WITH input AS MATERIALIZED (
  SELECT item.*, attempt.task_type, attempt.attempt, attempt.priority, attempt.scheduled_time,
         attempt.running_time, attempt.retry_interval, attempt.timer_name, attempt.idempotency_key,
         attempt.args, attempt.context, attempt.ctid AS running_ctid, process.ctid AS process_ctid,
         process.status AS old_status, process.cancelling, process.first_event_id,
         process.last_event_id,
         (CASE item.outcome
            WHEN 'finish'
              THEN CASE process.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END
            WHEN 'fail' THEN CASE WHEN process.cancelling THEN 'CANCELLED' ELSE 'ERROR' END
            WHEN 'complete' THEN 'COMPLETED'
            WHEN 'cancel' THEN 'CANCELLED'
            ELSE process.status::text
          END)::process_status AS new_status,
         CASE
           WHEN item.timer_action IN ('set', 'add') THEN nextval('task_ids')
         END AS timer_task_id,
         CASE
           WHEN item.timer_after_us >= 0
             THEN statement_timestamp() + item.timer_after_us * interval '1 microsecond'
           ELSE item.timer_at
         END AS timer_time
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token,
             unnest(@outcomes::text[]) AS outcome, unnest(@aux_states::bytea[]) AS aux_state,
             unnest(@metadatas::text[]) AS metadata, unnest(@event_counts::int[]) AS event_count,
             unnest(@responses::bytea[]) AS response, unnest(@failures::text[]) AS failure,
             unnest(@rejections::text[]) AS rejection, unnest(@details::text[]) AS detail,
             unnest(@timer_actions::text[]) AS timer_action,
             unnest(@timer_types::text[]) AS timer_type,
             unnest(@timer_ats::timestamptz[]) AS timer_at,
             unnest(@timer_afters_us::bigint[]) AS timer_after_us,
             unnest(@promotes::bool[]) AS promote,
             unnest(@step_timeouts_us::bigint[]) AS step_timeout_us,
             unnest(@worker_ids::text[]) AS worker_id) AS item
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
     SELECT p.ctid, p.status, p.cancel_deadline IS NOT NULL AS cancelling, p.first_event_id,
            p.last_event_id
       FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.process_id
      LIMIT 1) process),
next_tasks AS (
  SELECT input.*, call.task_id AS call_task_id, due_timer.task_id AS due_task_id,
         coalesce(call.task_id, due_timer.task_id) AS wait_task_id,
         coalesce(call.ctid, due_timer.ctid) AS wait_ctid,
         coalesce(call.task_type, due_timer.task_type) AS wait_task_type,
         coalesce(call.attempt, due_timer.attempt, 0) AS wait_attempt,
         coalesce(call.priority, due_timer.priority) AS wait_priority,
         coalesce(call.scheduled_time, due_timer.scheduled_time) AS wait_scheduled_time,
         coalesce(call.retry_interval, due_timer.retry_interval) AS next_retry_interval,
         coalesce(call.timer_name, due_timer.timer_name) AS wait_timer_name,
         coalesce(call.history_range, due_timer.history_range) AS next_history_range,
         coalesce(call.idempotency_key, due_timer.idempotency_key) AS next_idempotency_key,
         coalesce(call.args, due_timer.args) AS next_args,
         coalesce(call.context, due_timer.context) AS wait_context,
         coalesce(call.child, due_timer.child) AS next_child
    FROM input
    LEFT JOIN LATERAL (
      SELECT s.ctid, s.task_id, s.task_type, s.attempt,
             coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval,
             s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child
        FROM schedule s
       WHERE s.namespace = input.namespace
         AND s.process_id = input.process_id
         AND s.waits_for IN ('process', 'place')
         AND input.new_status <> 'SUSPENDED'
         AND input.outcome NOT IN ('fail', 'complete', 'cancel')
         AND input.new_status = required_status(s.task_type)
         AND (NOT input.cancelling OR s.task_type IN ('INIT', 'CANCEL'))
         AND NOT (s.timer_name IS NOT NULL
                  AND (input.timer_action = 'unset'
                       OR (input.timer_action = 'set' AND s.timer_name = '')))
       ORDER BY s.namespace, s.process_id, s.task_id LIMIT 1) call ON true
    LEFT JOIN LATERAL (
      SELECT s.ctid, s.task_id, s.task_type, s.attempt,
             coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval,
             s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child
        FROM schedule s
       WHERE s.namespace = input.namespace
         AND s.process_id = input.process_id
         AND s.waits_for::text = 'time'
         AND call.task_id IS NULL
         AND input.new_status = 'RUNNING'
         AND s.scheduled_time <= statement_timestamp()
         AND (NOT input.cancelling OR s.task_type = 'CANCEL')
         AND NOT (s.timer_name IS NOT NULL
                  AND (input.timer_action = 'unset'
                       OR (input.timer_action = 'set' AND s.timer_name = '')))
       ORDER BY s.scheduled_time, s.task_id LIMIT 1) due_timer ON true),
next_timers AS (
  SELECT next_tasks.*,
         next_tasks.timer_task_id IS NOT NULL
           AND next_tasks.wait_task_id IS NULL
           AND next_tasks.timer_time <= statement_timestamp()
           AND next_tasks.new_status = 'RUNNING'
           AND NOT next_tasks.cancelling AS timer_next,
         next_tasks.promote
           AND coalesce(octet_length(next_tasks.next_args), 0)
                 + coalesce(octet_length(next_tasks.wait_context), 0) <= 8 * 1024 * 1024
                 / cardinality(@ords::int[]) AS promotable
    FROM next_tasks),
results AS MATERIALIZED (
  SELECT next_timers.*,
         coalesce(next_timers.wait_task_id,
                  CASE
                    WHEN next_timers.timer_next THEN next_timers.timer_task_id
                  END) AS next_task_id,
         CASE
           WHEN next_timers.timer_next THEN next_timers.timer_type::task_type
           ELSE next_timers.wait_task_type
         END AS next_task_type,
         next_timers.wait_attempt + 1 AS next_attempt,
         coalesce(next_timers.wait_priority, next_timers.priority) AS next_priority,
         coalesce(next_timers.wait_scheduled_time, next_timers.timer_time) AS next_scheduled_time,
         CASE
           WHEN next_timers.timer_next THEN ''
           ELSE next_timers.wait_timer_name
         END AS next_timer_name,
         CASE
           WHEN next_timers.timer_next THEN next_timers.context
           ELSE next_timers.wait_context
         END AS next_context,
         next_timers.promotable
           AND (next_timers.wait_task_id IS NOT NULL OR next_timers.timer_next) AS promoted,
         CASE
           WHEN next_timers.promotable
                AND (next_timers.wait_task_id IS NOT NULL OR next_timers.timer_next)
             THEN nextval('fencing_tokens')
         END AS next_token
    FROM next_timers),
updated_processes AS (
  UPDATE processes p
     SET aux_state = coalesce(result.aux_state, p.aux_state),
         metadata = coalesce(NULLIF(result.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + result.event_count, status = result.new_status,
         previous_status = CASE
                             WHEN result.new_status <> p.status THEN p.status
                             WHEN p.status = 'SUSPENDED' THEN 'RUNNING'
                             ELSE p.previous_status
                           END,
         status_changed_time = CASE
                                 WHEN result.new_status <> p.status THEN statement_timestamp()
                                 ELSE p.status_changed_time
                               END,
         attention = CASE
                       WHEN result.new_status IN ('INIT', 'RUNNING') THEN NULL
                       ELSE result.new_status
                     END,
         attention_time = CASE
                            WHEN result.new_status IN ('INIT', 'RUNNING') THEN NULL
                            WHEN result.new_status <> p.status THEN statement_timestamp()
                            ELSE p.attention_time
                          END,
         detail = CASE
                    WHEN result.new_status = p.status THEN p.detail
                    WHEN result.new_status = 'ERROR' THEN result.detail
                  END,
         corrupted_by = CASE
                          WHEN result.new_status = p.status THEN p.corrupted_by
                          WHEN result.new_status = 'ERROR' THEN result.task_id
                        END,
         cancel_deadline = CASE
                             WHEN result.new_status NOT IN ('COMPLETED', 'CANCELLED')
                               THEN p.cancel_deadline
                           END
    FROM (
      SELECT results.process_ctid, results.task_id, results.new_status, results.aux_state,
             results.metadata, results.event_count, results.detail
        FROM results WHERE results.outcome IN ('finish', 'fail', 'complete', 'cancel')
      OFFSET 0) result
   WHERE p.ctid = result.process_ctid),
-- Events have their own keys. They find their item by its number, in a hashed subplan, so that a
-- fenced item writes no events.
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
                     timer_name, idempotency_key, args, context, response, failure, rejection,
                     worker_id)
  SELECT namespace, process_id, task_id, task_type,
         CASE outcome WHEN 'fail' THEN 'ERROR' ELSE 'FINISHED' END::task_status,
         attempt, priority, fencing_token, scheduled_time, running_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context, response,
         NULLIF(failure, '')::jsonb, NULLIF(rejection, '')::jsonb, NULLIF(worker_id, '')
    FROM results WHERE outcome <> 'retry'),
deleted_running AS (
  DELETE FROM running r
   WHERE r.ctid = ANY (ARRAY(SELECT results.running_ctid FROM results WHERE NOT results.promoted))),
promoted_running AS (
  UPDATE running r
     SET task_id = results.next_task_id, task_type = results.next_task_type,
         attempt = results.next_attempt, priority = results.next_priority,
         fencing_token = results.next_token, node_id = @node_id::bigint,
         deadline = statement_timestamp() + results.step_timeout_us * interval '1 microsecond',
         scheduled_time = results.next_scheduled_time, running_time = statement_timestamp(),
         retry_interval = results.next_retry_interval, timer_name = results.next_timer_name,
         history_range = results.next_history_range, idempotency_key = results.next_idempotency_key,
         args = results.next_args, context = results.next_context, child = results.next_child
    FROM results
   WHERE r.ctid = results.running_ctid
     AND results.promoted),
deleted_next AS (
  DELETE FROM schedule s
   WHERE s.ctid = ANY (ARRAY(
     SELECT results.wait_ctid FROM results
      WHERE results.promoted
        AND results.wait_task_id IS NOT NULL))),
-- A later row may already wait for a slot: SearchTimers takes a timer that was due before a
-- simultaneous call.
waiting_for_slot AS (
  UPDATE schedule s
     SET waits_for = CASE
                       WHEN s.task_id = results.call_task_id THEN 'place'
                       ELSE 'process'
                     END::waits_for,
         priority = CASE
                      WHEN s.task_id = results.call_task_id
                        THEN queue_priority(results.namespace, results.process_id)
                      ELSE coalesce(s.own_priority, s.priority)
                    END,
         own_priority = CASE
                          WHEN s.task_id = results.call_task_id
                            THEN coalesce(s.own_priority, s.priority)
                        END
    FROM results
   WHERE s.namespace = ANY (ARRAY[results.namespace])
     AND s.process_id = results.process_id
     AND results.call_task_id IS NOT NULL
     AND NOT results.promoted
     AND (s.task_id = results.call_task_id OR s.waits_for = 'place')
     AND NOT (s.timer_name IS NOT NULL
              AND (results.timer_action = 'unset'
                   OR (results.timer_action = 'set' AND s.timer_name = '')))),
dropped_timers AS (
  DELETE FROM schedule s USING results
   WHERE results.timer_action IN ('set', 'unset')
     AND s.namespace = ANY (ARRAY[results.namespace])
     AND s.process_id = results.process_id
     AND s.timer_name IS NOT NULL
     AND (results.timer_action = 'unset' OR s.timer_name = '')
  RETURNING s.*),
cancelled_timers AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority,
                     fencing_token, scheduled_time, finished_time, retry_interval, timer_name,
                     idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt,
         coalesce(own_priority, priority), fencing_token, scheduled_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context
    FROM dropped_timers),
inserted_timers AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, timer_name, context)
  SELECT namespace, process_id, timer_task_id, timer_type::task_type,
         CASE new_status WHEN 'SUSPENDED' THEN 'operator' ELSE 'time' END::waits_for,
         priority, timer_time, '', context
    FROM results
   WHERE timer_task_id IS NOT NULL
     AND NOT (promoted AND next_task_id = timer_task_id)
     AND outcome IN ('finish'))
SELECT results.ord::int AS ord, results.new_status::process_status AS status,
       results.promoted::bool AS promoted,
       (results.next_task_id IS NOT NULL AND NOT results.promoted)::bool AS deferred,
       coalesce(CASE
                  WHEN results.timer_task_id IS NOT NULL
                    THEN (extract(epoch FROM results.timer_time - statement_timestamp()) * 1000000)
                END,
                -1)::bigint AS timer_delay_us,
       statement_timestamp()::timestamptz AS now,
       coalesce(results.next_task_id, 0)::bigint AS next_task_id,
       coalesce(results.next_task_type, 'CALL')::task_type AS next_task_type,
       results.next_attempt::int AS next_attempt, results.next_priority::int AS next_priority,
       coalesce(results.next_token, 0)::bigint AS next_token,
       coalesce(results.next_scheduled_time, statement_timestamp())::timestamptz
         AS next_scheduled_time,
       coalesce(results.next_retry_interval, interval '0')::interval AS next_retry_interval,
       coalesce(results.next_timer_name, '')::text AS next_timer_name,
       coalesce(results.next_history_range::text, '')::text AS next_history_range,
       coalesce(results.next_idempotency_key, '')::text AS next_idempotency_key,
       (CASE WHEN results.promoted THEN results.next_args END)::bytea AS next_args,
       (CASE WHEN results.promoted THEN results.next_context END)::bytea AS next_context,
       (CASE WHEN results.promoted THEN results.next_child END)::jsonb AS next_child,
       results.first_event_id, results.last_event_id
  FROM results
 WHERE (
   SELECT CASE
            WHEN count(*) = cardinality(@ords::int[]) THEN true
            ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))
          END
     FROM results saved);
