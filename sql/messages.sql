-- SendMessages stores messages of results to other processes. It runs after SaveResult and
-- RemoveProcesses and applies only to items whose task end this transaction has written: a fenced
-- item sends nothing. grace_us is -1 if there is no grace period. It returns the targets.
-- name: SendMessages :many
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@kinds::text[]), unnest(@target_namespaces::text[]),
                    unnest(@target_process_ids::text[]), unnest(@args::bytea[]),
                    unnest(@contexts::bytea[]), unnest(@metadatas::text[]),
                    unnest(@start_times::timestamptz[]), unnest(@notify_parent_args::bytea[]),
                    unnest(@reasons::text[]), unnest(@kind_rows::text[]),
                    unnest(@graces_us::bigint[])) WITH ORDINALITY
         AS item(namespace, process_id, task_id, fencing_token, kind, target_namespace,
                 target_process_id, args, context, metadata, start_time, notify_parent_args, reason,
                 kind_row, grace_us, n)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
     UNION ALL
     SELECT 1 FROM answers a
      WHERE a.namespace = item.namespace
        AND a.process_id = item.process_id
        AND a.task_id = item.task_id
        AND a.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                      sender_task_id, created_time, start_time, reason, args, context, metadata,
                      notify_parent_args, job, grace)
SELECT target_namespace, target_process_id, kind::message_kind, namespace, process_id, task_id,
       statement_timestamp(), NULLIF(start_time, '0001-01-01Z'), NULLIF(reason, ''), args, context,
       NULLIF(metadata, '')::jsonb, notify_parent_args, NULLIF(kind_row, '')::jsonb,
       NULLIF(grace_us, -1) * interval '1 microsecond'
  FROM input ORDER BY n
RETURNING namespace, process_id;

-- NotifyParents sends the messages to parents of processes that have ended, are in ERROR or are
-- being removed. It runs after the change and reads the current state, so it needs no token. If
-- nothing has ended, or the parent was already notified, nothing happens. It sends the responses of
-- task_ids. A task ID of 0 means that there is no response. The response of a job is its kept
-- result, unless several workers run it. It returns the parents.
-- name: NotifyParents :many
WITH ended AS MATERIALIZED (
  SELECT p.namespace, p.process_id, item.task_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]))
         AS item(namespace, process_id, task_id)
    JOIN processes p
      ON p.namespace = ANY (ARRAY[item.namespace])
     AND p.process_id = item.process_id
   WHERE p.removed_time IS NOT NULL
      OR p.status IN ('COMPLETED', 'CANCELLED', 'ERROR')),
deleted_parents AS (
  DELETE FROM parents r USING ended
   WHERE r.namespace = ANY (ARRAY[ended.namespace])
     AND r.process_id = ended.process_id
  RETURNING r.*),
notified_parents AS MATERIALIZED (
  SELECT deleted_parents.*,
         (
           SELECT max(ended.task_id) FROM ended
            WHERE ended.namespace = deleted_parents.namespace
              AND ended.process_id = deleted_parents.process_id) AS task_id
    FROM deleted_parents)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id,
                      sender_task_id, created_time, args, child)
SELECT notified_parents.parent_namespace, notified_parents.parent_process_id, 'child_end',
       notified_parents.namespace, notified_parents.process_id, notified_parents.task_id,
       statement_timestamp(), notified_parents.args,
       jsonb_strip_nulls(jsonb_build_object('namespace', notified_parents.namespace,
                                            'processId', notified_parents.process_id,
                                            'status', 'PROCESS_STATUS_' ||
                                              CASE
                                                WHEN process.removed_time IS NULL
                                                  THEN process.status::text
                                                ELSE 'UNSPECIFIED'
                                              END,
                                            'response', translate(
                                              encode(coalesce(answer.response, job.result),
                                                     'base64'), E'\n', ''),
                                            'detail', CASE
                                                        WHEN process.removed_time IS NULL
                                                          THEN process.detail
                                                        ELSE 'rejected: ' || NULLIF(
                                                          concat_ws(
                                                            ': ', answer.rejection->>'reason',
                                                            NULLIF(
                                                              answer.rejection->>'message', '')),
                                                          '')
                                                      END))
  FROM notified_parents
 CROSS JOIN LATERAL (
   SELECT p.status, p.detail, p.removed_time
     FROM processes p
    WHERE p.namespace = notified_parents.namespace
      AND p.process_id = notified_parents.process_id
    LIMIT 1) process
  LEFT JOIN LATERAL (
    SELECT k.result
      FROM jobs k
     WHERE k.namespace = notified_parents.namespace
       AND k.process_id = notified_parents.process_id
       AND process.status = 'COMPLETED'
       AND process.removed_time IS NULL
       AND (k.options ? 'workers') IS NOT TRUE
     LIMIT 1) job ON true
  LEFT JOIN LATERAL (
    SELECT t.response, t.rejection
      FROM tasks t
     WHERE t.namespace = notified_parents.namespace
       AND t.process_id = notified_parents.process_id
       AND t.task_id = notified_parents.task_id
    UNION ALL
    SELECT a.response, a.rejection
      FROM answers a
     WHERE a.namespace = notified_parents.namespace
       AND a.process_id = notified_parents.process_id
       AND a.task_id = notified_parents.task_id
     LIMIT 1) answer ON true
RETURNING namespace, process_id;

-- ReleaseMessages releases held messages of processes that were resumed or repaired, have ended or
-- are removed. It runs after the change, in the same transaction, and releases at most lim messages
-- of each process. If there may be more, the process is listed in queue_backlogs and SettleQueues
-- releases the others. All messages of a target, including held ones, are delivered in order.
-- name: ReleaseMessages :many
WITH released_processes AS MATERIALIZED (
  SELECT DISTINCT item.namespace, item.process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
         AS item(namespace, process_id)
   WHERE NOT EXISTS (
     SELECT 1 FROM processes p
      WHERE p.namespace = ANY (ARRAY[item.namespace])
        AND p.process_id = item.process_id
        AND p.removed_time IS NULL
        AND p.status IN ('SUSPENDED', 'ERROR'))),
updated_messages AS (
  UPDATE messages m
     SET held = false
    FROM (
      SELECT held_message.*
        FROM released_processes
       CROSS JOIN LATERAL (
         SELECT o.namespace, o.process_id, o.message_id
           FROM messages o
          WHERE o.namespace = released_processes.namespace
            AND o.process_id = released_processes.process_id
            AND o.held::int = 1
          ORDER BY o.namespace, o.process_id, o.message_id LIMIT @lim::int) held_message) released
   WHERE m.namespace = ANY (ARRAY[released.namespace])
     AND m.process_id = released.process_id
     AND m.message_id = released.message_id
  RETURNING m.namespace, m.process_id, m.message_id),
backlog AS (
  INSERT INTO queue_backlogs (namespace, process_id, after_message_id)
  SELECT updated_messages.namespace, updated_messages.process_id, max(updated_messages.message_id)
    FROM updated_messages GROUP BY updated_messages.namespace, updated_messages.process_id
  HAVING count(*) = @lim::int
  ON CONFLICT (namespace, process_id) DO UPDATE SET
         resuming = false, after_message_id = excluded.after_message_id)
SELECT DISTINCT updated_messages.namespace, updated_messages.process_id
  FROM updated_messages;

-- LockMessageKeys creates and locks the unique keys of jobs in messages, in order. DeliverStarts
-- follows, so its snapshot contains the changes of all earlier holders of a key. See EnsureJobKeys.
-- name: LockMessageKeys :exec
INSERT INTO job_keys (namespace, unique_key)
SELECT DISTINCT item.namespace, message.unique_key
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
 CROSS JOIN LATERAL (
   SELECT s.job->>'uniqueKey' AS unique_key FROM messages s
    WHERE s.namespace = item.namespace
      AND s.process_id = item.process_id
    ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) message
 WHERE message.unique_key IS NOT NULL
 ORDER BY 1, 2
ON CONFLICT (namespace, unique_key) DO UPDATE SET process_id = job_keys.process_id;

-- SearchMessages returns targets of undelivered messages, at most lim of each namespace, after a
-- given process_id. due reports whether the first message of a target should be delivered now: a
-- message of a SQL function always, and a message of a process only if the message is so old that
-- the node of its sender should have delivered it, or if the message is from the future, because
-- the clock was set back. due is false while another session delivers the first message.
-- SearchMessages reads one row per target, regardless of the number of waiting messages.
-- name: SearchMessages :many
WITH RECURSIVE spaces AS (
  (SELECT m.namespace FROM messages m WHERE NOT m.held ORDER BY m.namespace LIMIT 1)
  UNION ALL
  SELECT next_space.namespace FROM spaces s
   CROSS JOIN LATERAL (
     SELECT m.namespace FROM messages m
      WHERE NOT m.held
        AND m.namespace > s.namespace
      ORDER BY m.namespace LIMIT 1) next_space),
targets AS (
  SELECT s.namespace, next_message.process_id, next_message.message_id, 1 AS n
    FROM spaces s
   CROSS JOIN LATERAL (
     SELECT m.process_id, m.message_id
       FROM messages m
      WHERE NOT m.held
        AND m.namespace = s.namespace
        AND m.process_id > coalesce((
          SELECT item.process_id
            FROM ROWS FROM (unnest(@after_namespaces::text[]), unnest(@after_process_ids::text[]))
                 AS item(namespace, process_id)
           WHERE item.namespace = s.namespace LIMIT 1),
                                    '')
      ORDER BY m.namespace, m.process_id, m.message_id LIMIT 1) next_message
  UNION ALL
  SELECT t.namespace, next_message.process_id, next_message.message_id, t.n + 1
    FROM targets t
   CROSS JOIN LATERAL (
     SELECT m.process_id, m.message_id
       FROM messages m
      WHERE NOT m.held
        AND m.namespace = t.namespace
        AND m.process_id > t.process_id
      ORDER BY m.namespace, m.process_id, m.message_id LIMIT 1) next_message
   WHERE t.n < @lim::int)
SELECT t.namespace::text AS namespace, t.process_id::text AS process_id,
       (first_message.message_id IS NOT NULL)::bool AS due
  FROM targets t
  LEFT JOIN LATERAL (
    SELECT m.message_id FROM messages m
     WHERE m.namespace = t.namespace
       AND m.process_id = t.process_id
       AND m.message_id = t.message_id
       AND (m.sender_process_id IS NULL
            OR m.created_time
                 NOT BETWEEN statement_timestamp() - (@age_us::bigint) * interval '1 microsecond'
                     AND statement_timestamp() + (@age_us::bigint) * interval '1 microsecond')
       FOR UPDATE SKIP LOCKED) first_message ON true;

-- ForgetDeadLetters deletes dead letters whose retention has passed, lim at a time. A dead letter
-- is a message that could not be delivered.
-- name: ForgetDeadLetters :execrows
DELETE FROM dead_letters
 WHERE message_id = ANY (ARRAY(
   SELECT d.message_id FROM dead_letters d
    WHERE d.dropped_time
            < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
    LIMIT @lim::int));
