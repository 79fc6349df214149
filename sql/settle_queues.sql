-- SettleQueues continues changes of status in large queues, at most lim waiting tasks and lim held
-- messages of each process. In a suspended process, tasks wait for the operator. In a process in
-- ERROR or ended, they are cancelled. Messages are released unless the process is SUSPENDED or in
-- ERROR. It runs after LockProcesses.
-- name: SettleQueues :many
WITH k AS MATERIALIZED (
  SELECT b.namespace, b.process_id, b.after_task_id, b.after_message_id, b.cancelled_by, p.status, coalesce(p.status IN ('SUSPENDED', 'ERROR'), false) AS holds
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS t(namespace, process_id)
    JOIN queue_backlogs b ON b.namespace = ANY (ARRAY[t.namespace]) AND b.process_id = t.process_id
    LEFT JOIN processes p ON p.namespace = ANY (ARRAY[t.namespace]) AND p.process_id = t.process_id AND p.removed_time IS NULL
   WHERE NOT b.resuming OR p.status IS DISTINCT FROM 'SUSPENDED'),
w AS MATERIALIZED (
  SELECT k.namespace, k.process_id, k.status, s.task_id, s.task_ctid FROM k CROSS JOIN LATERAL (
    SELECT s.task_id, s.ctid AS task_ctid FROM schedule s
     WHERE s.namespace = k.namespace AND s.process_id = k.process_id AND s.task_id > k.after_task_id
       AND k.status IN ('SUSPENDED', 'ERROR', 'COMPLETED', 'CANCELLED')
     ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) s),
m AS MATERIALIZED (
  SELECT k.namespace, k.process_id, o.message_id, o.message_ctid FROM k CROSS JOIN LATERAL (
    SELECT o.message_id, o.ctid AS message_ctid FROM messages o
     WHERE NOT k.holds AND o.namespace = k.namespace AND o.process_id = k.process_id AND o.message_id > k.after_message_id AND o.held::int = 1
     ORDER BY o.namespace, o.process_id, o.message_id LIMIT @lim::int) o),
held_tasks AS (
  UPDATE schedule s SET waits_for = 'operator'
   WHERE s.ctid = ANY (ARRAY(SELECT w.task_ctid FROM w WHERE w.status = 'SUSPENDED'))),
d AS (
  DELETE FROM schedule s
   WHERE s.ctid = ANY (ARRAY(SELECT w.task_ctid FROM w WHERE w.status <> 'SUSPENDED'))
  RETURNING s.*),
cancelled_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, cancelled_by, scheduled_time,
                     finished_time, retry_interval, timer_name, idempotency_key, args, context, failure)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, coalesce(own_priority, priority), fencing_token,
         (SELECT k.cancelled_by FROM k WHERE k.namespace = d.namespace AND k.process_id = d.process_id), scheduled_time, statement_timestamp(), retry_interval, timer_name, idempotency_key, args, context, failure FROM d),
released_messages AS (
  UPDATE messages o SET held = false
   WHERE o.ctid = ANY (ARRAY(SELECT m.message_ctid FROM m))),
moved AS MATERIALIZED (
  SELECT k.namespace, k.process_id, a.tasks, a.last_task_id, c.messages, c.last_message_id
    FROM k
   CROSS JOIN LATERAL (SELECT count(*) AS tasks, max(w.task_id) AS last_task_id FROM w WHERE w.namespace = k.namespace AND w.process_id = k.process_id) a
   CROSS JOIN LATERAL (SELECT count(*) AS messages, max(m.message_id) AS last_message_id FROM m WHERE m.namespace = k.namespace AND m.process_id = k.process_id) c),
settled AS (
  DELETE FROM queue_backlogs b USING moved
   WHERE b.namespace = ANY (ARRAY[moved.namespace]) AND b.process_id = moved.process_id AND moved.tasks < @lim::int AND moved.messages < @lim::int),
unsettled AS (
  UPDATE queue_backlogs b SET after_task_id = greatest(b.after_task_id, moved.last_task_id), after_message_id = greatest(b.after_message_id, moved.last_message_id)
    FROM moved
   WHERE b.namespace = ANY (ARRAY[moved.namespace]) AND b.process_id = moved.process_id AND (moved.tasks = @lim::int OR moved.messages = @lim::int))
SELECT moved.namespace, moved.process_id, moved.tasks::bigint AS tasks, moved.messages::bigint AS messages FROM moved;

-- ListBacklogs lists processes for SettleQueues, oldest first.
-- name: ListBacklogs :many
SELECT b.namespace, b.process_id FROM queue_backlogs b
 WHERE NOT b.resuming
    OR NOT EXISTS (SELECT 1 FROM processes p WHERE p.namespace = b.namespace AND p.process_id = b.process_id AND p.status = 'SUSPENDED' AND p.removed_time IS NULL)
 ORDER BY b.created_time LIMIT @lim::int;

-- ResumeTasks prepares the resume of a suspended process: at most lim tasks that wait for the
-- operator wait for their time or their process again. Nothing runs until ResumeProcesses changes
-- the status. It runs after LockProcesses and continues where the last one ended, which may be that
-- of another client. moved is -1 if the process is not SUSPENDED, and less than lim if all tasks
-- are prepared. Then after_task_id is the largest bigint.
-- name: ResumeTasks :one
WITH k AS MATERIALIZED (
  SELECT p.namespace, p.process_id, CASE WHEN b.resuming THEN b.prepared_task_id ELSE 0 END AS after_task_id
    FROM processes p LEFT JOIN queue_backlogs b ON b.namespace = p.namespace AND b.process_id = p.process_id
   WHERE p.namespace = @namespace::text AND p.process_id = @process_id::text AND p.removed_time IS NULL AND p.status = 'SUSPENDED'),
w AS MATERIALIZED (
  SELECT k.namespace, k.process_id, s.task_id, s.task_ctid FROM k CROSS JOIN LATERAL (
    SELECT s.task_id, s.ctid AS task_ctid FROM schedule s
     WHERE s.namespace = k.namespace AND s.process_id = k.process_id AND s.task_id > k.after_task_id AND s.waits_for IN ('operator', 'place')
     ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) s),
prepared_tasks AS (
  UPDATE schedule s SET waits_for = CASE WHEN s.timer_name IS NOT NULL OR s.scheduled_time > statement_timestamp() THEN 'time' ELSE 'process' END::waits_for
   WHERE s.ctid = ANY (ARRAY(SELECT w.task_ctid FROM w))),
n AS MATERIALIZED (SELECT count(*) AS moved, max(w.task_id) AS last_task_id FROM w),
preparing AS (
  INSERT INTO queue_backlogs AS b (namespace, process_id, resuming, after_task_id, prepared_task_id, running_task_id)
  SELECT k.namespace, k.process_id, true, CASE WHEN n.moved = @lim::int THEN n.last_task_id ELSE 9223372036854775807 END,
         greatest(k.after_task_id, n.last_task_id),
         (SELECT r.task_id FROM running r WHERE r.namespace = k.namespace AND r.process_id = k.process_id)
    FROM k, n
  ON CONFLICT (namespace, process_id) DO UPDATE
     SET resuming = true, after_task_id = excluded.after_task_id, prepared_task_id = excluded.prepared_task_id,
         running_task_id = CASE WHEN b.resuming AND b.prepared_task_id > 0 THEN b.running_task_id ELSE excluded.running_task_id END)
SELECT (CASE WHEN EXISTS (SELECT 1 FROM k) THEN n.moved ELSE -1 END)::bigint AS moved FROM n;
