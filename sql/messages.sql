-- SendMessages stores messages of results to other processes. It runs after SaveResult and
-- RemoveProcesses and applies only to items whose task end this transaction has written: a fenced
-- item sends nothing. grace_us -1: none. It returns the targets.
-- name: SendMessages :many
WITH i AS MATERIALIZED (
  SELECT x.* FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                             unnest(@kinds::text[]), unnest(@target_namespaces::text[]), unnest(@target_process_ids::text[]), unnest(@args::bytea[]), unnest(@contexts::bytea[]),
                             unnest(@metadatas::text[]), unnest(@start_times::timestamptz[]), unnest(@notify_parent_args::bytea[]), unnest(@reasons::text[]),
                             unnest(@jobs::text[]), unnest(@graces_us::bigint[]))
         WITH ORDINALITY AS x(namespace, process_id, task_id, fencing_token, kind, target_namespace, target_process_id, args, context, metadata, start_time,
                              notify_parent_args, reason, job, grace_us, n)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t WHERE t.namespace = x.namespace AND t.process_id = x.process_id AND t.task_id = x.task_id
        AND t.fencing_token = x.fencing_token AND t.xmin = pg_current_xact_id()::xid
     UNION ALL
     SELECT 1 FROM answers a WHERE a.namespace = x.namespace AND a.process_id = x.process_id AND a.task_id = x.task_id
        AND a.fencing_token = x.fencing_token AND a.xmin = pg_current_xact_id()::xid
     LIMIT 1) e)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, start_time, reason, args, context, metadata, notify_parent_args, job, grace)
SELECT target_namespace, target_process_id, kind::message_kind, namespace, process_id, task_id, statement_timestamp(), NULLIF(start_time, '0001-01-01Z'),
       NULLIF(reason, ''), args, context, NULLIF(metadata, '')::jsonb, notify_parent_args, NULLIF(job, '')::jsonb,
       NULLIF(grace_us, -1) * interval '1 microsecond' FROM i ORDER BY n
RETURNING namespace, process_id;

-- TellParents sends the messages to parents of processes that have ended, are in ERROR or are being
-- removed. It runs after the change and reads the current state, so it needs no token: if nothing
-- has ended, or the parent was already notified, nothing happens. task_ids: the task whose response
-- is sent; 0: none. It returns the parents.
-- name: TellParents :many
WITH e AS MATERIALIZED (
  SELECT p.namespace, p.process_id, x.task_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[])) AS x(namespace, process_id, task_id)
    JOIN processes p ON p.namespace = ANY (ARRAY[x.namespace]) AND p.process_id = x.process_id
   WHERE p.removed_time IS NOT NULL OR p.status IN ('COMPLETED', 'CANCELLED', 'ERROR')),
d AS (
  DELETE FROM parents r USING e WHERE r.namespace = ANY (ARRAY[e.namespace]) AND r.process_id = e.process_id
  RETURNING r.*),
c AS MATERIALIZED (
  SELECT d.*, (SELECT max(e.task_id) FROM e WHERE e.namespace = d.namespace AND e.process_id = d.process_id) AS task_id FROM d)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, child)
SELECT c.parent_namespace, c.parent_process_id, 'child_end', c.namespace, c.process_id, c.task_id, statement_timestamp(), c.args,
       jsonb_strip_nulls(jsonb_build_object('namespace', c.namespace, 'processId', c.process_id,
         'status', 'PROCESS_STATUS_' || CASE WHEN p.removed_time IS NULL THEN p.status::text ELSE 'UNSPECIFIED' END,
         'response', translate(encode(o.response, 'base64'), E'\n', ''),
         'detail', CASE WHEN p.removed_time IS NULL THEN p.detail ELSE 'rejected: ' || NULLIF(concat_ws(': ', o.rejection->>'reason', NULLIF(o.rejection->>'message', '')), '') END))
  FROM c
 CROSS JOIN LATERAL (SELECT p.status, p.detail, p.removed_time FROM processes p WHERE p.namespace = c.namespace AND p.process_id = c.process_id LIMIT 1) p
  LEFT JOIN LATERAL (
    SELECT t.response, t.rejection FROM tasks t WHERE t.namespace = c.namespace AND t.process_id = c.process_id AND t.task_id = c.task_id
    UNION ALL
    SELECT a.response, a.rejection FROM answers a WHERE a.namespace = c.namespace AND a.process_id = c.process_id AND a.task_id = c.task_id
    LIMIT 1) o ON true
RETURNING namespace, process_id;

-- ReleaseMessages releases held messages of processes that were resumed or repaired, have ended or
-- are removed. It runs after the change, in the same transaction, and releases at most lim messages
-- of each process. If there may be more, the process is listed in queue_backlogs and SettleQueues
-- releases the others. Messages of a target are delivered in order, held or not.
-- name: ReleaseMessages :many
WITH x AS MATERIALIZED (
  SELECT DISTINCT k.namespace, k.process_id FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS k(namespace, process_id)
   WHERE NOT EXISTS (SELECT 1 FROM processes p WHERE p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id
                        AND p.removed_time IS NULL AND p.status IN ('SUSPENDED', 'ERROR'))),
u AS (
  UPDATE messages m SET held = false
   WHERE m.ctid = ANY (ARRAY(SELECT v.ctid FROM x CROSS JOIN LATERAL (
           SELECT o.ctid FROM messages o WHERE o.namespace = x.namespace AND o.process_id = x.process_id AND o.held::int = 1
            ORDER BY o.namespace, o.process_id, o.message_id LIMIT @lim::int) v))
  RETURNING m.namespace, m.process_id, m.message_id),
backlog AS (
  INSERT INTO queue_backlogs (namespace, process_id, after_message_id)
  SELECT u.namespace, u.process_id, max(u.message_id) FROM u GROUP BY u.namespace, u.process_id HAVING count(*) = @lim::int
  ON CONFLICT (namespace, process_id) DO UPDATE SET resuming = false, after_message_id = excluded.after_message_id)
SELECT DISTINCT u.namespace, u.process_id FROM u;

-- LockMessageKeys creates and locks the unique keys of jobs in messages, in order. DeliverStarts
-- follows; its snapshot then contains the changes of all earlier holders of a key. See
-- EnsureJobKeys.
-- name: LockMessageKeys :exec
INSERT INTO job_keys (namespace, unique_key)
SELECT DISTINCT k.namespace, m.unique_key
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS k(namespace, process_id)
 CROSS JOIN LATERAL (SELECT s.job->>'uniqueKey' AS unique_key FROM messages s WHERE s.namespace = k.namespace AND s.process_id = k.process_id
                      ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) m
 WHERE m.unique_key IS NOT NULL ORDER BY 1, 2
ON CONFLICT (namespace, unique_key) DO UPDATE SET process_id = job_keys.process_id;

-- DeliverStarts takes the starts that are first for their targets and creates the processes; an
-- existing process does not change. A process that is being removed still has its id: its start
-- waits until it is gone. (The condition on removed_time prevents the use of the index of removed
-- processes.) The kind of the engine's own processes follows from their id. If nothing was started,
-- a sender of the engine itself that waits for the end is notified, because it would wait forever.
--
-- A start of a job enqueues it, with its unique key, if any: see EnqueueJobs. Of two messages with
-- the same key for different processes, only the first one is taken here. If the keys of its
-- constraints are unknown, or of another version, the job waits to be evaluated. outcome:
-- delivered, exists (also: another job has the unique key), not_found (the namespace does not
-- exist). more: there may be more messages.
-- name: DeliverStarts :many
WITH v AS MATERIALIZED (
  SELECT k.namespace, k.process_id, k.mode, m.message_id, m.n = @lim::int AS more,
         m.unique_key IS NOT NULL AND first_value(k.process_id) OVER (PARTITION BY k.namespace, m.unique_key ORDER BY m.message_id) <> k.process_id AS behind
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@modes::int[])) AS k(namespace, process_id, mode)
   CROSS JOIN LATERAL (
     SELECT v.message_id, v.unique_key, bool_and(v.kind = 'start') OVER (ORDER BY v.message_id ROWS UNBOUNDED PRECEDING) AS leading, count(*) OVER () AS n
       FROM (SELECT s.message_id, s.kind, s.job->>'uniqueKey' AS unique_key FROM messages s WHERE s.namespace = k.namespace AND s.process_id = k.process_id
              ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) v) m
   WHERE m.leading
     AND NOT EXISTS (SELECT 1 FROM processes p WHERE p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id AND (p.removed_time IS NULL)::int = 0)),
w AS MATERIALIZED (SELECT v.namespace, v.process_id, v.message_id, v.more, v.mode FROM v WHERE NOT v.behind),
m AS (
  DELETE FROM messages m USING w WHERE m.namespace = ANY (ARRAY[w.namespace]) AND m.process_id = w.process_id AND m.message_id = w.message_id
  RETURNING m.*),
a AS MATERIALIZED (
  SELECT m.*, nextval('task_ids') AS new_task_id, row_number() OVER (PARTITION BY m.namespace, m.process_id ORDER BY m.message_id) = 1 AS first,
         EXISTS (SELECT 1 FROM namespaces n WHERE n.namespace = m.namespace) AS known,
         coalesce(m.start_time > statement_timestamp(), false) AS later, h.process_id AS holder,
         m.job IS NOT NULL AND (m.job->'options' ? 'workers') IS NOT TRUE AND coalesce((SELECT x.version FROM constraint_sets x WHERE x.namespace = m.namespace), 0) <> coalesce((m.job->>'constraintsVersion')::bigint, 0) AS stale,
         ((m.namespace, m.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.more)) IS TRUE AS more,
         ((m.namespace, m.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.mode = 2)) IS TRUE AS told
    FROM m
    LEFT JOIN LATERAL (
      SELECT k.process_id FROM job_keys k
        LEFT JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id AND p.removed_time IS NULL LIMIT 1) p ON true
       WHERE m.job->>'uniqueKey' IS NOT NULL AND k.namespace = m.namespace AND k.unique_key = m.job->>'uniqueKey'
         AND CASE WHEN p.status IS NULL THEN k.held_until > statement_timestamp()
                  WHEN p.status IN ('COMPLETED', 'CANCELLED', 'ERROR') THEN p.status_changed_time + k.ttl > statement_timestamp()
                  ELSE (m.job->>'uniqueWaiting')::bool IS NOT TRUE OR (SELECT r.task_id FROM running r WHERE r.namespace = k.namespace AND r.process_id = k.process_id LIMIT 1) IS NULL
                       AND (SELECT s.task_id FROM schedule s WHERE s.namespace = k.namespace AND s.process_id = k.process_id AND s.taker = '~' AND s.attempt > 0 LIMIT 1) IS NULL END
       LIMIT 1) h ON true),
p AS (
  INSERT INTO processes (namespace, process_id, status, kind, metadata, created_time, status_changed_time)
  SELECT namespace, process_id, 'INIT', CASE WHEN job IS NOT NULL THEN 'job' ELSE coalesce(substring(process_id FROM '^~([a-z]+)/'), '') END, metadata,
         statement_timestamp(), statement_timestamp()
    FROM a WHERE first AND known AND holder IS NULL ORDER BY namespace, process_id
  ON CONFLICT DO NOTHING RETURNING namespace, process_id),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT p.namespace, 'RUNNING', count(*) FROM p GROUP BY p.namespace ORDER BY p.namespace
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
c AS MATERIALIZED (
  SELECT a.*, (a.first AND (a.namespace, a.process_id) IN (SELECT p.namespace, p.process_id FROM p)) AS created,
         CASE WHEN a.later THEN 'scheduled' ELSE 'available' END AS state FROM a),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT c.namespace, c.job->>'name', c.state, count(*) FROM c WHERE c.created AND c.job IS NOT NULL
   GROUP BY c.namespace, c.job->>'name', c.state ORDER BY c.namespace, c.job->>'name', c.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, to_status, message)
  SELECT c.namespace, c.process_id, 'enqueued', c.state, CASE WHEN c.sender_process_id IS NOT NULL THEN 'by process ' || c.sender_namespace || '/' || c.sender_process_id ELSE 'from SQL' END
    FROM c WHERE c.created AND c.job IS NOT NULL AND c.told),
jb AS (
  INSERT INTO jobs (namespace, process_id, name, timeout, tags, options, constraints_version, constraint_keys, unique_key)
  SELECT namespace, process_id, job->>'name', (job->>'timeoutUs')::bigint * interval '1 microsecond', job->'tags', job->'options',
         (job->>'constraintsVersion')::bigint, job->'constraintKeys', CASE WHEN (job->>'uniqueTtlUs')::bigint > 0 THEN job->>'uniqueKey' END FROM c WHERE created AND job IS NOT NULL),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time, args, context, job_name, line, taker)
  SELECT namespace, process_id, new_task_id, 'INIT', CASE WHEN later THEN 'time' WHEN stale OR job ? 'line' THEN 'constraint' ELSE 'place' END::waits_for, coalesce((job->>'priority')::int, 0),
         CASE WHEN later THEN start_time ELSE statement_timestamp() END, args, context, job->>'name', CASE WHEN stale THEN '' ELSE job->>'line' END, CASE WHEN job->'options' ? 'workers' THEN '~' ELSE job->>'taker' END FROM c WHERE created),
ke AS (
  UPDATE job_keys k SET process_id = c.process_id, ttl = coalesce((c.job->>'uniqueTtlUs')::bigint, 0) * interval '1 microsecond', held_until = NULL
    FROM c WHERE c.created AND c.job->>'uniqueKey' IS NOT NULL AND k.namespace = ANY (ARRAY[c.namespace]) AND k.unique_key = c.job->>'uniqueKey'),
pa AS (
  INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
  SELECT namespace, process_id, sender_namespace, sender_process_id, notify_parent_args
    FROM c WHERE created AND notify_parent_args IS NOT NULL AND sender_process_id IS NOT NULL),
told AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, child)
  SELECT c.sender_namespace, c.sender_process_id, 'child_end', c.namespace, c.process_id, 0, statement_timestamp(), c.notify_parent_args,
         jsonb_build_object('namespace', c.namespace, 'processId', c.process_id,
           'detail', CASE WHEN c.holder IS NOT NULL THEN 'not started: job ' || c.holder || ' holds its unique key'
                          WHEN c.known THEN 'not started: a process of this id exists already' ELSE 'not started: there is no such namespace' END)
    FROM c WHERE NOT c.created AND c.notify_parent_args IS NOT NULL AND starts_with(c.sender_process_id, '~')),
dead AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time, dropped_time, args)
  SELECT message_id, kind, 'not_found', namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time, statement_timestamp(), args
    FROM c WHERE NOT known)
SELECT c.namespace, c.process_id, c.kind::text AS kind, (CASE WHEN c.created THEN 'delivered' WHEN c.known THEN 'exists' ELSE 'not_found' END)::text AS outcome,
       c.later::bool AS later, c.more::bool AS more
  FROM c;

-- DeliverNotifies takes the notifies, and the ends of children, that are first for their targets,
-- and adds NOTIFY tasks behind their waiting tasks, regardless of max_waiting. A process with
-- max_tasks waiting tasks gets none: the messages stay until it has fewer. Messages to a process in
-- SUSPENDED or ERROR are held, at most hold_lim at a time. A job does not accept them, and holds
-- none, because a message that was held for a FAILED job would reach another run of it.
--
-- It runs after LockProcesses. Messages to a process that was inserted after the locks are left to
-- the next delivery: they may have been sent after the process was created, so they must not be
-- lost, and need the lock. outcome: delivered, noted (the end of a member, stored with its group),
-- held, full, not_found, ended. more: there may be more messages, or other kinds behind them.
-- name: DeliverNotifies :many
WITH w AS MATERIALIZED (
  SELECT k.namespace, k.process_id, p.status, coalesce(p.status IN ('SUSPENDED', 'ERROR') AND p.kind <> 'job', false) AS holds, m.message_ctid, m.leading, m.more,
         m.leading AND p.status IN ('INIT', 'RUNNING') AND p.kind <> 'job'
         AND (SELECT count(*) FROM (SELECT 1 FROM schedule s WHERE s.namespace = k.namespace AND s.process_id = k.process_id LIMIT @max_tasks::int) x) >= @max_tasks::int AS is_full
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS k(namespace, process_id)
    LEFT JOIN processes p ON p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id AND p.removed_time IS NULL
   CROSS JOIN LATERAL (
     SELECT v.message_ctid, bool_and(v.kind IN ('notify', 'child_end')) OVER (ORDER BY v.message_id ROWS UNBOUNDED PRECEDING) AS leading,
            count(*) OVER () = @lim::int OR NOT bool_and(v.kind IN ('notify', 'child_end')) OVER () AS more
       FROM (SELECT s.message_id, s.kind, s.ctid AS message_ctid FROM messages s WHERE s.namespace = k.namespace AND s.process_id = k.process_id
              ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) v) m
   WHERE p.process_id IS NULL OR p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid),
h AS (
  UPDATE messages m SET held = true
   WHERE m.ctid = ANY (ARRAY(SELECT v.ctid FROM (SELECT DISTINCT w.namespace, w.process_id FROM w WHERE w.holds) w CROSS JOIN LATERAL (
           SELECT o.ctid FROM messages o WHERE o.namespace = w.namespace AND o.process_id = w.process_id AND NOT o.held
            ORDER BY o.namespace, o.process_id, o.message_id LIMIT @hold_lim::int) v))
  RETURNING m.namespace, m.process_id, m.kind),
m AS (
  DELETE FROM messages m WHERE m.ctid = ANY (ARRAY(SELECT w.message_ctid FROM w WHERE w.leading AND NOT w.holds AND w.is_full IS NOT TRUE))
  RETURNING m.*),
-- task_ids are assigned in the order of the messages.
a AS MATERIALIZED (
  SELECT nextval('task_ids') AS task_id, coalesce(o.status IN ('INIT', 'RUNNING') AND o.process_kind <> 'job', false) AS delivered, o.*,
         (SELECT l.process_id FROM job_places l WHERE o.process_kind = 'job' AND o.kind = 'child_end' AND l.namespace = o.namespace AND l.process_id = o.child->>'processId'
                                            AND l.job_id = o.process_id AND l.state IS NULL) AS member_id,
         o.n = 1 AND o.status = 'RUNNING' AND o.cancel_deadline IS NULL
         AND NOT EXISTS (SELECT 1 FROM running r WHERE r.namespace = ANY (ARRAY[o.namespace]) AND r.process_id = o.process_id)
         AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.namespace = ANY (ARRAY[o.namespace]) AND s.process_id = o.process_id
                            AND s.waits_for::text IN ('process', 'place')) AS free,
         ((o.namespace, o.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.more)) IS TRUE AS more
    FROM (SELECT m.*, p.status, p.kind AS process_kind, p.cancel_deadline, row_number() OVER (PARTITION BY m.namespace, m.process_id ORDER BY m.message_id) AS n
            FROM m LEFT JOIN processes p ON p.namespace = ANY (ARRAY[m.namespace]) AND p.process_id = m.process_id AND p.removed_time IS NULL
           ORDER BY m.namespace, m.process_id, m.message_id) o),
sch AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, args, context, child)
  SELECT namespace, process_id, task_id, 'NOTIFY', CASE WHEN free THEN 'place' ELSE 'process' END::waits_for, statement_timestamp(), args, context, child
    FROM a WHERE delivered),
-- A process waits for a slot with the smallest priority of its waiting tasks.
lowered AS (
  UPDATE schedule s SET priority = 0, own_priority = coalesce(s.own_priority, s.priority)
    FROM (SELECT DISTINCT a.namespace, a.process_id FROM a WHERE a.delivered AND NOT a.free) x
   WHERE s.namespace = ANY (ARRAY[x.namespace]) AND s.process_id = x.process_id AND s.waits_for::text = 'place' AND s.priority > 0),
-- The end of a member is stored with its place, and its group is checked.
jp AS (
  UPDATE job_places l SET state = CASE a.child->>'status' WHEN 'PROCESS_STATUS_COMPLETED' THEN 'succeeded' WHEN 'PROCESS_STATUS_ERROR' THEN 'failed' ELSE 'cancelled' END,
         finished_time = statement_timestamp(), result = j.result, failure = j.failures->-1->'failure', attempts = coalesce(k.attempt, 0)
    FROM a
    LEFT JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.namespace = a.namespace AND j.process_id = a.member_id LIMIT 1) j ON true
    LEFT JOIN LATERAL (SELECT k.attempt FROM tasks k WHERE k.namespace = a.namespace AND k.process_id = a.member_id
                        ORDER BY k.namespace DESC, k.process_id DESC, k.task_id DESC LIMIT 1) k ON true
   WHERE a.member_id IS NOT NULL AND l.namespace = ANY (ARRAY[a.namespace]) AND l.process_id = a.member_id),
jr AS (
  UPDATE jobs j SET result = NULL FROM a WHERE a.member_id IS NOT NULL AND j.namespace = ANY (ARRAY[a.namespace]) AND j.process_id = a.member_id AND (j.result IS NULL)::int = 0),
js AS (
  UPDATE schedule s SET waits_for = 'place' FROM a
   WHERE a.member_id IS NOT NULL AND s.namespace = ANY (ARRAY[a.namespace]) AND s.process_id = a.process_id AND s.taker = '~' AND s.waits_for::text = 'members'),
dead AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time, dropped_time, args, child)
  SELECT message_id, kind, CASE WHEN status IS NULL THEN 'not_found' ELSE 'ended' END, namespace, process_id, sender_namespace, sender_process_id,
         sender_task_id, created_time, statement_timestamp(), args, child
    FROM a WHERE NOT delivered AND member_id IS NULL)
SELECT a.namespace, a.process_id, a.kind::text AS kind,
       (CASE WHEN a.delivered THEN 'delivered' WHEN a.member_id IS NOT NULL THEN 'noted' WHEN a.status IS NULL THEN 'not_found' ELSE 'ended' END)::text AS outcome, a.more::bool AS more
  FROM a
UNION ALL
SELECT h.namespace, h.process_id, h.kind::text, 'held', count(*) OVER (PARTITION BY h.namespace, h.process_id) = @hold_lim::int FROM h
UNION ALL
SELECT DISTINCT w.namespace, w.process_id, 'notify', 'full', false FROM w WHERE w.is_full;

-- DeliverCancels takes the cancels that are first for their targets, and asks these to end, like
-- CancelProcesses. It runs after DeliverNotifies, which holds messages to processes in SUSPENDED or
-- ERROR. A job gets no CANCEL task: a waiting job, suspended or not, is CANCELLED here, and its
-- parent is notified; a running job is told by the next heartbeat of its worker, and has its own
-- grace period. The FAILED job of a step is CANCELLED, too: only its run can request this, and no
-- longer needs it. outcome: delivered (also if a cancel is in progress), not_found, ended. more:
-- there may be more messages, or other kinds. overdue: the grace is 0, and EndOverdueCancel ends
-- the process at once: no node takes its CANCEL task.
-- name: DeliverCancels :many
WITH w AS MATERIALIZED (
  SELECT k.namespace, k.process_id, k.mode, m.message_id, m.more
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@modes::int[])) AS k(namespace, process_id, mode)
   CROSS JOIN LATERAL (
     SELECT v.message_id, bool_and(v.kind = 'cancel') OVER (ORDER BY v.message_id ROWS UNBOUNDED PRECEDING) AS leading,
            count(*) OVER () = @lim::int OR NOT bool_and(v.kind = 'cancel') OVER () AS more
       FROM (SELECT s.message_id, s.kind FROM messages s WHERE s.namespace = k.namespace AND s.process_id = k.process_id
              ORDER BY s.namespace, s.process_id, s.message_id LIMIT @lim::int) v) m
   WHERE m.leading AND NOT EXISTS (
     SELECT 1 FROM processes p WHERE p.namespace = ANY (ARRAY[k.namespace]) AND p.process_id = k.process_id AND p.removed_time IS NULL
        AND (p.status IN ('SUSPENDED', 'ERROR') AND p.kind <> 'job' OR p.xmax <> pg_current_xact_id()::xid AND p.xmin <> pg_current_xact_id()::xid))),
m AS (
  DELETE FROM messages m USING w WHERE m.namespace = ANY (ARRAY[w.namespace]) AND m.process_id = w.process_id AND m.message_id = w.message_id
  RETURNING m.*),
a AS MATERIALIZED (
  SELECT x.*, x.first AND x.open AND x.cancel_deadline IS NULL AND (NOT x.is_job OR x.busy) AS asks, x.first AND x.open AND x.is_job AND NOT x.busy AS ends,
         coalesce((SELECT (j.options->>'cancelGrace')::interval FROM jobs j WHERE x.is_job AND j.namespace = x.namespace AND j.process_id = x.process_id),
                  x.grace, (@grace_us::bigint) * interval '1 microsecond') AS any_grace
    FROM (
      SELECT m.*, p.status, p.cancel_deadline, r.task_id IS NOT NULL OR q.grouped IS TRUE AS busy, coalesce(r.attempt, 0) AS attempt, coalesce(q.job_name, f.name) AS job_name, q.begun, coalesce(q.state, CASE WHEN f.name IS NULL THEN 'running' ELSE 'failed' END) AS state, coalesce(p.kind = 'job', false) AS is_job,
             coalesce(p.status IN ('INIT', 'RUNNING') OR p.kind = 'job' AND p.status = 'SUSPENDED' OR f.name IS NOT NULL, false) AS open,
             row_number() OVER (PARTITION BY m.namespace, m.process_id ORDER BY m.message_id) = 1 AS first,
             ((m.namespace, m.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.more)) IS TRUE AS more,
             CASE WHEN ((m.namespace, m.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.mode = 2)) IS TRUE THEN 2
                  WHEN ((m.namespace, m.process_id) IN (SELECT w.namespace, w.process_id FROM w WHERE w.mode = 1)) IS TRUE THEN 1 ELSE 0 END AS mode
        FROM m
        LEFT JOIN processes p ON p.namespace = ANY (ARRAY[m.namespace]) AND p.process_id = m.process_id AND p.removed_time IS NULL
        LEFT JOIN running r ON r.namespace = ANY (ARRAY[m.namespace]) AND r.process_id = m.process_id
        LEFT JOIN LATERAL (SELECT s.job_name, s.taker = '~' AND s.attempt > 0 AS begun, s.taker = '~' AND s.attempt > 0 AND s.waits_for <> 'operator' AS grouped, CASE WHEN s.waits_for <> 'time' THEN 'available' WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state FROM schedule s
                            WHERE p.kind = 'job' AND s.namespace = m.namespace AND s.process_id = m.process_id AND s.task_type = 'INIT' LIMIT 1) q ON true
        LEFT JOIN LATERAL (SELECT j.name FROM jobs j WHERE p.kind = 'job' AND p.status = 'ERROR' AND starts_with(m.process_id, '~job/') AND j.namespace = m.namespace AND j.process_id = m.process_id LIMIT 1) f ON true) x),
up AS (
  UPDATE processes p SET cancel_requested_time = coalesce(p.cancel_requested_time, statement_timestamp()),
         cancel_reason = CASE WHEN p.cancel_requested_time IS NULL THEN NULLIF(a.reason, '') ELSE p.cancel_reason END,
         cancel_deadline = CASE WHEN a.asks THEN statement_timestamp() + a.any_grace END,
         status = CASE WHEN a.ends THEN 'CANCELLED' ELSE p.status END,
         previous_status = CASE WHEN a.ends THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE WHEN a.ends THEN statement_timestamp() ELSE p.status_changed_time END,
         attention = CASE WHEN a.ends THEN 'CANCELLED' ELSE p.attention END,
         attention_time = CASE WHEN a.ends THEN statement_timestamp() ELSE p.attention_time END,
         detail = CASE WHEN NOT a.ends THEN p.detail END, corrupted_by = CASE WHEN NOT a.ends THEN p.corrupted_by END
    FROM a WHERE p.namespace = ANY (ARRAY[a.namespace]) AND p.process_id = a.process_id AND (a.asks OR a.ends)
  RETURNING p.namespace, coalesce(p.attention, 'RUNNING') AS new_status,
            (CASE a.status WHEN 'INIT' THEN 'RUNNING' ELSE a.status::text END)::process_status AS old_status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, x.status, sum(x.n) FROM up CROSS JOIN LATERAL (VALUES (up.old_status, -1), (up.new_status, 1)) AS x(status, n)
   GROUP BY up.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY up.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
be AS (
  UPDATE schedule s SET waits_for = 'process', priority = coalesce(s.own_priority, s.priority), own_priority = NULL
    FROM a WHERE a.asks AND a.status = 'RUNNING' AND s.namespace = ANY (ARRAY[a.namespace]) AND s.process_id = a.process_id AND s.waits_for::text = 'place'),
lowered AS (
  UPDATE schedule s SET priority = 0, own_priority = coalesce(s.own_priority, s.priority)
    FROM a WHERE a.asks AND NOT a.is_job AND a.status = 'INIT' AND s.namespace = ANY (ARRAY[a.namespace]) AND s.process_id = a.process_id
     AND s.waits_for::text = 'place' AND s.priority > 0),
ct AS (
  INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, own_priority, scheduled_time, args, context)
  SELECT namespace, process_id, nextval('task_ids'), 'CANCEL',
         CASE WHEN status = 'RUNNING' AND NOT busy AND any_grace > interval '0' THEN 'place' ELSE 'process' END::waits_for,
         CASE WHEN status = 'RUNNING' AND NOT busy THEN least(queue_priority(namespace, process_id), 0) ELSE 0 END, 0,
         statement_timestamp(), convert_to(NULLIF(reason, ''), 'UTF8'), context FROM a WHERE asks AND NOT is_job),
-- A group cancels its members first.
gr AS (
  UPDATE schedule s SET waits_for = 'place' FROM a WHERE a.asks AND a.is_job AND s.namespace = ANY (ARRAY[a.namespace]) AND s.process_id = a.process_id AND s.taker = '~'),
mb AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, reason)
  SELECT l.namespace, l.process_id, 'cancel', l.namespace, l.job_id, 0, statement_timestamp(), a.reason
    FROM a JOIN job_places l ON l.namespace = ANY (ARRAY[a.namespace]) AND l.job_id = a.process_id WHERE a.ends AND l.state IS NULL),
ds AS (
  DELETE FROM schedule s USING a WHERE a.ends AND s.namespace = ANY (ARRAY[a.namespace]) AND s.process_id = a.process_id RETURNING s.*),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, x.state, sum(x.n) FROM a m
   CROSS JOIN LATERAL (VALUES (m.ends, m.state, -1), (m.ends, 'cancelled', 1), (m.begun, CASE WHEN m.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, -1),
                              (m.begun AND m.asks, 'cancel_requested', 1)) AS x(counts, state, n)
   WHERE x.counts AND (m.ends OR m.asks AND m.is_job) GROUP BY m.namespace, m.job_name, x.state HAVING sum(x.n) <> 0 ORDER BY m.namespace, m.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
  SELECT a.namespace, a.process_id, CASE WHEN a.ends THEN 'cancelled' ELSE 'cancel_requested' END, CASE WHEN a.begun IS NOT TRUE THEN a.state WHEN a.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, CASE WHEN a.ends THEN 'cancelled' ELSE 'cancel_requested' END,
         a.attempt, NULLIF(a.reason, '') FROM a WHERE a.ends AND a.mode > 0 OR a.asks AND a.is_job AND a.mode = 2),
tk AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, scheduled_time,
                     finished_time, retry_interval, timer_name, idempotency_key, args, context, failure)
  SELECT namespace, process_id, task_id, task_type, 'CANCELLED', attempt, coalesce(own_priority, priority), fencing_token, scheduled_time, statement_timestamp(),
         retry_interval, timer_name, idempotency_key, args, context, failure FROM ds),
fr AS (
  DELETE FROM constraint_holds h USING a WHERE a.ends AND h.namespace = ANY (ARRAY[a.namespace]) AND h.process_id = a.process_id),
pa AS (
  DELETE FROM parents r USING a WHERE a.ends AND r.namespace = ANY (ARRAY[a.namespace]) AND r.process_id = a.process_id RETURNING r.*),
told AS (
  INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, child)
  SELECT parent_namespace, parent_process_id, 'child_end', namespace, process_id, 0, statement_timestamp(), args,
         jsonb_build_object('namespace', namespace, 'processId', process_id, 'status', 'PROCESS_STATUS_CANCELLED') FROM pa),
dead AS (
  INSERT INTO dead_letters (message_id, kind, outcome, namespace, process_id, sender_namespace, sender_process_id, sender_task_id, created_time, dropped_time, reason)
  SELECT message_id, kind, CASE WHEN status IS NULL THEN 'not_found' ELSE 'ended' END, namespace, process_id, sender_namespace, sender_process_id,
         sender_task_id, created_time, statement_timestamp(), reason
    FROM a WHERE NOT open)
SELECT a.namespace, a.process_id, a.kind::text AS kind,
       (CASE WHEN a.open THEN 'delivered' WHEN a.status IS NULL THEN 'not_found' ELSE 'ended' END)::text AS outcome, a.more::bool AS more,
       (a.asks AND a.any_grace <= interval '0')::bool AS overdue,
       coalesce(pa.parent_namespace, '')::text AS parent_namespace, coalesce(pa.parent_process_id, '')::text AS parent_process_id
  FROM a LEFT JOIN pa ON a.ends AND pa.namespace = a.namespace AND pa.process_id = a.process_id;

-- SearchMessages returns targets of undelivered messages, at most lim of each namespace, after a
-- given process_id. A message of a SQL function is found at once, one of a process only if it is
-- older than its own node needs (or from the future, after the clock was set back). It reads one
-- row per target, however many messages wait. It skips targets whose first message is being
-- delivered.
-- name: SearchMessages :many
WITH RECURSIVE spaces AS (
  (SELECT m.namespace FROM messages m WHERE NOT m.held ORDER BY m.namespace LIMIT 1)
  UNION ALL
  SELECT n.namespace FROM spaces s CROSS JOIN LATERAL (
    SELECT m.namespace FROM messages m WHERE NOT m.held AND m.namespace > s.namespace ORDER BY m.namespace LIMIT 1) n),
targets AS (
  SELECT s.namespace, f.process_id, f.message_id, 1 AS n
    FROM spaces s
   CROSS JOIN LATERAL (
     SELECT m.process_id, m.message_id FROM messages m WHERE NOT m.held AND m.namespace = s.namespace AND m.process_id > coalesce((
        SELECT c.process_id FROM ROWS FROM (unnest(@after_namespaces::text[]), unnest(@after_process_ids::text[])) AS c(namespace, process_id)
         WHERE c.namespace = s.namespace LIMIT 1), '')
      ORDER BY m.namespace, m.process_id, m.message_id LIMIT 1) f
  UNION ALL
  SELECT t.namespace, f.process_id, f.message_id, t.n + 1
    FROM targets t CROSS JOIN LATERAL (
     SELECT m.process_id, m.message_id FROM messages m WHERE NOT m.held AND m.namespace = t.namespace AND m.process_id > t.process_id
      ORDER BY m.namespace, m.process_id, m.message_id LIMIT 1) f
   WHERE t.n < @lim::int)
SELECT t.namespace::text AS namespace, t.process_id::text AS process_id, (o.message_id IS NOT NULL)::bool AS due
  FROM targets t
  LEFT JOIN LATERAL (
    SELECT m.message_id FROM messages m
     WHERE m.namespace = t.namespace AND m.process_id = t.process_id AND m.message_id = t.message_id
       AND (m.sender_process_id IS NULL
            OR m.created_time NOT BETWEEN statement_timestamp() - (@age_us::bigint) * interval '1 microsecond'
                                      AND statement_timestamp() + (@age_us::bigint) * interval '1 microsecond')
     FOR UPDATE SKIP LOCKED) o ON true;

-- ForgetDeadLetters deletes messages that could not be delivered, lim at a time.
-- name: ForgetDeadLetters :execrows
DELETE FROM dead_letters WHERE message_id = ANY (ARRAY(
  SELECT d.message_id FROM dead_letters d
   WHERE d.dropped_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond' LIMIT @lim::int));
