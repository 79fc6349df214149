-- EndSteps notifies runs of the ends of the jobs of their steps, like TellParents, but at once: the
-- flush that ends the jobs has locked the run. It gives the run a NOTIFY task with all ends, which
-- this node runs at once (captured) if the run is idle and the node has a slot (capture). Messages
-- instead, with their delivery and the claim of a task, took more than half of the cost of a step.
-- It runs after SaveResult and applies only to items whose task end this transaction has written.
-- Each end is delivered once, because it deletes the row of parents, by ctid: a change of that row
-- needs the lock of the job, which the flush has.
--
-- While a run is busy, ends are added to its last waiting task if that contains ends, so that the
-- run handles many with one result. A run that is not locked, not RUNNING, in another namespace, or
-- has a cancel request or messages, is notified by a message behind these. ord: that of the first
-- job of the run. outcome: captured, place (the task waits to be claimed), process (it waits behind
-- others), message.
-- name: EndSteps :many
WITH c AS MATERIALIZED (
  SELECT x.*, r.ctid AS parents_ctid, r.parent_namespace, r.parent_process_id, translate(encode(t.response, 'base64'), E'\n', '') AS response, r.args
    FROM (SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace, unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
                 unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@captures::bool[]) AS capture, unnest(@step_timeouts_us::bigint[]) AS step_timeout_us) AS x
   CROSS JOIN LATERAL (SELECT t.response FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
                          AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid LIMIT 1) t
   CROSS JOIN LATERAL (SELECT r.ctid, r.parent_namespace, r.parent_process_id, r.args FROM parents r WHERE r.namespace = x.namespace AND r.process_id = x.process_id LIMIT 1) r),
d AS (
  DELETE FROM parents r WHERE r.ctid = ANY (ARRAY(SELECT c.parents_ctid FROM c))),
g AS MATERIALIZED (
  SELECT c.parent_namespace, c.parent_process_id, min(c.ord) AS ord, bool_and(c.capture) AS capture, max(c.step_timeout_us) AS step_timeout_us,
         jsonb_agg(jsonb_build_object('namespace', c.namespace, 'processId', c.process_id, 'status', 'PROCESS_STATUS_COMPLETED', 'response', c.response,
           'args', translate(encode(c.args, 'base64'), E'\n', '')) ORDER BY c.ord) AS ends
    FROM c WHERE c.parent_namespace = c.namespace GROUP BY c.parent_namespace, c.parent_process_id),
h AS MATERIALIZED (
  SELECT g.*, p.*, r.found IS NULL AND w.task_id IS NULL AS free, r.found IS NULL AND w.task_id IS NULL AND g.capture AS captured, coalesce(w.adds, false) AS adds, w.task_id AS wait_task_id,
         nextval('task_ids') AS task_id, CASE WHEN r.found IS NULL AND w.task_id IS NULL AND g.capture THEN nextval('fencing_tokens') END AS fencing_token
    FROM g
   CROSS JOIN LATERAL (
     SELECT p.status, p.previous_status, p.status_changed_time, p.detail, p.corrupted_by, p.aux_state, p.metadata, p.last_event_id, p.first_event_id, p.kind, p.created_time
       FROM processes p WHERE p.namespace = g.parent_namespace AND p.process_id = g.parent_process_id AND p.kind = 'flow' AND p.status = 'RUNNING'
        AND p.cancel_deadline IS NULL AND p.removed_time IS NULL AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid) LIMIT 1) p
    LEFT JOIN LATERAL (SELECT r.task_type IS NOT NULL AS found FROM running r WHERE r.namespace = g.parent_namespace AND r.process_id = g.parent_process_id LIMIT 1) r ON true
    LEFT JOIN LATERAL (
      SELECT s.task_id, s.attempt = 0 AND s.child ? 'ends' AND pg_column_size(s.child) < 100000 AS adds
        FROM schedule s WHERE s.namespace = g.parent_namespace AND s.process_id = g.parent_process_id AND s.waits_for::text IN ('process', 'place')
       ORDER BY s.namespace DESC, s.process_id DESC, s.task_id DESC LIMIT 1) w ON true
    LEFT JOIN LATERAL (SELECT m.kind IS NOT NULL AS found FROM messages m WHERE m.namespace = g.parent_namespace AND m.process_id = g.parent_process_id AND NOT m.held LIMIT 1) q ON true
   WHERE q.found IS NULL),
run AS (
  INSERT INTO running (namespace, process_id, task_id, task_type, attempt, fencing_token, node_id, deadline, scheduled_time, running_time, child)
  SELECT parent_namespace, parent_process_id, task_id, 'NOTIFY', 1, fencing_token, @node_id::bigint,
         statement_timestamp() + step_timeout_us * interval '1 microsecond', statement_timestamp(), statement_timestamp(), jsonb_build_object('ends', ends)
    FROM h WHERE captured),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, child)
  SELECT parent_namespace, parent_process_id, task_id, 'NOTIFY', CASE WHEN free THEN 'place' ELSE 'process' END::waits_for, statement_timestamp(), jsonb_build_object('ends', ends)
    FROM h WHERE NOT captured AND NOT adds),
ad AS (
  UPDATE schedule s SET child = jsonb_build_object('ends', (s.child->'ends') || h.ends)
    FROM h WHERE h.adds AND s.namespace = ANY (ARRAY[h.parent_namespace]) AND s.process_id = h.parent_process_id AND s.task_id = h.wait_task_id),
m AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, child)
  SELECT c.parent_namespace, c.parent_process_id, 'child_end', c.namespace, c.process_id, c.task_id, statement_timestamp(), c.args,
         jsonb_strip_nulls(jsonb_build_object('namespace', c.namespace, 'processId', c.process_id, 'status', 'PROCESS_STATUS_COMPLETED', 'response', c.response))
    FROM c WHERE ((c.parent_namespace, c.parent_process_id) IN (SELECT h.parent_namespace, h.parent_process_id FROM h)) IS NOT TRUE OR c.parent_namespace <> c.namespace ORDER BY c.ord
  RETURNING namespace, process_id)
SELECT h.ord::int AS ord, h.parent_namespace AS namespace, h.parent_process_id AS process_id, (CASE WHEN h.captured THEN 'captured' WHEN h.free THEN 'place' ELSE 'process' END)::text AS outcome,
       h.task_id::bigint AS task_id, coalesce(h.fencing_token, 0)::bigint AS fencing_token, statement_timestamp()::timestamptz AS now, h.status::process_status AS status,
       coalesce(h.previous_status::text, '')::text AS previous_status, h.status_changed_time::timestamptz AS status_changed_time, coalesce(h.detail, '')::text AS detail,
       coalesce(h.corrupted_by, 0)::bigint AS corrupted_by, (CASE WHEN h.captured THEN h.aux_state END)::bytea AS aux_state, (CASE WHEN h.captured THEN h.metadata END)::jsonb AS metadata,
       h.last_event_id::bigint AS last_event_id, h.first_event_id::bigint AS first_event_id, h.kind::text AS kind, h.created_time::timestamptz AS created_time,
       (CASE WHEN h.captured THEN jsonb_build_object('ends', h.ends) END)::jsonb AS child
  FROM h
UNION ALL
SELECT 0, m.namespace, m.process_id, 'message', 0, 0, statement_timestamp(), 'RUNNING', '', statement_timestamp(), '', 0, NULL, NULL, 0, 1, '', statement_timestamp(), NULL FROM m;
