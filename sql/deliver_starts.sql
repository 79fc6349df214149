-- DeliverStarts takes the start messages that are first in the queue of their target and creates
-- the processes. An existing process does not change. If a process with the ID is being removed,
-- the start waits until the process is deleted. (The condition on removed_time prevents the use of
-- the index of removed processes.) The kind of an internal process follows from its ID. If the
-- namespace does not exist, a sender that waits for the end is notified, because it would otherwise
-- wait forever. If the process exists, only an internal sender is notified: a user's processor may
-- repeat a start.
--
-- The start of a job enqueues it, with its unique key if it has one: see EnqueueJobs. If two
-- messages have the same key for different processes, only the first one is taken here. If the keys
-- of its constraints are unknown or of another version, the job waits to be evaluated. outcome is
-- delivered, exists (the process exists, or another job has the unique key) or not_found (the
-- namespace does not exist, or is being deleted). more is true if there may be more messages. With
-- mode 2 (EventsAll), the namespace keeps the event that a job was enqueued.
-- name: DeliverStarts :many
WITH candidates AS MATERIALIZED (
  SELECT item.namespace, item.process_id, item.mode, marked.message_id,
         marked.n = @lim::int AS more,
         marked.unique_key IS NOT NULL
           AND first_value(item.process_id)
                 OVER (PARTITION BY item.namespace, marked.unique_key
                       ORDER BY marked.message_id) <> item.process_id AS behind
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@modes::int[]))
         AS item(namespace, process_id, mode)
   CROSS JOIN LATERAL (
     SELECT message.message_id, message.unique_key,
            bool_and(message.kind = 'start')
              OVER (ORDER BY message.message_id ROWS UNBOUNDED PRECEDING) AS leading,
            count(*) OVER () AS n
       FROM (
         SELECT s.message_id, s.kind, s.job->>'uniqueKey' AS unique_key
           FROM messages s
          WHERE s.namespace = item.namespace
            AND s.process_id = item.process_id
          ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) message) marked
   WHERE marked.leading
     AND NOT EXISTS (
       SELECT 1 FROM processes p
        WHERE p.namespace = ANY (ARRAY[item.namespace])
          AND p.process_id = item.process_id
          AND (p.removed_time IS NULL)::int = 0)),
taken_messages AS MATERIALIZED (
  SELECT candidates.namespace, candidates.process_id, candidates.message_id, candidates.more,
         candidates.mode
    FROM candidates WHERE NOT candidates.behind),
deleted_messages AS (
  DELETE FROM messages m USING taken_messages
   WHERE m.namespace = ANY (ARRAY[taken_messages.namespace])
     AND m.process_id = taken_messages.process_id
     AND m.message_id = taken_messages.message_id
  RETURNING m.*),
numbered AS MATERIALIZED (
  SELECT deleted_messages.*, nextval('task_ids') AS new_task_id,
         row_number() OVER (
           PARTITION BY deleted_messages.namespace, deleted_messages.process_id
           ORDER BY deleted_messages.message_id) = 1 AS first,
         EXISTS (
           SELECT 1 FROM namespaces n
            WHERE n.namespace = deleted_messages.namespace
              AND n.deletion_requested_time IS NULL) AS known,
         coalesce(deleted_messages.start_time > statement_timestamp(), false) AS later,
         holder.process_id AS holder,
         deleted_messages.job IS NOT NULL
           AND (deleted_messages.job->'options' ? 'workers') IS NOT TRUE
           AND coalesce((
             SELECT x.version FROM constraint_sets x
              WHERE x.namespace = deleted_messages.namespace),
                        0)
                 <> coalesce((deleted_messages.job->>'constraintsVersion')::bigint, 0) AS stale,
         ((deleted_messages.namespace, deleted_messages.process_id) IN (
           SELECT taken_messages.namespace, taken_messages.process_id
             FROM taken_messages WHERE taken_messages.more)) IS TRUE AS more,
         ((deleted_messages.namespace, deleted_messages.process_id) IN (
           SELECT taken_messages.namespace, taken_messages.process_id
             FROM taken_messages WHERE taken_messages.mode = 2)) IS TRUE AS keeps_event
    FROM deleted_messages
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (
          SELECT p.* FROM processes p
           WHERE p.namespace = k.namespace
             AND p.process_id = k.process_id
             AND p.removed_time IS NULL
           LIMIT 1) process ON true
       WHERE deleted_messages.job->>'uniqueKey' IS NOT NULL
         AND k.namespace = deleted_messages.namespace
         AND k.unique_key = deleted_messages.job->>'uniqueKey'
         AND CASE
               WHEN process.status IS NULL THEN k.held_until > statement_timestamp()
               WHEN process.status IN ('COMPLETED', 'CANCELLED', 'ERROR')
                 THEN process.status_changed_time + k.ttl > statement_timestamp()
               ELSE (deleted_messages.job->>'uniqueWaiting')::bool IS NOT TRUE
                    OR (
                      SELECT r.task_id FROM running r
                       WHERE r.namespace = k.namespace
                         AND r.process_id = k.process_id
                       LIMIT 1) IS NULL
                       AND (
                         SELECT s.task_id FROM schedule s
                          WHERE s.namespace = k.namespace
                            AND s.process_id = k.process_id
                            AND s.taker = '~'
                            AND s.attempt > 0
                          LIMIT 1) IS NULL
             END
       LIMIT 1) holder ON true),
inserted_processes AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time,
                         status_changed_time)
  SELECT namespace, process_id, 'INIT',
         CASE
           WHEN job IS NOT NULL THEN 'job'
           ELSE coalesce(substring(process_id FROM '^~([a-z]+)/'), '')
         END,
         metadata, statement_timestamp(), statement_timestamp()
    FROM numbered
   WHERE first
     AND known
     AND holder IS NULL
   ORDER BY namespace, process_id
  ON CONFLICT DO NOTHING
  RETURNING namespace, process_id),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT inserted_processes.namespace, 'RUNNING', count(*)
    FROM inserted_processes GROUP BY inserted_processes.namespace
   ORDER BY inserted_processes.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
decided AS MATERIALIZED (
  SELECT numbered.*,
         (numbered.first
          AND (numbered.namespace, numbered.process_id) IN (
            SELECT inserted_processes.namespace, inserted_processes.process_id
              FROM inserted_processes)) AS created,
         CASE WHEN numbered.later THEN 'scheduled' ELSE 'available' END AS state,
         CASE
           WHEN numbered.later THEN 'time'
           WHEN numbered.stale OR numbered.job ? 'line' THEN 'constraint'
           ELSE 'place'
         END::waits_for AS waits_for
    FROM numbered),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT decided.namespace, decided.job->>'name', decided.state, count(*)
    FROM decided
   WHERE decided.created
     AND decided.job IS NOT NULL
     AND NOT starts_with(decided.process_id, '~job/~/')
   GROUP BY decided.namespace, decided.job->>'name', decided.state
   ORDER BY decided.namespace, decided.job->>'name', decided.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, to_status, message)
  SELECT decided.namespace, decided.process_id, 'enqueued', decided.state,
         CASE
           WHEN decided.sender_process_id IS NOT NULL
             THEN 'by process ' || decided.sender_namespace || '/' || decided.sender_process_id
           ELSE 'from SQL'
         END
    FROM decided
   WHERE decided.created
     AND decided.job IS NOT NULL
     AND decided.keeps_event),
inserted_jobs AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options, constraints_version,
                    constraint_keys, unique_key, fairness_key)
  SELECT namespace, process_id, job->>'name',
         (job->>'timeoutUs')::bigint * interval '1 microsecond', job->'tags', job->'options',
         (job->>'constraintsVersion')::bigint, job->'constraintKeys',
         CASE WHEN (job->>'uniqueTtlUs')::bigint > 0 THEN job->>'uniqueKey' END,
         job->>'fairnessKey'
    FROM decided
   WHERE created
     AND job IS NOT NULL),
inserted_schedule AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority,
                        scheduled_time, args, context, job_name, line, taker, start_deadline,
                        fairness_key, round)
  SELECT namespace, process_id, new_task_id, 'INIT', waits_for,
         coalesce((job->>'priority')::int, 0),
         CASE WHEN later THEN start_time ELSE statement_timestamp() END,
         args, context, job->>'name',
         CASE WHEN stale THEN '' ELSE job->>'line' END,
         CASE WHEN job->'options' ? 'workers' THEN '~' ELSE job->>'taker' END,
         CASE WHEN later THEN start_time ELSE statement_timestamp() END
           + (job->'options'->>'startDeadline')::interval,
         job->>'fairnessKey',
         CASE
           WHEN (job ? 'fairnessKey') IS NOT TRUE THEN 0
           ELSE next_round(namespace, waits_for, job->>'name',
                           CASE WHEN stale THEN '' ELSE job->>'line' END,
                           coalesce((job->>'priority')::int, 0), job->>'fairnessKey')
         END
    FROM decided WHERE created),
updated_job_keys AS (
  UPDATE job_keys k
     SET process_id = decided.process_id,
         ttl = coalesce((decided.job->>'uniqueTtlUs')::bigint, 0) * interval '1 microsecond',
         held_until = NULL
    FROM decided
   WHERE decided.created
     AND decided.job->>'uniqueKey' IS NOT NULL
     AND k.namespace = ANY (ARRAY[decided.namespace])
     AND k.unique_key = decided.job->>'uniqueKey'),
inserted_parents AS (
  INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
  SELECT namespace, process_id, sender_namespace, sender_process_id, notify_parent_args
    FROM decided
   WHERE created
     AND notify_parent_args IS NOT NULL
     AND sender_process_id IS NOT NULL),
inserted_messages AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                        sender_task_id, created_time, args, child)
  SELECT decided.sender_namespace, decided.sender_process_id, 'child_end', decided.namespace,
         decided.process_id, 0, statement_timestamp(), decided.notify_parent_args,
         jsonb_build_object('namespace', decided.namespace, 'processId', decided.process_id,
                            'detail', CASE
                                        WHEN decided.holder IS NOT NULL
                                          THEN 'not started: job ' || decided.holder
                                                 || ' holds its unique key'
                                        WHEN decided.known
                                          THEN 'not started: a process with this ID already exists'
                                        ELSE 'not started: the namespace does not exist'
                                      END)
    FROM decided
   WHERE NOT decided.created
     AND decided.notify_parent_args IS NOT NULL
     AND decided.sender_process_id IS NOT NULL
     AND (NOT decided.known OR starts_with(decided.sender_process_id, '~'))),
inserted_dead_letters AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace,
                            sender_process_id, sender_task_id, created_time, dropped_time, args)
  SELECT message_id, kind, 'not_found', namespace, process_id, sender_namespace, sender_process_id,
         sender_task_id, created_time, statement_timestamp(), args
    FROM decided WHERE NOT known)
SELECT decided.namespace, decided.process_id, decided.kind::text AS kind,
       (CASE
          WHEN decided.created THEN 'delivered'
          WHEN decided.known THEN 'exists'
          ELSE 'not_found'
        END)::text AS outcome,
       decided.later::bool AS later, decided.more::bool AS more
  FROM decided;
