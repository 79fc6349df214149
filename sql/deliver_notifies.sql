-- DeliverNotifies takes the notify messages and the ends of children that are first in the queue of
-- their target. It adds NOTIFY tasks behind the waiting tasks of the targets, regardless of
-- max_waiting. If max_tasks tasks wait in a process, it gets no messages until fewer tasks wait.
-- Messages to a process in SUSPENDED or ERROR are held, at most hold_lim at a time. No message is
-- delivered to a job or held for it, because a message that was held for a FAILED job would reach a
-- later run of the job.
--
-- It runs after LockProcesses. If a process was inserted after the locks were taken, its messages
-- are left to the next delivery: they may have been sent after the process was created, so they
-- must be delivered under its lock. The outcome is delivered, noted (the end of a member, stored
-- with its group), held, full, not_found or ended. more is true if there may be more messages, or
-- messages of other kinds behind them.
-- name: DeliverNotifies :many
WITH candidates AS MATERIALIZED (
  SELECT item.namespace, item.process_id, p.status,
         coalesce(p.status IN ('SUSPENDED', 'ERROR') AND p.kind <> 'job', false) AS holds,
         marked.message_id, marked.leading, marked.more,
         marked.leading
           AND p.status IN ('INIT', 'RUNNING')
           AND p.kind <> 'job'
           AND (
             SELECT count(*) FROM (
               SELECT 1 FROM schedule s
                WHERE s.namespace = item.namespace
                  AND s.process_id = item.process_id
                LIMIT @max_tasks::int) waiting) >= @max_tasks::int AS is_full
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
         AS item(namespace, process_id)
    LEFT JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
     AND p.removed_time IS NULL
   CROSS JOIN LATERAL (
     SELECT message.message_id,
            bool_and(message.kind IN ('notify', 'child_end'))
              OVER (ORDER BY message.message_id ROWS UNBOUNDED PRECEDING) AS leading,
            count(*) OVER () = @lim::int
              OR NOT bool_and(message.kind IN ('notify', 'child_end')) OVER () AS more
       FROM (
         SELECT s.message_id, s.kind
           FROM messages s
          WHERE s.namespace = item.namespace
            AND s.process_id = item.process_id
          ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) message) marked
   WHERE p.process_id IS NULL
      OR is_locked(p.namespace, p.process_id)),
held_messages AS (
  UPDATE messages m
     SET held = true
    FROM (
      SELECT message.*
        FROM (
          SELECT DISTINCT candidates.namespace, candidates.process_id
            FROM candidates WHERE candidates.holds) holding
       CROSS JOIN LATERAL (
         SELECT o.namespace, o.process_id, o.message_id
           FROM messages o
          WHERE o.namespace = holding.namespace
            AND o.process_id = holding.process_id
            AND NOT o.held
          ORDER BY o.namespace, o.process_id, o.message_id LIMIT @hold_lim::int) message) held
   WHERE m.namespace = ANY (ARRAY[held.namespace])
     AND m.process_id = held.process_id
     AND m.message_id = held.message_id
  RETURNING m.namespace, m.process_id, m.kind),
deleted_messages AS (
  DELETE FROM messages m USING candidates
   WHERE candidates.leading
     AND NOT candidates.holds
     AND candidates.is_full IS NOT TRUE
     AND m.namespace = ANY (ARRAY[candidates.namespace])
     AND m.process_id = candidates.process_id
     AND m.message_id = candidates.message_id
  RETURNING m.*),
-- task_ids are assigned in the order of the messages.
decided AS MATERIALIZED (
  SELECT nextval('task_ids') AS task_id,
         coalesce(numbered.status IN ('INIT', 'RUNNING') AND numbered.process_kind <> 'job',
                  false) AS delivered,
         numbered.*,
         (
           SELECT l.process_id FROM job_places l
            WHERE numbered.process_kind = 'job'
              AND numbered.kind = 'child_end'
              AND l.namespace = numbered.namespace
              AND l.process_id = numbered.child->>'processId'
              AND l.job_id = numbered.process_id
              AND l.state IS NULL) AS member_id,
         numbered.n = 1
           AND numbered.status = 'RUNNING'
           AND numbered.cancel_deadline IS NULL
           AND NOT EXISTS (
             SELECT 1 FROM running r
              WHERE r.namespace = ANY (ARRAY[numbered.namespace])
                AND r.process_id = numbered.process_id)
           AND NOT EXISTS (
             SELECT 1 FROM schedule s
              WHERE s.namespace = ANY (ARRAY[numbered.namespace])
                AND s.process_id = numbered.process_id
                AND s.waits_for::text IN ('process', 'place')) AS free,
         ((numbered.namespace, numbered.process_id) IN (
           SELECT candidates.namespace, candidates.process_id
             FROM candidates WHERE candidates.more)) IS TRUE AS more
    FROM (
      SELECT deleted_messages.*, p.status, p.kind AS process_kind, p.cancel_deadline,
             row_number() OVER (
               PARTITION BY deleted_messages.namespace, deleted_messages.process_id
               ORDER BY deleted_messages.message_id) AS n
        FROM deleted_messages
        LEFT JOIN processes p
          ON p.namespace = ANY (ARRAY[deleted_messages.namespace])
         AND p.process_id = deleted_messages.process_id
         AND p.removed_time IS NULL
       ORDER BY deleted_messages.namespace, deleted_messages.process_id,
                deleted_messages.message_id) numbered),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, args,
                        context, child)
  SELECT namespace, process_id, task_id, 'NOTIFY',
         CASE WHEN free THEN 'place' ELSE 'process' END::waits_for,
         statement_timestamp(), args, context, child
    FROM decided WHERE delivered),
-- A process waits for a slot with the smallest priority among its waiting tasks.
lowered AS (
  UPDATE schedule s
     SET priority = 0, own_priority = coalesce(s.own_priority, s.priority)
    FROM (
      SELECT DISTINCT decided.namespace, decided.process_id
        FROM decided
       WHERE decided.delivered
         AND NOT decided.free) busy_process
   WHERE s.namespace = ANY (ARRAY[busy_process.namespace])
     AND s.process_id = busy_process.process_id
     AND s.waits_for::text = 'place'
     AND s.priority > 0),
-- The end of a member is stored in its place, and makes the group due for a check.
updated_job_places AS (
  UPDATE job_places l
     SET state = CASE decided.child->>'status'
                   WHEN 'PROCESS_STATUS_COMPLETED' THEN 'succeeded'
                   WHEN 'PROCESS_STATUS_ERROR' THEN 'failed'
                   ELSE 'cancelled'
                 END,
         finished_time = statement_timestamp(), result = job.result,
         failure = job.failures->-1->'failure', attempts = coalesce(task.attempt, 0)
    FROM decided
    LEFT JOIN LATERAL (
      SELECT j.* FROM jobs j
       WHERE j.namespace = decided.namespace
         AND j.process_id = decided.member_id
       LIMIT 1) job ON true
    LEFT JOIN LATERAL (
      SELECT k.attempt FROM tasks k
       WHERE k.namespace = decided.namespace
         AND k.process_id = decided.member_id
       ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1) task ON true
   WHERE decided.member_id IS NOT NULL
     AND l.namespace = ANY (ARRAY[decided.namespace])
     AND l.process_id = decided.member_id),
updated_jobs AS (
  UPDATE jobs j
     SET result = NULL
    FROM decided
   WHERE decided.member_id IS NOT NULL
     AND j.namespace = ANY (ARRAY[decided.namespace])
     AND j.process_id = decided.member_id
     AND (j.result IS NULL)::int = 0),
woken_groups AS (
  UPDATE schedule s
     SET waits_for = 'place'
    FROM decided
   WHERE decided.member_id IS NOT NULL
     AND s.namespace = ANY (ARRAY[decided.namespace])
     AND s.process_id = decided.process_id
     AND s.taker = '~'
     AND s.waits_for::text = 'members'),
inserted_dead_letters AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace,
                            sender_process_id, sender_task_id, created_time, dropped_time, args,
                            child)
  SELECT message_id, kind,
         CASE WHEN status IS NULL THEN 'not_found' ELSE 'ended' END,
         namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time,
         statement_timestamp(), args, child
    FROM decided
   WHERE NOT delivered
     AND member_id IS NULL)
SELECT decided.namespace, decided.process_id, decided.kind::text AS kind,
       (CASE
          WHEN decided.delivered THEN 'delivered'
          WHEN decided.member_id IS NOT NULL THEN 'noted'
          WHEN decided.status IS NULL THEN 'not_found'
          ELSE 'ended'
        END)::text AS outcome,
       decided.more::bool AS more
  FROM decided
UNION ALL
SELECT held_messages.namespace, held_messages.process_id, held_messages.kind::text, 'held',
       count(*) OVER (PARTITION BY held_messages.namespace, held_messages.process_id)
         = @hold_lim::int
  FROM held_messages
UNION ALL
SELECT DISTINCT candidates.namespace, candidates.process_id, 'notify', 'full', false
  FROM candidates WHERE candidates.is_full;
