-- LockConstraints is the first statement of every transaction that assigns keys to jobs or changes
-- constraints. Only one such transaction runs per namespace at a time, on all nodes. While it runs,
-- the counts of held keys can only decrease, because the ends of jobs free keys without this lock.
-- next_us is the time until the next job is due, or until the rate of a key allows the next start.
-- It is -1 if there is neither.
-- name: LockConstraints :one
SELECT c.version, c.changed_time, c.swept_time, c.cursor, statement_timestamp()::timestamptz AS now,
       coalesce(greatest(extract(epoch FROM least((
         SELECT s.scheduled_time FROM schedule s
          WHERE s.namespace COLLATE "POSIX" = c.namespace
            AND s.waits_for = 'time'
            AND s.line IS NOT NULL
          ORDER BY s.scheduled_time LIMIT 1),
                                                  (
                                                    SELECT b.next_time FROM constraint_buckets b
                                                     WHERE b.namespace = c.namespace
                                                       AND b.next_time IS NOT NULL
                                                     ORDER BY b.next_time
                                                     LIMIT 1)) - statement_timestamp()) * 1000000,
                         0),
                -1)::bigint AS next_us
  FROM constraint_sets c WHERE c.namespace = @namespace FOR UPDATE OF c;

-- ReadConstraints returns the constraints of a namespace.
-- name: ReadConstraints :many
SELECT name, match, key, max_running, rate_count, rate_per, rate_burst
  FROM constraints WHERE namespace = @namespace
 ORDER BY name;

-- ChangeConstraints increments the version of the constraints, and restarts the evaluation of the
-- waiting jobs.
-- name: ChangeConstraints :exec
INSERT INTO constraint_sets AS c (namespace, version, changed_time, began_time, cursor)
VALUES (@namespace, 1, clock_timestamp(), clock_timestamp(), '')
ON CONFLICT (namespace) DO UPDATE SET
       version = c.version + 1, changed_time = clock_timestamp(), began_time = clock_timestamp(),
       cursor = '';

-- PutConstraint creates or replaces a constraint.
-- name: PutConstraint :exec
INSERT INTO constraints (namespace, name, match, key, max_running, rate_count, rate_per, rate_burst)
VALUES (@namespace, @name, @match, @key, @max_running, NULLIF(@rate_count::int, 0),
        NULLIF(@rate_per_us::bigint, 0) * interval '1 microsecond', NULLIF(@rate_burst::int, 0))
ON CONFLICT (namespace, name) DO UPDATE SET
       match = excluded.match, key = excluded.key, max_running = excluded.max_running,
       rate_count = excluded.rate_count, rate_per = excluded.rate_per,
       rate_burst = excluded.rate_burst, updated_time = statement_timestamp();

-- name: DeleteConstraint :execrows
DELETE FROM constraints
 WHERE namespace = @namespace
   AND name = @name;

-- DueInLine moves jobs that need keys into their key queues when they are due.
-- name: DueInLine :many
WITH due_tasks AS MATERIALIZED (
  SELECT s.namespace, s.process_id, s.task_id
    FROM schedule s
    JOIN processes p
      ON p.namespace = ANY (ARRAY[s.namespace])
     AND p.process_id = s.process_id
   WHERE s.namespace COLLATE "POSIX" = @namespace::text
     AND s.waits_for = 'time'
     AND s.line IS NOT NULL
     AND s.scheduled_time <= statement_timestamp()
     AND p.status = 'INIT'
   ORDER BY s.scheduled_time LIMIT @lim::int FOR NO KEY UPDATE OF s, p SKIP LOCKED),
updated_schedule AS (
  UPDATE schedule s
     SET waits_for = 'constraint',
         round = CASE
                   WHEN s.fairness_key IS NULL THEN 0
                   ELSE next_round(s.namespace, 'constraint', s.job_name, s.line, s.priority,
                                   s.fairness_key)
                 END
    FROM due_tasks
   WHERE s.namespace = ANY (ARRAY[due_tasks.namespace])
     AND s.process_id = due_tasks.process_id
     AND s.task_id = due_tasks.task_id
  RETURNING s.namespace, s.process_id, s.job_name, s.line,
            CASE WHEN s.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS state),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT updated_schedule.namespace, updated_schedule.job_name, change.state, sum(change.n)
    FROM updated_schedule
   CROSS JOIN LATERAL (VALUES (updated_schedule.state, -1), ('available', 1)) AS change(state, n)
   WHERE NOT starts_with(updated_schedule.process_id, '~job/~/')
   GROUP BY updated_schedule.namespace, updated_schedule.job_name, change.state
  HAVING sum(change.n) <> 0
   ORDER BY updated_schedule.namespace, updated_schedule.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, message)
  SELECT updated_schedule.namespace, updated_schedule.process_id, 'due', updated_schedule.state,
         'available',
         CASE WHEN updated_schedule.line <> '' THEN 'needs ' || updated_schedule.line END
    FROM updated_schedule WHERE @mode::int = 2)
SELECT updated_schedule.line::text AS line FROM updated_schedule;

-- DueBuckets returns the keys whose rate allows another start, the longest due first.
-- name: DueBuckets :many
SELECT line FROM constraint_buckets
 WHERE namespace = @namespace
   AND next_time <= statement_timestamp()
 ORDER BY next_time LIMIT @lim::int;

-- NextInLine returns the time (in µs) until the next job is due, or until the rate of a key allows
-- the next start. It returns -1 if there is neither.
-- name: NextInLine :one
SELECT (CASE
          WHEN next_time.at IS NULL THEN -1
          ELSE greatest(extract(epoch FROM next_time.at - statement_timestamp()) * 1000000, 0)
        END)::bigint AS delay_us
  FROM (
    SELECT least((
      SELECT s.scheduled_time FROM schedule s
       WHERE s.namespace COLLATE "POSIX" = @namespace::text
         AND s.waits_for = 'time'
         AND s.line IS NOT NULL
       ORDER BY s.scheduled_time LIMIT 1),
                 (
                   SELECT b.next_time FROM constraint_buckets b
                    WHERE b.namespace = @namespace::text
                      AND b.next_time IS NOT NULL
                    ORDER BY b.next_time LIMIT 1)) AS at) next_time;

-- ReadLines returns how many jobs hold each key, with the buckets and reservations of the keys.
-- unstarted is the number of holders that have not been claimed yet. It is counted only for a key
-- with a rate. reserved_by is the job for which a key is reserved, with its position in lines, or
-- empty if no waiting job has reserved the key.
-- name: ReadLines :many
SELECT item.line::text AS line,
       (
         SELECT count(*) FROM constraint_holds h
          WHERE h.namespace COLLATE "POSIX" = @namespace::text
            AND h.line = item.line)::int AS held,
       (CASE
          WHEN item.rated
            THEN (
              SELECT count(*) FROM constraint_holds h
               CROSS JOIN LATERAL (
                 SELECT 1 FROM schedule s
                  WHERE s.namespace = h.namespace
                    AND s.process_id = h.process_id
                    AND s.waits_for::text = 'place'
                  LIMIT 1) waiting
               WHERE h.namespace COLLATE "POSIX" = @namespace::text
                 AND h.line = item.line)
          ELSE 0
        END)::int AS unstarted,
       (bucket.line IS NOT NULL)::bool AS has_bucket, coalesce(bucket.tokens, 0)::float8 AS tokens,
       coalesce(bucket.unstarted, 0)::int AS bucket_unstarted,
       coalesce(bucket.refilled_time, 'epoch')::timestamptz AS refilled_time,
       statement_timestamp()::timestamptz AS now,
       coalesce(reservation.process_id, '')::text AS reserved_by,
       coalesce(reservation.priority, 0)::int AS reserved_priority,
       coalesce(reservation.task_id, 0)::bigint AS reserved_task_id
  FROM ROWS FROM (unnest(@lines::text[]), unnest(@rateds::bool[])) AS item(line, rated)
  LEFT JOIN LATERAL (
    SELECT r.process_id, waiting.priority, waiting.task_id
      FROM constraint_reservations r
     CROSS JOIN LATERAL (
       SELECT s.priority, s.task_id
         FROM schedule s
        WHERE s.namespace = r.namespace
          AND s.process_id = r.process_id
          AND s.waits_for::text = 'constraint'
        LIMIT 1) waiting
     WHERE r.namespace = @namespace::text
       AND r.line = item.line
     LIMIT 1) reservation ON true
  LEFT JOIN LATERAL (
    SELECT b.* FROM constraint_buckets b
     WHERE item.rated
       AND b.namespace = @namespace::text
       AND b.line = item.line
     LIMIT 1) bucket ON true;

-- TakeLines takes the first jobs of key queues by priority, then round, then age, and at most as
-- many of each queue as rooms allows. It skips locked rows. It does not lock processes or check
-- their status: the lock of the row in schedule is sufficient, because every change of a job's
-- status also changes or deletes this row. Args, tags and metadata are read only for jobs that must
-- be evaluated again.
--
-- keys contains, for each queue, the constraint_keys of a job that needs only the key of this
-- queue. It is empty for the queue "", whose jobs must be evaluated. If each taken job needs only
-- the key of its queue, TakeLines gives all of them their keys (given is true), and they wait for
-- slots. Otherwise it gives no keys, and MoveJobs and HoldKeys follow. Like a claim, it searches
-- the rows by key, because a row that was changed after the snapshot has another ctid.
-- name: TakeLines :many
WITH taken AS MATERIALIZED (
  SELECT candidate.*, job.constraint_keys, job.tags,
         coalesce(job.constraints_version, 0) <> @version::bigint AS stale,
         (job.constraints_version = @version::bigint
          AND job.constraint_keys = candidate.keys) IS TRUE AS alone
    FROM (
      SELECT waiting.*, NULLIF(item.keys, '')::jsonb AS keys
        FROM ROWS FROM (unnest(@lines::text[]), unnest(@rooms::int[]), unnest(@keys::text[]))
             AS item(line, room, keys)
       CROSS JOIN LATERAL (
         SELECT s.namespace, s.line, s.process_id, s.task_id, s.priority, s.scheduled_time,
                s.job_name, s.args
           FROM schedule s
          WHERE s.namespace COLLATE "POSIX" = @namespace::text
            AND s.waits_for = 'constraint'
            AND s.line = item.line
            AND s.job_name <> ALL (@paused_names::text[])
          ORDER BY s.priority, s.round, s.task_id LIMIT item.room
            FOR NO KEY UPDATE SKIP LOCKED) waiting
       LIMIT @lim::int) candidate
   CROSS JOIN LATERAL (
     SELECT j.* FROM jobs j
      WHERE j.namespace = @namespace::text
        AND j.process_id = candidate.process_id
      LIMIT 1) job),
all_alone AS MATERIALIZED (
  SELECT bool_and(taken.alone) AS given FROM taken),
updated_schedule AS (
  UPDATE schedule s
     SET waits_for = 'place',
         round = CASE
                   WHEN s.fairness_key IS NULL THEN 0
                   ELSE next_round(s.namespace, 'place', s.job_name, s.line, s.priority,
                                   s.fairness_key)
                 END
    FROM taken
   WHERE (SELECT all_alone.given FROM all_alone)
     AND s.namespace = ANY (ARRAY[taken.namespace])
     AND s.process_id = taken.process_id
     AND s.task_id = taken.task_id),
inserted_constraint_holds AS (
  INSERT INTO constraint_holds (namespace, process_id, line)
  SELECT taken.namespace, taken.process_id, taken.line
    FROM taken WHERE (SELECT all_alone.given FROM all_alone)
  ON CONFLICT DO NOTHING)
SELECT taken.line::text AS line, taken.process_id, taken.task_id, taken.priority,
       taken.scheduled_time, taken.job_name::text AS name,
       (SELECT all_alone.given FROM all_alone)::bool AS given,
       (CASE
          WHEN NOT (SELECT all_alone.given FROM all_alone) THEN taken.constraint_keys
        END)::jsonb AS constraint_keys,
       taken.stale::bool AS stale,
       (CASE WHEN taken.stale THEN taken.args END)::bytea AS args,
       process.metadata,
       (CASE WHEN taken.stale THEN taken.tags END)::jsonb AS tags
  FROM taken
  LEFT JOIN LATERAL (
    SELECT p.metadata FROM processes p
     WHERE taken.stale
       AND p.namespace = taken.namespace
       AND p.process_id = taken.process_id
     LIMIT 1) process ON true;

-- MoveJobs sets waits_for and line of jobs that TakeLines or StaleJobs has taken. A job that needs
-- no key, or that has all its keys, waits for a slot. Any other job waits for the key of line. line
-- is empty if the job needs no key. If evaluated is true, keys replaces the constraint_keys of the
-- job.
-- name: MoveJobs :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@waits_fors::text[]),
                    unnest(@lines::text[]), unnest(@evaluateds::bool[]), unnest(@keys::text[]))
         AS item(namespace, process_id, task_id, waits_for, line, evaluated, keys)),
updated_jobs AS (
  UPDATE jobs j
     SET constraints_version = @version::bigint, constraint_keys = NULLIF(input.keys, '')::jsonb
    FROM input
   WHERE input.evaluated
     AND j.namespace = ANY (ARRAY[input.namespace])
     AND j.process_id = input.process_id)
UPDATE schedule s
   SET waits_for = input.waits_for::waits_for, line = NULLIF(input.line, ''),
       round = CASE
                 WHEN s.fairness_key IS NULL THEN 0
                 WHEN s.waits_for = input.waits_for::waits_for
                      AND (s.waits_for = 'place' OR s.line = input.line)
                   THEN s.round
                 ELSE next_round(s.namespace, input.waits_for::waits_for, s.job_name, input.line,
                                 s.priority, s.fairness_key)
               END
  FROM input
 WHERE s.namespace = ANY (ARRAY[input.namespace])
   AND s.process_id = input.process_id
   AND s.task_id = input.task_id;

-- HoldKeys stores that jobs hold keys.
-- name: HoldKeys :exec
INSERT INTO constraint_holds (namespace, process_id, line)
SELECT @namespace::text, item.process_id, item.line
  FROM ROWS FROM (unnest(@process_ids::text[]), unnest(@lines::text[])) AS item(process_id, line)
ON CONFLICT DO NOTHING;

-- DropReservations deletes the reservations of jobs, and returns their keys.
-- name: DropReservations :many
DELETE FROM constraint_reservations r USING unnest(@process_ids::text[]) AS item(process_id)
 WHERE r.namespace = @namespace::text
   AND r.process_id = item.process_id
RETURNING r.line;

-- ReserveKeys reserves keys for jobs. It runs after DropReservations and replaces reservations that
-- have no effect.
-- name: ReserveKeys :exec
INSERT INTO constraint_reservations (namespace, process_id, line)
SELECT @namespace::text, item.process_id, item.line
  FROM ROWS FROM (unnest(@process_ids::text[]), unnest(@lines::text[])) AS item(process_id, line)
ON CONFLICT (namespace, line) DO UPDATE SET
       process_id = excluded.process_id, reserved_time = excluded.reserved_time;

-- ForgetReservations deletes the reservations of jobs that do not wait for a key, or whose name is
-- paused.
-- name: ForgetReservations :exec
DELETE FROM constraint_reservations r
 WHERE r.namespace = @namespace
   AND NOT EXISTS (
     SELECT 1 FROM schedule s
      WHERE s.namespace = r.namespace
        AND s.process_id = r.process_id
        AND s.job_name <> ALL (@paused_names::text[])
        AND s.waits_for::text = 'constraint');

-- WriteBuckets stores buckets. full_us is the time from refilled_time until a bucket is full.
-- next_us is the time from refilled_time until the bucket allows a start, and 0 if the bucket
-- allows one at refilled_time.
-- name: WriteBuckets :exec
INSERT INTO constraint_buckets (namespace, line, tokens, unstarted, refilled_time, full_time,
                                next_time)
SELECT @namespace::text, item.line, item.tokens, item.unstarted, item.refilled_time,
       item.refilled_time + item.full_us * interval '1 microsecond',
       CASE
         WHEN item.next_us > 0 THEN item.refilled_time + item.next_us * interval '1 microsecond'
       END
  FROM ROWS FROM (unnest(@lines::text[]), unnest(@tokens::float8[]), unnest(@unstarteds::int[]),
                  unnest(@refilled_times::timestamptz[]), unnest(@fulls_us::bigint[]),
                  unnest(@nexts_us::bigint[]))
       AS item(line, tokens, unstarted, refilled_time, full_us, next_us)
ON CONFLICT (namespace, line) DO UPDATE SET
       tokens = excluded.tokens, unstarted = excluded.unstarted,
       refilled_time = excluded.refilled_time, full_time = excluded.full_time,
       next_time = excluded.next_time;

-- ForgetBuckets deletes buckets that are full and have no unstarted jobs. It also deletes buckets
-- whose constraint no longer has a rate, because DueBuckets would return them forever.
-- name: ForgetBuckets :exec
DELETE FROM constraint_buckets b
 WHERE b.namespace = @namespace
   AND (b.full_time < statement_timestamp() AND b.unstarted = 0 AND b.next_time IS NULL
        OR NOT EXISTS (
          SELECT 1 FROM constraints c
           WHERE c.namespace = b.namespace
             AND c.name = split_part(b.line, '=', 1)
             AND c.rate_count IS NOT NULL));

-- FreeKeys frees the keys of a job that has ended. It runs after SaveResult and selects its items
-- like WriteJobs. (SaveCompleted frees keys itself.)
-- name: FreeKeys :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended)
DELETE FROM constraint_holds h USING input
 WHERE h.namespace = ANY (ARRAY[input.namespace])
   AND h.process_id = input.process_id;

-- RequeueForKeys frees the keys of jobs whose attempt has ended. If a job will run again, it waits
-- for its key again, and is evaluated again if the constraints have changed. RequeueForKeys runs
-- after SaveResult and selects its items like WriteJobs.
-- name: RequeueForKeys :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
     UNION ALL
     SELECT 1 FROM schedule s
      WHERE s.namespace = item.namespace
        AND s.process_id = item.process_id
        AND s.task_id = item.task_id
        AND s.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended),
updated_schedule AS (
  UPDATE schedule s
     SET line = coalesce(s.line, ''),
         waits_for = CASE s.waits_for WHEN 'place' THEN 'constraint' ELSE s.waits_for END,
         round = 0
    FROM input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.process_id = input.process_id
     AND s.task_id = input.task_id)
DELETE FROM constraint_holds h USING input
 WHERE h.namespace = ANY (ARRAY[input.namespace])
   AND h.process_id = input.process_id;

-- FreeEnded frees the keys of jobs that were cancelled, suspended or removed. It ignores jobs that
-- run or wait for a slot.
-- name: FreeEnded :exec
DELETE FROM constraint_holds h
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
 WHERE h.namespace = ANY (ARRAY[item.namespace])
   AND h.process_id = item.process_id
   AND NOT EXISTS (
     SELECT 1 FROM running r
      WHERE r.namespace = ANY (ARRAY[h.namespace])
        AND r.process_id = h.process_id)
   AND NOT EXISTS (
     SELECT 1 FROM schedule s
      WHERE s.namespace = ANY (ARRAY[h.namespace])
        AND s.process_id = h.process_id
        AND s.waits_for::text = 'place');

-- ListLines returns the key queues that contain jobs, in order, beginning with from_line. It reads
-- one index entry for each queue, regardless of the number of waiting jobs.
-- name: ListLines :many
WITH RECURSIVE lines AS (
  (
    SELECT s.line, 1 AS n
      FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = @namespace::text
       AND s.waits_for = 'constraint'
       AND s.line >= @from_line::text
     ORDER BY s.line LIMIT 1)
  UNION ALL
  SELECT (
    SELECT s.line FROM schedule s
     WHERE s.namespace COLLATE "POSIX" = @namespace::text
       AND s.waits_for = 'constraint'
       AND s.line > lines.line
     ORDER BY s.line LIMIT 1),
         lines.n + 1
    FROM lines
   WHERE lines.line IS NOT NULL
     AND lines.n < @lim::int)
SELECT lines.line::text AS line FROM lines WHERE lines.line IS NOT NULL;
