-- SweepHolds frees the keys of jobs that neither run nor wait for a slot. It runs under
-- LockConstraints, so no keys are assigned in the meantime. It checks at most lim keys after a
-- given one. It returns the number of checked keys, the last of them, and the queues of the freed
-- keys.
-- name: SweepHolds :one
WITH checked_holds AS MATERIALIZED (
  SELECT h.namespace, h.process_id, h.line
    FROM constraint_holds h
   WHERE h.namespace = @namespace::text
     AND (h.process_id, h.line) > (@after_process::text, @after_line::text)
   ORDER BY h.namespace, h.process_id, h.line LIMIT @lim::int),
deleted_constraint_holds AS (
  DELETE FROM constraint_holds x USING checked_holds
   WHERE x.namespace = ANY (ARRAY[checked_holds.namespace])
     AND x.process_id = checked_holds.process_id
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = ANY (ARRAY[checked_holds.namespace])
          AND r.process_id = checked_holds.process_id)
     AND NOT EXISTS (
       SELECT 1 FROM schedule s
        WHERE s.namespace = ANY (ARRAY[checked_holds.namespace])
          AND s.process_id = checked_holds.process_id
          AND s.waits_for::text = 'place')
  RETURNING x.line)
SELECT (SELECT count(*) FROM checked_holds)::int AS checked,
       coalesce((
         SELECT checked_holds.process_id FROM checked_holds
          ORDER BY checked_holds.process_id DESC, checked_holds.line DESC LIMIT 1),
                '')::text AS last_process,
       coalesce((
         SELECT checked_holds.line FROM checked_holds
          ORDER BY checked_holds.process_id DESC, checked_holds.line DESC LIMIT 1),
                '')::text AS last_line,
       ARRAY (SELECT deleted_constraint_holds.line FROM deleted_constraint_holds)::text[] AS freed;

-- ReturnPausedJobs moves jobs of paused names that wait for a slot back into their key queues, at
-- most lim. It frees their keys and returns the queues of the keys, so that other jobs get them. It
-- runs under LockConstraints.
-- name: ReturnPausedJobs :many
WITH returned AS (
  UPDATE schedule s
     SET waits_for = 'constraint'
    FROM (
      SELECT w.namespace, w.process_id, w.task_id
        FROM schedule w
       WHERE w.namespace COLLATE "POSIX" = @namespace::text
         AND w.waits_for = 'place'
         AND w.job_name = ANY (@names::text[])
         AND w.job_name IS NOT NULL
         AND w.line IS NOT NULL
       LIMIT @lim::int FOR NO KEY UPDATE SKIP LOCKED) waiting
   WHERE s.namespace = ANY (ARRAY[waiting.namespace])
     AND s.process_id = waiting.process_id
     AND s.task_id = waiting.task_id
  RETURNING s.namespace, s.process_id)
DELETE FROM constraint_holds h USING returned
 WHERE h.namespace = ANY (ARRAY[returned.namespace])
   AND h.process_id = returned.process_id
RETURNING h.line::text AS line;

-- SpanOfJobs returns the processes of the next lim waiting tasks, in the order of the process IDs.
-- After a change of constraints, all waiting jobs are evaluated again (a sweep), and each step of
-- the sweep handles one such span. A process is stale if it is a job that was evaluated under
-- another version of the constraints.
-- name: SpanOfJobs :many
SELECT job_task.process_id::text AS process_id, job_task.stale::bool AS stale
  FROM (
    SELECT s.process_id,
           s.job_name IS NOT NULL
             AND s.taker IS DISTINCT FROM '~'
             AND EXISTS (
               SELECT 1 FROM jobs j
                WHERE j.namespace = ANY (ARRAY[s.namespace])
                  AND j.process_id = s.process_id
                  AND coalesce(j.constraints_version, 0) <> @version::bigint) AS stale
      FROM schedule s
     WHERE s.namespace = @namespace::text
       AND s.process_id > @after::text
     ORDER BY s.namespace, s.process_id, s.task_id LIMIT @lim::int) job_task;

-- StaleJobs returns waiting jobs that were evaluated under another version of the constraints. It
-- runs after LockProcesses.
-- name: StaleJobs :many
SELECT s.process_id, s.task_id, s.waits_for, s.priority, job.name, s.args, process.metadata,
       job.tags
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
  JOIN schedule s
    ON s.namespace = ANY (ARRAY[item.namespace])
   AND s.process_id = item.process_id
   AND s.task_type = 'INIT'
   AND s.job_name IS NOT NULL
   AND s.taker IS DISTINCT FROM '~'
 CROSS JOIN LATERAL (
   SELECT p.metadata FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1) process
 CROSS JOIN LATERAL (
   SELECT j.* FROM jobs j
    WHERE j.namespace = item.namespace
      AND j.process_id = item.process_id
    LIMIT 1) job
 WHERE coalesce(job.constraints_version, 0) <> @version::bigint;

-- DropHolds deletes the keys that waiting jobs received under an older version of the constraints.
-- name: DropHolds :exec
DELETE FROM constraint_holds h
 USING ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
       AS item(namespace, process_id)
 WHERE h.namespace = ANY (ARRAY[item.namespace])
   AND h.process_id = item.process_id;

-- MoveSweep stores the last process that a sweep has handled. If the cursor is empty, the sweep has
-- handled all processes and is over.
-- name: MoveSweep :exec
UPDATE constraint_sets
   SET cursor = NULLIF(@cursor::text, ''),
       swept_time = CASE WHEN @cursor::text = '' THEN began_time ELSE swept_time END
 WHERE namespace = @namespace;

-- BeginSweep starts a sweep at the first process.
-- name: BeginSweep :exec
UPDATE constraint_sets
   SET cursor = '', began_time = clock_timestamp()
 WHERE namespace = @namespace;

-- RunningUnheld returns running jobs that were claimed under an older version of the constraints.
-- The caller assigns to them the keys that the current version requires, so that the constraints
-- count these jobs.
-- name: RunningUnheld :many
SELECT r.process_id, r.priority, job.name, r.args, process.metadata, job.tags
  FROM running r
 CROSS JOIN LATERAL (
   SELECT p.kind, p.metadata
     FROM processes p
    WHERE p.namespace = r.namespace
      AND p.process_id = r.process_id
    LIMIT 1) process
 CROSS JOIN LATERAL (
   SELECT j.* FROM jobs j
    WHERE j.namespace = r.namespace
      AND j.process_id = r.process_id
    LIMIT 1) job
 WHERE r.namespace = @namespace::text
   AND process.kind = 'job'
   AND coalesce(job.constraints_version, 0) <> @version::bigint;
