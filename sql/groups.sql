-- TakeGroups takes jobs of several workers that need a decision: new ones, those with an ended
-- member, and those with a cancel request. They wait for a slot, which only the engine gives them.
-- name: TakeGroups :many
SELECT s.namespace, s.process_id, (p.cancel_deadline IS NOT NULL)::bool AS cancelling, coalesce(p.cancel_reason, '')::text AS cancel_reason, j.options
  FROM schedule s JOIN processes p ON p.namespace = ANY (ARRAY[s.namespace]) AND p.process_id = s.process_id
 CROSS JOIN LATERAL (SELECT j.options FROM jobs j WHERE j.namespace = s.namespace AND j.process_id = s.process_id LIMIT 1) j
 WHERE s.taker = '~' AND (s.waits_for = 'place')::int = 1 AND p.status = 'INIT'
 LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED;

-- WakeGroups lets jobs that wait for their members be decided again, in some namespaces, at most
-- lim. Locked rows are left to the next call.
-- name: WakeGroups :execrows
UPDATE schedule s SET waits_for = 'place'
  FROM (SELECT w.namespace, w.process_id, w.task_id FROM unnest(@namespaces::text[]) AS n(namespace)
         CROSS JOIN LATERAL (SELECT s.namespace, s.process_id, s.task_id FROM schedule s
                              WHERE s.waits_for = 'members' AND s.namespace COLLATE "POSIX" = n.namespace LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) w) x
 WHERE s.namespace = ANY (ARRAY[x.namespace]) AND s.process_id = x.process_id AND s.task_id = x.task_id;

-- PutGroups creates or changes the rows of groups and thereby locks them, in order, so that no
-- place is taken in the meantime. It runs after TakeGroups.
-- name: PutGroups :exec
INSERT INTO job_groups (namespace, process_id, count, max_failures, worker_ids)
SELECT x.namespace, x.process_id, x.count, x.max_failures, CASE WHEN x.worker_ids <> '' THEN ARRAY(SELECT jsonb_array_elements_text(x.worker_ids::jsonb)) END
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@counts::int[]), unnest(@max_failures::int[]), unnest(@worker_ids::text[]))
       AS x(namespace, process_id, count, max_failures, worker_ids)
 ORDER BY x.namespace, x.process_id
ON CONFLICT (namespace, process_id) DO UPDATE SET count = excluded.count, max_failures = excluded.max_failures, worker_ids = excluded.worker_ids;

-- ReadPlaces returns the places of groups, in the order of their creation.
-- name: ReadPlaces :many
SELECT l.namespace, l.process_id, l.job_id, coalesce(l.worker_id, '')::text AS worker_id, coalesce(l.state, '')::text AS state, l.asked, l.failure
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_ids::text[])) AS x(namespace, job_id)
 CROSS JOIN LATERAL (SELECT l.* FROM job_places l WHERE l.namespace = x.namespace AND l.job_id = x.job_id OFFSET 0) l
 ORDER BY l.namespace, l.job_id, octet_length(l.process_id), l.process_id;

-- DropPlaces deletes places whose member has ended in a way that does not count.
-- name: DropPlaces :exec
DELETE FROM job_places l USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS x(namespace, process_id)
 WHERE l.namespace = ANY (ARRAY[x.namespace]) AND l.process_id = x.process_id;

-- SetTakers stores which workers get no other place of a group.
-- name: SetTakers :exec
UPDATE job_groups g SET takers = ARRAY(SELECT jsonb_array_elements_text(x.takers::jsonb))
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@takers::text[])) AS x(namespace, process_id, takers)
 WHERE g.namespace = ANY (ARRAY[x.namespace]) AND g.process_id = x.process_id;

-- OpenPlaces creates places of a job and starts a member in each, with a message that has the args
-- and options of the job. worker_id '': the place is for any worker that the group allows. Numbers
-- of members are not reused. The results of members of a step belong to its run.
-- name: OpenPlaces :many
WITH i AS MATERIALIZED (
  SELECT x.namespace, x.job_id, x.worker_id, '~job/~/' || CASE WHEN octet_length(x.job_id) <= 220 THEN x.job_id ELSE md5(x.job_id) END || '/' || nextval('task_ids') AS process_id
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@job_ids::text[]), unnest(@worker_ids::text[])) AS x(namespace, job_id, worker_id)),
l AS (
  INSERT INTO job_places (namespace, process_id, job_id, worker_id, pinned)
  SELECT i.namespace, i.process_id, i.job_id, NULLIF(i.worker_id, ''), i.worker_id <> '' FROM i)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, args, metadata, notify_parent_args, job)
SELECT i.namespace, i.process_id, 'start', i.namespace, i.job_id, s.task_id, statement_timestamp(), s.args, p.metadata, '',
       jsonb_strip_nulls(jsonb_build_object('name', j.name, 'priority', s.priority, 'timeoutUs', (extract(epoch FROM j.timeout) * 1000000)::bigint,
         'tags', j.tags, 'taker', CASE WHEN i.worker_id <> '' THEN '=' || i.worker_id ELSE '' END)) || jsonb_build_object('options', j.options - 'workers' - 'unique' || CASE WHEN starts_with(i.job_id, '~job/') THEN '{"keepResult": true}' ELSE '{}' END::jsonb)
  FROM i
 CROSS JOIN LATERAL (SELECT s.task_id, s.args, s.priority FROM schedule s WHERE s.namespace = i.namespace AND s.process_id = i.job_id AND s.task_type = 'INIT' LIMIT 1) s
 CROSS JOIN LATERAL (SELECT p.metadata FROM processes p WHERE p.namespace = i.namespace AND p.process_id = i.job_id LIMIT 1) p
 CROSS JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.namespace = i.namespace AND j.process_id = i.job_id LIMIT 1) j
RETURNING namespace, process_id;

-- CancelMembers asks members to end, each once, with messages.
-- name: CancelMembers :exec
WITH u AS (
  UPDATE job_places l SET asked = true FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS x(namespace, process_id)
   WHERE l.namespace = ANY (ARRAY[x.namespace]) AND l.process_id = x.process_id)
INSERT INTO messages (namespace, process_id, kind, sender_namespace, sender_process_id, sender_task_id, created_time, reason)
SELECT x.namespace, x.process_id, 'cancel', x.namespace, x.job_id, 0, statement_timestamp(), NULLIF(x.reason, '')
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@job_ids::text[]), unnest(@reasons::text[])) AS x(namespace, process_id, job_id, reason);

-- RestGroups lets groups wait for the end of a member. The first time, the only attempt of the
-- group begins. mode: which events the namespace keeps.
-- name: RestGroups :exec
WITH x AS MATERIALIZED (
  SELECT x.*, s.task_id, s.attempt, s.job_name FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@modes::int[])) AS x(namespace, process_id, mode)
   CROSS JOIN LATERAL (SELECT s.* FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.taker = '~' LIMIT 1) s),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt)
  SELECT x.namespace, x.process_id, 'started', 'available', 'running', 1 FROM x WHERE x.attempt = 0 AND x.mode = 2),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT x.namespace, x.job_name, 'running', count(*) FROM x WHERE x.attempt = 0 GROUP BY x.namespace, x.job_name ORDER BY x.namespace, x.job_name
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n)
UPDATE schedule s SET waits_for = 'members', attempt = 1, fencing_token = coalesce(s.fencing_token, nextval('fencing_tokens'))
  FROM x WHERE s.namespace = ANY (ARRAY[x.namespace]) AND s.process_id = x.process_id AND s.task_id = x.task_id;

-- EndGroups ends jobs of several workers. outcome: succeeded, failed, cancelled. kept: the job
-- keeps the results of its members for ttl_us, as an object by worker. Results beyond 8 MiB
-- (process.MaxGroupResultBytes) are omitted. For a step, they are the response of its task, which
-- its run gets. A retried group may end before it rests; it was then not running. A failure that is
-- not the one of a worker is added to those of the workers. It runs after TakeGroups.
-- name: EndGroups :many
WITH i AS MATERIALIZED (
  SELECT x.*, s.task_id, s.priority, s.scheduled_time, s.idempotency_key, s.args, s.job_name, s.attempt, s.fencing_token, p.cancel_deadline, p.cancel_reason, l.running_time, l.failures, l.results, l.left_out,
         CASE x.outcome WHEN 'succeeded' THEN 'COMPLETED' WHEN 'failed' THEN 'ERROR' ELSE 'CANCELLED' END::process_status AS new_status
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@outcomes::text[]), unnest(@failures::text[]), unnest(@details::text[]),
                    unnest(@kepts::bool[]), unnest(@ttls_us::bigint[]), unnest(@modes::int[])) AS x(namespace, process_id, outcome, failure, detail, kept, ttl_us, mode)
   CROSS JOIN LATERAL (SELECT s.* FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_type = 'INIT' LIMIT 1) s
   CROSS JOIN LATERAL (SELECT p.cancel_deadline, p.cancel_reason FROM processes p WHERE p.namespace = x.namespace AND p.process_id = x.process_id LIMIT 1) p
   CROSS JOIN LATERAL (
     SELECT min(l.running_time) AS running_time,
            json_object_agg(l.worker_id, convert_from(l.result, 'UTF8')::json ORDER BY l.finished_time)
              FILTER (WHERE l.result_bytes <= 8 * 1024 * 1024 AND l.result IS NOT NULL) AS results,
            count(l.result) FILTER (WHERE l.result_bytes > 8 * 1024 * 1024) AS left_out,
            jsonb_agg(jsonb_build_object('attempt', l.attempts, 'workerId', l.worker_id, 'time', l.finished_time, 'takeover', false, 'failure', l.failure) ORDER BY l.finished_time)
              FILTER (WHERE l.state = 'failed') AS failures
       FROM (SELECT l.*, sum(octet_length(l.result)) OVER (ORDER BY l.finished_time, l.process_id) AS result_bytes
               FROM job_places l WHERE l.namespace = x.namespace AND l.job_id = x.process_id) l) l),
up AS (
  UPDATE processes p SET status = i.new_status, previous_status = p.status, status_changed_time = statement_timestamp(),
         attention = i.new_status, attention_time = statement_timestamp(), cancel_deadline = NULL,
         detail = NULLIF(i.detail, ''), corrupted_by = CASE i.outcome WHEN 'failed' THEN i.task_id END
    FROM i WHERE p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = i.process_id
  RETURNING p.namespace, i.new_status),
cn AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT up.namespace, x.status, sum(x.n) FROM up CROSS JOIN LATERAL (VALUES ('RUNNING'::process_status, -1), (up.new_status, 1)) AS x(status, n)
   GROUP BY up.namespace, x.status HAVING sum(x.n) <> 0 ORDER BY up.namespace, x.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
jc AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT i.namespace, i.job_name, x.state, sum(x.n) FROM i
   CROSS JOIN LATERAL (VALUES (true, 'available', -1), (true, i.outcome, 1), (i.attempt > 0, CASE WHEN i.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, -1)) AS x(counts, state, n)
   WHERE x.counts GROUP BY i.namespace, i.job_name, x.state HAVING sum(x.n) <> 0 ORDER BY i.namespace, i.job_name, x.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
je AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, attempt, message)
  SELECT i.namespace, i.process_id, i.outcome, CASE WHEN i.attempt = 0 THEN 'available' WHEN i.cancel_deadline IS NULL THEN 'running' ELSE 'cancel_requested' END, i.outcome, 1,
         NULLIF(CASE WHEN i.outcome = 'cancelled' THEN coalesce(i.cancel_reason, '')
                     WHEN i.outcome = 'succeeded' AND i.kept AND i.left_out > 0
                     THEN 'the results of ' || i.left_out || ' workers are left out: the results of a job have at most 8 MiB'
                     ELSE i.detail END, '') FROM i WHERE i.mode > 0),
ds AS (
  DELETE FROM schedule s USING i WHERE s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = i.process_id),
jb AS (
  UPDATE jobs j SET updated_time = statement_timestamp(),
         failures = CASE WHEN i.failure = '' OR i.failures @> jsonb_build_array(jsonb_build_object('failure', i.failure::jsonb)) THEN i.failures
                         ELSE coalesce(i.failures, '[]') || jsonb_build_array(jsonb_build_object('attempt', 1, 'workerId', '', 'time', statement_timestamp(), 'takeover', false, 'failure', i.failure::jsonb)) END,
         result = CASE WHEN i.kept THEN convert_to(coalesce(i.results, '{}')::text, 'UTF8') END,
         result_expires_time = CASE WHEN i.kept THEN statement_timestamp() + i.ttl_us * interval '1 microsecond' ELSE j.result_expires_time END
    FROM i WHERE j.namespace = ANY (ARRAY[i.namespace]) AND j.process_id = i.process_id),
pl AS (
  UPDATE job_places l SET result = NULL FROM i WHERE i.outcome = 'succeeded' AND l.namespace = ANY (ARRAY[i.namespace]) AND l.job_id = i.process_id AND l.result IS NOT NULL),
tk AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, priority, fencing_token, scheduled_time, running_time,
                     finished_time, idempotency_key, args, failure, response)
  SELECT namespace, process_id, task_id, 'INIT', CASE outcome WHEN 'succeeded' THEN 'FINISHED' WHEN 'failed' THEN 'ERROR' ELSE 'CANCELLED' END::task_status, 1, priority,
         coalesce(fencing_token, nextval('fencing_tokens')), scheduled_time, coalesce(running_time, statement_timestamp()), statement_timestamp(), idempotency_key, args, NULLIF(failure, '')::jsonb,
         CASE WHEN outcome = 'succeeded' AND starts_with(process_id, '~job/') THEN convert_to(coalesce(results, '{}')::text, 'UTF8') END
    FROM i)
SELECT i.namespace::text AS namespace, i.process_id::text AS process_id, i.task_id FROM i;

-- SeatMembers sets which workers may make the next attempt of members: the worker with the place
-- or, if it leaves the place, any worker that the group allows. It runs after SaveResult and
-- selects its items like WriteJobs. The rows of groups are locked in order; || '' prevents the
-- planner from reading all of them in order.
-- name: SeatMembers :exec
WITH i AS MATERIALIZED (
  SELECT l.namespace, l.process_id, l.job_id, l.worker_id, s.task_id, x.leaves AND NOT l.pinned AS leaves
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]), unnest(@leaves::bool[]))
         AS x(namespace, process_id, task_id, fencing_token, leaves)
   CROSS JOIN LATERAL (SELECT s.task_id FROM schedule s WHERE s.namespace = x.namespace AND s.process_id = x.process_id AND s.task_id = x.task_id
                          AND s.fencing_token = x.fencing_token AND s.xmin = pg_current_xact_id()::xid LIMIT 1) s
   CROSS JOIN LATERAL (SELECT l.* FROM job_places l WHERE l.namespace = x.namespace AND l.process_id = x.process_id LIMIT 1) l),
gr AS (
  UPDATE job_groups g SET takers = ARRAY(
         SELECT t FROM unnest(g.takers) AS t WHERE t <> ALL (ARRAY(
           SELECT i.worker_id FROM i WHERE i.leaves AND i.namespace = g.namespace AND i.job_id = g.process_id AND i.worker_id IS NOT NULL)))
    FROM (SELECT k.namespace, k.process_id FROM (SELECT DISTINCT i.namespace, i.job_id FROM i WHERE i.leaves) d
            JOIN job_groups k ON k.namespace = ANY (ARRAY[d.namespace]) AND k.process_id = d.job_id
           ORDER BY k.namespace || '', k.process_id || '' FOR UPDATE OF k) o
   WHERE g.namespace = ANY (ARRAY[o.namespace]) AND g.process_id = o.process_id),
pl AS (
  UPDATE job_places l SET worker_id = NULL FROM i WHERE i.leaves AND l.namespace = ANY (ARRAY[i.namespace]) AND l.process_id = i.process_id)
UPDATE schedule s SET taker = CASE WHEN i.leaves THEN '' ELSE '=' || i.worker_id END
  FROM i WHERE s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = i.process_id AND s.task_id = i.task_id;

-- WantedTakers returns which waiting workers could take a place of a group: the number of each.
-- name: WantedTakers :many
SELECT n.ord::int AS ord
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@job_names::text[]), unnest(@worker_ids::text[])) AS n(ord, namespace, job_name, worker_id)
 WHERE EXISTS (
   SELECT 1 FROM schedule s
    CROSS JOIN LATERAL (SELECT l.job_id FROM job_places l WHERE l.namespace = s.namespace AND l.process_id = s.process_id LIMIT 1) l
    CROSS JOIN LATERAL (SELECT g.* FROM job_groups g WHERE g.namespace = s.namespace AND g.process_id = l.job_id LIMIT 1) g
    CROSS JOIN LATERAL (SELECT 1 FROM processes o WHERE o.namespace = s.namespace AND o.process_id = l.job_id AND o.status = 'INIT' AND o.cancel_deadline IS NULL LIMIT 1) o
    WHERE s.taker = ANY (ARRAY['=' || n.worker_id, '']) AND s.namespace COLLATE "POSIX" = n.namespace AND (s.waits_for = 'place')::int = 1 AND (n.job_name = '' OR s.job_name = n.job_name)
      AND (s.taker <> '' OR NOT n.worker_id = ANY (g.takers) AND (g.worker_ids IS NULL OR n.worker_id = ANY (g.worker_ids))));
