-- SaveResult stores the results of attempts, each under its fencing token: if the token has
-- changed, the item is missing in the result, and nothing of it is stored. It runs after
-- LockProcesses, so f reads the current rows. outcome: finish, reject, complete, cancel, fail,
-- retry (its row is already in schedule, see RetryTasks). The new status is derived from the locked
-- row, not from the caller, because an operator may have changed it. timer_action: '' keeps the
-- timers, set replaces the default one, add sets it in addition to what NamedTimers has done, unset
-- drops all.
--
-- The next task of the process is, in this order: the oldest one that waits for it, the timer that
-- is due longest, the new timer if it is due. It moves to running if the item may continue
-- (promote), otherwise it waits for a slot. It also waits for a slot if it is larger than its part
-- of 8 MiB, which all items of the statement share equally. In a process with a cancel request,
-- only its CANCEL task is next, and an attempt that fails permanently ends the process.
-- (waits_for::text prevents the use of the partial index of due tasks, in which the planner would
-- read every due timer.)
--
-- The rows that i and g have found are changed by ctid, which saves three searches by key: their
-- process was locked before this statement began, so they cannot have moved. up reads no more of f
-- than it needs (OFFSET 0 enforces that), because PostgreSQL copies every joined row.
-- name: SaveResult :many
WITH i AS MATERIALIZED (
  SELECT t.*, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name, r.idempotency_key,
         r.args, r.context, r.ctid AS running_ctid, p.ctid AS process_ctid, p.status AS old_status, p.cancelling, p.first_event_id,
         (CASE t.outcome WHEN 'finish' THEN CASE p.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END
                         WHEN 'fail' THEN CASE WHEN p.cancelling THEN 'CANCELLED' ELSE 'ERROR' END
                         WHEN 'complete' THEN 'COMPLETED' WHEN 'cancel' THEN 'CANCELLED' ELSE p.status::text END)::process_status AS new_status,
         CASE WHEN t.timer_action IN ('set', 'add') THEN nextval('task_ids') END AS timer_task_id,
         CASE WHEN t.timer_after_us >= 0 THEN statement_timestamp() + t.timer_after_us * interval '1 microsecond' ELSE t.timer_at END AS timer_time
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id,
                 unnest(@task_ids::bigint[]) AS task_id, unnest(@fencing_tokens::bigint[]) AS fencing_token,
                 unnest(@outcomes::text[]) AS outcome, unnest(@aux_states::bytea[]) AS aux_state, unnest(@metadatas::text[]) AS metadata,
                 unnest(@event_counts::int[]) AS event_count, unnest(@responses::bytea[]) AS response, unnest(@failures::text[]) AS failure,
                 unnest(@rejections::text[]) AS rejection, unnest(@details::text[]) AS detail,
                 unnest(@timer_actions::text[]) AS timer_action, unnest(@timer_types::text[]) AS timer_type,
                 unnest(@timer_ats::timestamptz[]) AS timer_at, unnest(@timer_afters_us::bigint[]) AS timer_after_us,
                 unnest(@promotes::bool[]) AS promote, unnest(@step_timeouts_us::bigint[]) AS step_timeout_us, unnest(@worker_ids::text[]) AS worker_id) AS t
   CROSS JOIN LATERAL (SELECT r.ctid, r.task_type, r.attempt, r.priority, r.scheduled_time, r.running_time, r.retry_interval, r.timer_name,
                              r.idempotency_key, r.args, r.context
                         FROM running r WHERE r.namespace = t.namespace AND r.process_id = t.process_id AND r.task_id = t.task_id
                          AND r.fencing_token = t.fencing_token LIMIT 1) r
   CROSS JOIN LATERAL (SELECT p.ctid, p.status, p.cancel_deadline IS NOT NULL AS cancelling, p.first_event_id
                         FROM processes p WHERE p.namespace = t.namespace AND p.process_id = t.process_id LIMIT 1) p),
g AS (
  SELECT i.*, c.task_id AS call_task_id, d.task_id AS due_task_id, coalesce(c.task_id, d.task_id) AS wait_task_id, coalesce(c.ctid, d.ctid) AS wait_ctid,
         coalesce(c.task_type, d.task_type) AS wait_task_type, coalesce(c.attempt, d.attempt, 0) AS wait_attempt,
         coalesce(c.priority, d.priority) AS wait_priority, coalesce(c.scheduled_time, d.scheduled_time) AS wait_scheduled_time,
         coalesce(c.retry_interval, d.retry_interval) AS next_retry_interval, coalesce(c.timer_name, d.timer_name) AS wait_timer_name,
         coalesce(c.history_range, d.history_range) AS next_history_range, coalesce(c.idempotency_key, d.idempotency_key) AS next_idempotency_key,
         coalesce(c.args, d.args) AS next_args, coalesce(c.context, d.context) AS wait_context, coalesce(c.child, d.child) AS next_child
    FROM i
    LEFT JOIN LATERAL (
      SELECT s.ctid, s.task_id, s.task_type, s.attempt, coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child
        FROM schedule s WHERE s.namespace = i.namespace AND s.process_id = i.process_id AND s.waits_for IN ('process', 'place')
         AND i.new_status <> 'SUSPENDED' AND i.outcome NOT IN ('fail', 'complete', 'cancel')
         AND i.new_status = CASE s.task_type WHEN 'INIT' THEN 'INIT' WHEN 'REPAIR' THEN 'ERROR' ELSE 'RUNNING' END::process_status
         AND (NOT i.cancelling OR s.task_type IN ('INIT', 'CANCEL'))
         AND NOT (s.timer_name IS NOT NULL AND (i.timer_action = 'unset' OR (i.timer_action = 'set' AND s.timer_name = '')))
       ORDER BY s.namespace, s.process_id, s.task_id LIMIT 1) c ON true
    LEFT JOIN LATERAL (
      SELECT s.ctid, s.task_id, s.task_type, s.attempt, coalesce(s.own_priority, s.priority) AS priority, s.scheduled_time, s.retry_interval, s.timer_name, s.history_range, s.idempotency_key, s.args, s.context, s.child
        FROM schedule s WHERE s.namespace = i.namespace AND s.process_id = i.process_id AND s.waits_for::text = 'time'
         AND c.task_id IS NULL AND i.new_status = 'RUNNING' AND s.scheduled_time <= statement_timestamp()
         AND (NOT i.cancelling OR s.task_type = 'CANCEL')
         AND NOT (s.timer_name IS NOT NULL AND (i.timer_action = 'unset' OR (i.timer_action = 'set' AND s.timer_name = '')))
       ORDER BY s.scheduled_time, s.task_id LIMIT 1) d ON true),
h AS (
  SELECT g.*, g.timer_task_id IS NOT NULL AND g.wait_task_id IS NULL AND g.timer_time <= statement_timestamp() AND g.new_status = 'RUNNING'
         AND NOT g.cancelling AS timer_next,
         g.promote AND coalesce(octet_length(g.next_args), 0) + coalesce(octet_length(g.wait_context), 0)
           <= 8 * 1024 * 1024 / cardinality(@ords::int[]) AS promotable
    FROM g),
f AS MATERIALIZED (
  SELECT h.*, coalesce(h.wait_task_id, CASE WHEN h.timer_next THEN h.timer_task_id END) AS next_task_id,
         CASE WHEN h.timer_next THEN h.timer_type::task_type ELSE h.wait_task_type END AS next_task_type, h.wait_attempt + 1 AS next_attempt,
         coalesce(h.wait_priority, h.priority) AS next_priority, coalesce(h.wait_scheduled_time, h.timer_time) AS next_scheduled_time,
         CASE WHEN h.timer_next THEN '' ELSE h.wait_timer_name END AS next_timer_name,
         CASE WHEN h.timer_next THEN h.context ELSE h.wait_context END AS next_context,
         h.promotable AND (h.wait_task_id IS NOT NULL OR h.timer_next) AS promoted,
         CASE WHEN h.promotable AND (h.wait_task_id IS NOT NULL OR h.timer_next) THEN nextval('fencing_tokens') END AS next_token
    FROM h),
up AS (
  UPDATE processes p SET
         aux_state = coalesce(f.aux_state, p.aux_state), metadata = coalesce(NULLIF(f.metadata, '')::jsonb, p.metadata),
         last_event_id = p.last_event_id + f.event_count, status = f.new_status,
         previous_status = CASE WHEN f.new_status <> p.status THEN p.status WHEN p.status = 'SUSPENDED' THEN 'RUNNING' ELSE p.previous_status END,
         status_changed_time = CASE WHEN f.new_status <> p.status THEN statement_timestamp() ELSE p.status_changed_time END,
         attention = CASE WHEN f.new_status IN ('INIT', 'RUNNING') THEN NULL ELSE f.new_status END,
         attention_time = CASE WHEN f.new_status IN ('INIT', 'RUNNING') THEN NULL WHEN f.new_status <> p.status THEN statement_timestamp() ELSE p.attention_time END,
         detail = CASE WHEN f.new_status = p.status THEN p.detail WHEN f.new_status = 'ERROR' THEN f.detail END,
         corrupted_by = CASE WHEN f.new_status = p.status THEN p.corrupted_by WHEN f.new_status = 'ERROR' THEN f.task_id END,
         cancel_deadline = CASE WHEN f.new_status NOT IN ('COMPLETED', 'CANCELLED') THEN p.cancel_deadline END
    FROM (SELECT f.process_ctid, f.task_id, f.new_status, f.aux_state, f.metadata, f.event_count, f.detail
            FROM f WHERE f.outcome IN ('finish', 'fail', 'complete', 'cancel') OFFSET 0) f
   WHERE p.ctid = f.process_ctid),
-- Events have their own keys and find their item by its number, in a hashed subplan: a fenced item
-- writes none.
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
                     finished_time, retry_interval, timer_name, idempotency_key, args, context, response, failure, rejection, worker_id)
  SELECT namespace, process_id, task_id, task_type, CASE outcome WHEN 'fail' THEN 'ERROR' ELSE 'FINISHED' END::task_status, attempt, priority,
         fencing_token, scheduled_time, running_time, statement_timestamp(), retry_interval, timer_name, idempotency_key, args, context,
         response, NULLIF(failure, '')::jsonb, NULLIF(rejection, '')::jsonb, NULLIF(worker_id, '')
    FROM f WHERE outcome <> 'retry'),
dl AS (
  DELETE FROM running r WHERE r.ctid = ANY (ARRAY(SELECT f.running_ctid FROM f WHERE NOT f.promoted))),
pr AS (
  UPDATE running r SET task_id = f.next_task_id, task_type = f.next_task_type, attempt = f.next_attempt, priority = f.next_priority,
         fencing_token = f.next_token, node_id = @node_id::bigint, deadline = statement_timestamp() + f.step_timeout_us * interval '1 microsecond',
         scheduled_time = f.next_scheduled_time, running_time = statement_timestamp(), retry_interval = f.next_retry_interval,
         timer_name = f.next_timer_name, history_range = f.next_history_range, idempotency_key = f.next_idempotency_key,
         args = f.next_args, context = f.next_context, child = f.next_child
    FROM f WHERE r.ctid = f.running_ctid AND f.promoted),
sd AS (
  DELETE FROM schedule s WHERE s.ctid = ANY (ARRAY(SELECT f.wait_ctid FROM f WHERE f.promoted AND f.wait_task_id IS NOT NULL))),
-- A later row may already wait for a slot: SearchTimers takes a timer that was due before a
-- simultaneous call.
mk AS (
  UPDATE schedule s SET waits_for = CASE WHEN s.task_id = f.call_task_id THEN 'place' ELSE 'process' END::waits_for,
         priority = CASE WHEN s.task_id = f.call_task_id THEN queue_priority(f.namespace, f.process_id) ELSE coalesce(s.own_priority, s.priority) END,
         own_priority = CASE WHEN s.task_id = f.call_task_id THEN coalesce(s.own_priority, s.priority) END
    FROM f WHERE s.namespace = ANY (ARRAY[f.namespace]) AND s.process_id = f.process_id AND f.call_task_id IS NOT NULL AND NOT f.promoted
     AND (s.task_id = f.call_task_id OR s.waits_for = 'place')
     AND NOT (s.timer_name IS NOT NULL AND (f.timer_action = 'unset' OR (f.timer_action = 'set' AND s.timer_name = '')))),
td AS (
  DELETE FROM schedule s USING f WHERE f.timer_action IN ('set', 'unset') AND s.namespace = ANY (ARRAY[f.namespace]) AND s.process_id = f.process_id
     AND s.timer_name IS NOT NULL AND (f.timer_action = 'unset' OR s.timer_name = '') RETURNING s.*),
tc AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, scheduled_time, finished_time,
                     retry_interval, timer_name, idempotency_key, args, context)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, coalesce(own_priority, priority), fencing_token, scheduled_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context FROM td),
ts AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, timer_name, context)
  SELECT namespace, process_id, timer_task_id, timer_type::task_type, CASE new_status WHEN 'SUSPENDED' THEN 'operator' ELSE 'time' END::waits_for,
         priority, timer_time, '', context
    FROM f WHERE timer_task_id IS NOT NULL AND NOT (promoted AND next_task_id = timer_task_id) AND outcome IN ('finish'))
SELECT f.ord::int AS ord, f.new_status::process_status AS status, f.promoted::bool AS promoted,
       (f.next_task_id IS NOT NULL AND NOT f.promoted)::bool AS deferred,
       coalesce(CASE WHEN f.timer_task_id IS NOT NULL THEN (extract(epoch FROM f.timer_time - statement_timestamp()) * 1000000) END, -1)::bigint AS timer_delay_us,
       statement_timestamp()::timestamptz AS now,
       coalesce(f.next_task_id, 0)::bigint AS next_task_id, coalesce(f.next_task_type, 'CALL')::task_type AS next_task_type,
       f.next_attempt::int AS next_attempt, f.next_priority::int AS next_priority, coalesce(f.next_token, 0)::bigint AS next_token,
       coalesce(f.next_scheduled_time, statement_timestamp())::timestamptz AS next_scheduled_time,
       coalesce(f.next_retry_interval, interval '0')::interval AS next_retry_interval, coalesce(f.next_timer_name, '')::text AS next_timer_name,
       coalesce(f.next_history_range::text, '')::text AS next_history_range, coalesce(f.next_idempotency_key, '')::text AS next_idempotency_key,
       (CASE WHEN f.promoted THEN f.next_args END)::bytea AS next_args, (CASE WHEN f.promoted THEN f.next_context END)::bytea AS next_context,
       (CASE WHEN f.promoted THEN f.next_child END)::jsonb AS next_child, f.first_event_id
  FROM f;
